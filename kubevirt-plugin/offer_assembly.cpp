// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/offer_assembly.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace ferry {

void OfferAssembly::refuse(std::string id, std::string reason) {
  offer_.not_offered.push_back({.id = std::move(id), .reason = std::move(reason)});
}

void OfferAssembly::leave(std::string id, const std::optional<std::string>& driver) {
  if (driver) {
    offer_.left_to_host.push_back({.id = std::move(id), .reason = "its driver is " + *driver});
  } else {
    offer_.driverless.push_back({.id = std::move(id), .reason = "no driver is bound to it"});
  }
}

void OfferAssembly::add(OfferedDevice device, const std::string& part, const std::string& fallback,
                        EnvPrefix prefix) {
  auto name = ResourceName::parse(domain_ + "/" + part);
  if (!name && !fallback.empty()) {
    warn(part.empty() ? fmt::format("{} has no name; it is offered as {}/{}", device.model, domain_, fallback)
                      : fmt::format("{}; it is offered as {}/{}", name.error().message, domain_, fallback));
    name = ResourceName::parse(domain_ + "/" + fallback);
  }
  if (!name) return refuse(device.id, name.error().message);
  auto& resource = resources_.try_emplace(*name, Resource{.name = *name, .env_prefix = prefix, .devices = {}})
                       .first->second;
  // virt-launcher takes one address for each entry from either kind of variable, and Kata a CDI name for each
  // ID: a resource has one kind.
  if (resource.env_prefix != prefix)
    return refuse(device.id, fmt::format("{} is the name of devices of another kind", name->text()));
  resource.devices.push_back(std::move(device));
}

Offer OfferAssembly::finish() && {
  std::map<std::string, std::string> env_names;  // env name -> resource
  for (auto& [name, resource] : resources_) {
    const std::string env = env_name(resource.env_prefix, name);
    const auto [entry, is_new] = env_names.emplace(env, name.text());
    if (!is_new && !env.empty()) {
      warn(fmt::format("{} is not offered: KubeVirt cannot tell it from {}", name.text(), entry->second));
      for (const auto& device : resource.devices)
        refuse(device.id, fmt::format("KubeVirt cannot tell {} from {}", name.text(), entry->second));
      continue;
    }
    std::sort(resource.devices.begin(), resource.devices.end(),
              [](const OfferedDevice& a, const OfferedDevice& b) { return a.id < b.id; });
    offer_.resources.push_back(std::move(resource));
  }
  return std::move(offer_);
}

void OfferAssembly::warn(std::string text) {
  if (std::find(offer_.warnings.begin(), offer_.warnings.end(), text) == offer_.warnings.end())
    offer_.warnings.push_back(std::move(text));
}

}  // namespace ferry
