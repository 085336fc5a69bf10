// SPDX-License-Identifier: Apache-2.0
// What Kubernetes' API takes for names, labels and quantities: asked where they are read, since it would
// refuse them only when an object is made.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ferry {

/// A DNS subdomain: labels of lower case letters, digits and inner dashes, with dots between; 253 at most.
bool is_object_name(std::string_view text);
/// "PREFIX/NAME" or "NAME": a DNS subdomain, and letters, digits, '-', '_' and '.', 63 at most. Resources are
/// named so, too.
bool is_label_key(std::string_view text);
/// Letters, digits, and inner '-', '_' and '.', 63 at most; may be empty.
bool is_label_value(std::string_view text);

/// How much a quantity is, rounded up to a whole: "10240Mi", "1.5Gi", "500m" (1), "2", "1e3". Absent: it is
/// none, is below 0, begins with a 0 that is not needed, or is above what 64 bits hold.
std::optional<std::uint64_t> parse_quantity(std::string_view text);

}  // namespace ferry
