// SPDX-License-Identifier: Apache-2.0
// Runtime tables of Ferry's that stand outside its blocks (text_block.h): a program that parses containerd's
// file and prints it again drops comments, and Ferry's marks with them.
#pragma once

#include <string>
#include <vector>

#include "kata-manager/toml.h"
#include "kata-manager/toml_removal.h"

namespace ferry {

struct UnmarkedRuntime {
  std::string name;
  TomlTable entry;
  std::vector<TomlPath> tables;  ///< its table, and that of its snapshotter where there is one
};

/// The runtimes of a file whose `ConfigPath` lies below /etc/ferry/kata, by name. `root` is the file without
/// a block of Ferry's.
std::vector<UnmarkedRuntime> unmarked_runtimes(const TomlTable& root);

}  // namespace ferry
