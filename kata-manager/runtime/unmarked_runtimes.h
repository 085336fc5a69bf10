// SPDX-License-Identifier: Apache-2.0
// Ferry's runtime tables outside of its blocks (text_block.h). A program that parses and reprints
// containerd's file drops comments, and Ferry's marks with them.
#pragma once

#include <string>
#include <vector>

#include "kata-manager/toml/toml.h"
#include "kata-manager/toml/toml_removal.h"

namespace ferry::kata {

struct UnmarkedRuntime {
  std::string name;
  TomlTable entry;
  std::vector<TomlPath> tables;  ///< its table, and its snapshotter's if there is one
};

/// The runtimes in a file whose `ConfigPath` lies below /etc/ferry/kata, by name. `root`: the file without
/// Ferry's block.
std::vector<UnmarkedRuntime> unmarked_runtimes(const TomlTable& root);

}  // namespace ferry::kata
