// SPDX-License-Identifier: Apache-2.0
#include "agent/desired_state/known_policies.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "policy/policy_yaml.h"

namespace ferry::agent {
namespace {

struct Known {
  ConfigText source;
  std::shared_ptr<const Result<policy::PolicyFile>> policies;
};

/// Texts of the present reconcile, and of the one before.
struct Memory {
  std::vector<Known> young;
  std::vector<Known> old;
};

Memory& memory_of_thread() {
  thread_local Memory memory;
  return memory;
}

}  // namespace

void drop_unused_policies() {
  Memory& memory = memory_of_thread();
  memory.old = std::exchange(memory.young, {});
}

std::shared_ptr<const Result<policy::PolicyFile>> known_policies(const ConfigText& source) {
  Memory& memory = memory_of_thread();
  if (const auto found = std::ranges::find(memory.young, source, &Known::source); found != memory.young.end())
    return found->policies;
  if (const auto found = std::ranges::find(memory.old, source, &Known::source); found != memory.old.end())
    return memory.young.emplace_back(*found).policies;
  Known read{.source = source,
             .policies = std::make_shared<const Result<policy::PolicyFile>>(policy::read_policies(source))};
  return memory.young.emplace_back(std::move(read)).policies;
}

}  // namespace ferry::agent
