// SPDX-License-Identifier: Apache-2.0
// What the kernel does on a write, as a table that is run twice: against the fake kernel in the unit tests
// and against the real one in the virtual node. A row that differs between them fails.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"

namespace ferry::test {

/// A write; {name} in path and value stands for a thing of the machine: {gpu}, {gpu_driver}, {audio}, ...
struct EffectWrite {
  std::string path;
  std::string value;
};

/// What is seen afterwards at a path.
struct EffectFact {
  enum class Kind {
    link_to,  ///< a link whose last part is `value`
    reads,    ///< an attribute that reads `value`
    present,  ///< something is there
    absent,   ///< nothing is there
  };
  Kind kind = Kind::present;
  std::string path;
  std::string value = {};
};

struct KernelEffect {
  std::string name;  ///< CamelCase: it becomes the test's name
  std::vector<EffectWrite> before = {};
  std::string held = {};  ///< "{gpu}": somebody has this function open by vfio, as a VM does, during `write`
  EffectWrite write;
  int error = 0;  ///< the errno of `write`; 0: success
  std::vector<EffectFact> after = {};
  /// A link that has another inode than after each of `before` that it was there.
  std::string made_anew = {};
  std::vector<EffectWrite> restore = {};  ///< puts the machine back for the next row; must succeed
};

/// What gtest prints of a failing row.
inline void PrintTo(const KernelEffect& effect, std::ostream* out) {
  *out << effect.name;
}

/// The machine that a table runs on.
struct EffectHost {
  HostFs* host = nullptr;
  HostWriter* writer = nullptr;
  std::map<std::string, std::string> names;  ///< {gpu} -> 0000:01:00.0
  /// Opens a function as a VM does, until what is returned goes.
  std::function<std::shared_ptr<void>(const std::string& address)> hold = {};
};

/// Runs one row with gtest's expectations.
void check_effect(const EffectHost& machine, const KernelEffect& effect);

/// The real kernel, when the environment says so: FERRY_EFFECTS_NAMES is a file of lines name=value.
/// Otherwise false, and the table runs on a fake.
bool real_machine(std::map<std::string, std::string>& names);
/// Runs one row there, if so; otherwise false.
bool check_on_real_machine(const KernelEffect& effect);

}  // namespace ferry::test
