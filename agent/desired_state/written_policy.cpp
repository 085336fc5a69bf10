// SPDX-License-Identifier: Apache-2.0
#include "agent/desired_state/written_policy.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "api/files.h"
#include "policy/policy_yaml.h"

namespace ferry::agent {
namespace {

struct Known {
  ConfigText source;
  std::shared_ptr<const Result<policy::PolicyFile>> policies;
};

struct Cache {
  std::vector<Known> young;  ///< needed since the last drop_unused_policies()
  std::vector<Known> old;    ///< needed in the time before that
};

Cache& cache_of_thread() {
  thread_local Cache cache;
  return cache;
}

}  // namespace

void drop_unused_policies() {
  Cache& cache = cache_of_thread();
  cache.old = std::exchange(cache.young, {});
}

std::shared_ptr<const Result<policy::PolicyFile>> known_policies(const ConfigText& source) {
  Cache& cache = cache_of_thread();
  if (const auto found = std::ranges::find(cache.young, source, &Known::source); found != cache.young.end())
    return found->policies;
  if (const auto found = std::ranges::find(cache.old, source, &Known::source); found != cache.old.end())
    return cache.young.emplace_back(*found).policies;
  Known read{.source = source,
             .policies = std::make_shared<const Result<policy::PolicyFile>>(policy::read_policies(source))};
  return cache.young.emplace_back(std::move(read)).policies;
}

std::optional<api::DesiredFile> read_written(std::string text) {
  auto file = api::read_desired_file({.file = api::kDesiredFile, .text = std::move(text)});
  const bool ours = file && file->generation && file->file.empty() && !file->source.empty();
  return ours ? std::optional(std::move(*file)) : std::nullopt;
}

api::DesiredFile file_of(const DesiredPolicy& desired_policy, std::uint64_t generation) {
  return {.generation = generation,
          .policy = desired_policy.name,
          .config = {.file = api::kDesiredFile, .text = desired_policy.config},
          .source = desired_policy.source};
}

bool says(const api::DesiredFile& file, const DesiredPolicy& desired_policy) {
  return file.policy == desired_policy.name && file.source == desired_policy.source &&
         (file.config.text == desired_policy.config || holds(file, desired_policy.policy));
}

std::optional<policy::Policy> policy_in(const api::DesiredFile& file) {
  const auto known = known_policies({.file = api::kDesiredFile, .text = file.config.text});
  if (!*known) return std::nullopt;
  auto own = policy::select_policy(**known, file.policy);
  if (!own) return std::nullopt;
  return std::move(*own);
}

bool holds(const api::DesiredFile& file, const policy::Policy& policy) {
  const auto own = policy_in(file);
  return own && same_policy(*own, policy);
}

}  // namespace ferry::agent
