// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ferry {

/// A number of things for people: "1 warning", "2 warnings", "0 switches". Without `many` an "s" is added.
std::string counted(std::size_t count, std::string_view one, std::string_view many = {});

}  // namespace ferry
