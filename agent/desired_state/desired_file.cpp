// SPDX-License-Identifier: Apache-2.0
#include "agent/desired_state/desired_file.h"

#include <nlohmann/json.hpp>

#include "agent/desired_state/known_policies.h"
#include "policy/policy_yaml.h"

namespace ferry::agent {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersionOfFormat = 2;

}  // namespace

bool DesiredFile::says(const DesiredPolicy& desired_policy) const {
  return policy == desired_policy.name && source == desired_policy.source &&
         (config == desired_policy.config || holds(desired_policy.policy));
}

std::optional<policy::Policy> DesiredFile::read() const {
  const auto file = known_policies({.file = kDesiredFile, .text = config});
  if (!*file) return std::nullopt;
  auto own = policy::select_policy(**file, policy);
  if (!own) return std::nullopt;
  return std::move(*own);
}

bool DesiredFile::holds(const policy::Policy& other) const {
  const auto own = read();
  return own && same_policy(*own, other);
}

std::string desired_file_text(const DesiredFile& desired_state) {
  const Json file = {{"version", kVersionOfFormat},
                     {"generation", desired_state.generation},
                     {"policy", desired_state.policy},
                     {"config", desired_state.config},
                     {"source", desired_state.source}};
  return file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<DesiredFile> read_desired_file(std::string_view text) {
  const Json file = Json::parse(text, nullptr, false);
  if (!file.is_object()) return std::nullopt;
  const auto version = file.find("version");
  const auto generation = file.find("generation");
  if (version == file.end() || *version != kVersionOfFormat || generation == file.end() ||
      !generation->is_number_unsigned()) {
    return std::nullopt;
  }
  DesiredFile out{.generation = generation->get<std::uint64_t>(), .policy = {}, .config = {}, .source = {}};
  for (const auto& [key, into] : {std::pair{"policy", &out.policy}, std::pair{"config", &out.config},
                                  std::pair{"source", &out.source}}) {
    const auto value = file.find(key);
    if (value == file.end() || !value->is_string()) return std::nullopt;
    *into = value->get<std::string>();
  }
  return out;
}

}  // namespace ferry::agent
