// SPDX-License-Identifier: Apache-2.0
// Kubernetes' rules for names, labels and quantities. Ferry checks them on reading, because the API server
// would refuse them only when an object is made.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ferry::kata {

/// A DNS subdomain: labels of lower case letters, digits and inner dashes, with dots between; 253 at most.
bool is_object_name(std::string_view text);
/// "PREFIX/NAME" or "NAME", also for resources: a DNS subdomain, and at most 63 letters, digits, '-', '_'
/// and '.'.
bool is_label_key(std::string_view text);
/// Letters, digits, and inner '-', '_' and '.', 63 at most; may be empty.
bool is_label_value(std::string_view text);

/// A quantity's amount, rounded up: "10240Mi", "1.5Gi", "500m" (1), "2", "1e3". Absent: no quantity, below
/// 0, a needless leading 0, or above 64 bits.
std::optional<std::uint64_t> parse_quantity(std::string_view text);

}  // namespace ferry::kata
