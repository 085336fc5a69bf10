// SPDX-License-Identifier: Apache-2.0
// What people write and see of a model.
#pragma once

#include <string>
#include <string_view>

namespace ferry {

/// What people call a model: what stands in the brackets of its name, "GeForce RTX 4090" of "AD102 [GeForce
/// RTX 4090]"; the name itself where it has none.
std::string short_model(const std::string& name);

/// Why a pattern is no glob(7), as a clause ("has a [ without its ]"); empty: it is one. Such a pattern
/// matches nothing that has a name.
std::string glob_fault(std::string_view pattern);

}  // namespace ferry
