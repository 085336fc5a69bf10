// SPDX-License-Identifier: Apache-2.0
// Which of Kata's runtimes a node shall have, by the class file that the cluster has in a ConfigMap. Pure.
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
  bool is_known = true;  ///< false: nobody has said yet whether it is there
  std::vector<ConfigText> texts = {};
  std::string trouble = {};  ///< why it cannot be had; empty: it can
};

struct KataWish {
  bool counts = false;  ///< false: what was asked for last stands
  std::string trouble;  ///< why it does not count, for people; empty: it does, or it is not known yet
  std::string asked_by;
  ConfigText config;
  ClassFile file;                    ///< that of `config`
  std::vector<std::string> classes;  ///< those of its classes that this node shall have, in its order
};

/// A class is for the nodes that have all labels of its nodeSelector, and without one for each node.
///
/// What is gone, cannot be read or was cut off changes nothing: a ConfigMap that is removed, an empty file,
/// one without the key. All runtimes are asked to go by a file that says so: `runtimeClasses: []`.
KataWish kata_wish(const KataSource& source, const Labels& labels);

}  // namespace ferry
