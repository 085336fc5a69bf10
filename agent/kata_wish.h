// SPDX-License-Identifier: Apache-2.0
// The desired Kata runtimes of a node, from the class file in a ConfigMap. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/operands.h"
#include "common/config_tree.h"
#include "kata-manager/class_file.h"

namespace ferry {

/// The ConfigMap with the class file, as far as it is known.
struct KataSource {
  std::string name;      ///< "ConfigMap gpus/ferry-kata-classes"
  bool is_known = true;  ///< false: it is not listed yet
  std::vector<ConfigText> texts = {};
  std::string trouble = {};  ///< why it cannot be read; empty: it can
};

struct KataWish {
  bool counts = false;  ///< false: the last desired state stays
  std::string trouble;  ///< why it does not count, for people; empty: it does, or is not known yet
  std::string asked_by;
  ConfigText config;
  ClassFile file;                    ///< content of `config`
  std::vector<std::string> classes;  ///< classes for this node, in the file's order
};

/// A class applies to nodes that have all labels of its nodeSelector; without one it applies to all nodes.
///
/// A missing, empty, truncated or unreadable class file changes nothing. All runtimes are removed only by a
/// file that says so: `runtimeClasses: []`.
KataWish kata_wish(const KataSource& source, const Labels& labels);

}  // namespace ferry
