// SPDX-License-Identifier: Apache-2.0
#include "agent/desired_state/wish_file.h"

#include <nlohmann/json.hpp>

#include "agent/desired_state/known_policies.h"
#include "policy/policy_yaml.h"

namespace ferry::agent {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersionOfFormat = 1;

}  // namespace

bool WrittenWish::says(const WishedPolicy& wished) const {
  return policy == wished.name && asked_by == wished.asked_by &&
         (config == wished.config || holds(wished.policy));
}

std::optional<policy::Policy> WrittenWish::read() const {
  const auto file = known_policies({.file = kWishFile, .text = config});
  if (!*file) return std::nullopt;
  auto own = policy::select_policy(**file, policy);
  if (!own) return std::nullopt;
  return std::move(*own);
}

bool WrittenWish::holds(const policy::Policy& other) const {
  const auto own = read();
  return own && same_policy(*own, other);
}

std::string wish_file_text(const WrittenWish& wish) {
  const Json file = {{"version", kVersionOfFormat},
                     {"generation", wish.generation},
                     {"policy", wish.policy},
                     {"config", wish.config},
                     {"asked_by", wish.asked_by}};
  return file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<WrittenWish> read_wish_file(std::string_view text) {
  const Json file = Json::parse(text, nullptr, false);
  if (!file.is_object()) return std::nullopt;
  const auto version = file.find("version");
  const auto generation = file.find("generation");
  if (version == file.end() || *version != kVersionOfFormat || generation == file.end() ||
      !generation->is_number_unsigned()) {
    return std::nullopt;
  }
  WrittenWish out{.generation = generation->get<std::uint64_t>(), .policy = {}, .config = {}, .asked_by = {}};
  for (const auto& [key, into] : {std::pair{"policy", &out.policy}, std::pair{"config", &out.config},
                                  std::pair{"asked_by", &out.asked_by}}) {
    const auto value = file.find(key);
    if (value == file.end() || !value->is_string()) return std::nullopt;
    *into = value->get<std::string>();
  }
  return out;
}

}  // namespace ferry::agent
