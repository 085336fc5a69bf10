// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/offer_assembly.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

namespace ferry {

void OfferAssembly::refuse(std::string id, std::string reason) {
  offer_.not_offered.push_back({.id = std::move(id), .reason = std::move(reason)});
}

void OfferAssembly::leave_out(std::string id, std::string reason) {
  offer_.not_offered.push_back({.id = std::move(id), .reason = std::move(reason), .by_kind = true});
}

void OfferAssembly::leave(std::string id, const std::optional<std::string>& driver) {
  if (driver) {
    offer_.left_to_host.push_back({.id = std::move(id), .reason = "its driver is " + *driver});
  } else {
    offer_.driverless.push_back({.id = std::move(id), .reason = "no driver is bound to it"});
  }
}

void OfferAssembly::miss(std::string id, std::string why) {
  offer_.driverless.push_back({.id = std::move(id), .reason = std::move(why)});
  offer_.unsettled = true;
}

Result<ResourceName> OfferAssembly::name_of(const std::string& domain, const std::string& model,
                                            const std::string& part, const std::string& fallback,
                                            EnvPrefix prefix) {
  auto name = ResourceName::parse(domain + "/" + part);
  // Kata's is a kind of CDI's too, whose class begins with a letter (its specification, "kind").
  if (name && prefix == EnvPrefix::none && std::isdigit(static_cast<unsigned char>(part.front())) != 0)
    name = fail(
        Errc::invalid_config,
        fmt::format("resource name '{}': no CDI kind for Kata begins so, but with a letter", name->text()));
  // ABI: the CDI project's Go library v0.6.0, validateVendorOrClassName().
  if (name && prefix == EnvPrefix::none && part.size() == 1)
    name = fail(
        Errc::invalid_config,
        fmt::format("resource name '{}': the CDI library of Kata's runtime crashes at a name of one letter",
                    name->text()));
  if (name || fallback.empty()) return name;
  warn(part.empty() ? fmt::format("{} has no name; it is offered as {}/{}", model, domain, fallback)
                    : fmt::format("{}; it is offered as {}/{}", name.error().message, domain, fallback));
  return ResourceName::parse(domain + "/" + fallback);
}

void OfferAssembly::add(OfferedDevice device, const std::string& part, const std::string& fallback,
                        EnvPrefix prefix, const std::string& domain) {
  const auto name = name_of(domain.empty() ? domain_ : domain, device.model, part, fallback, prefix);
  if (!name) return refuse(device.id, name.error().message);
  auto& resource = resources_.try_emplace(*name, Resource{.name = *name, .env_prefix = prefix, .devices = {}})
                       .first->second;
  // virt-launcher takes one address per entry from variables of either kind, and Kata a CDI name per ID. A
  // resource therefore has one kind of device.
  if (resource.env_prefix != prefix)
    return refuse(device.id, fmt::format("{} is the name of devices of another kind", name->text()));
  resource.devices.push_back(std::move(device));
}

void OfferAssembly::add_companion(std::string gpu, Companion companion, std::string part,
                                  std::string fallback) {
  companions_.push_back({.gpu = std::move(gpu),
                         .companion = std::move(companion),
                         .part = std::move(part),
                         .fallback = std::move(fallback)});
}

OfferedDevice* OfferAssembly::find_function(const std::string& address) {
  for (auto& [name, resource] : resources_)
    for (auto& device : resource.devices)
      if (device.kind == DeviceKind::pci_function && device.id == address) return &device;
  return nullptr;
}

void OfferAssembly::add_place(Waiting waiting) {
  auto* const gpu = find_function(waiting.gpu);
  if (gpu == nullptr) return;  // the GPU's own reason has been noted
  auto& companion = waiting.companion;
  const auto name =
      name_of(domain_, companion.model, waiting.part, waiting.fallback, EnvPrefix::pci_resource);
  if (!name) return refuse(companion.address, name.error().message);
  const auto known = resources_.find(*name);
  if (known != resources_.end() && !known->second.places)
    return refuse(companion.address, fmt::format("{} is the name of devices", name->text()));
  companion.resource = name->text();
  companion.env_name = env_name(EnvPrefix::pci_resource, *name);
  for (const auto& [other, resource] : resources_) {
    if (other == *name || env_name(resource.env_prefix, other) != companion.env_name) continue;
    return refuse(companion.address,
                  fmt::format("KubeVirt cannot tell {} from {}", name->text(), other.text()));
  }
  resources_.try_emplace(
      *name, Resource{.name = *name, .env_prefix = EnvPrefix::pci_resource, .devices = {}, .places = true});
  gpu->companions.push_back(std::move(companion));
}

Offer OfferAssembly::finish() && {
  for (auto& waiting : companions_) add_place(std::move(waiting));
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
