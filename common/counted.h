// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ferry {

/// A number of things for people: "1 warning", "0 switches". Without `many` the plural is `one` with an "s".
std::string counted(std::size_t count, std::string_view one, std::string_view many = {});

}  // namespace ferry
