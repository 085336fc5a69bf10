// SPDX-License-Identifier: Apache-2.0
// Model names as users write and see them.
#pragma once

#include <string>
#include <string_view>

namespace ferry::policy {

/// The short name of a model, which stands in the brackets of its name: "GeForce RTX 4090" of "AD102 [GeForce
/// RTX 4090]". The whole name if it has no brackets.
std::string short_model(const std::string& name);

/// The reason why a pattern is no glob(7), as a clause ("has a [ without its ]"); empty: it is one. A faulty
/// pattern matches no name.
std::string glob_fault(std::string_view pattern);

}  // namespace ferry::policy
