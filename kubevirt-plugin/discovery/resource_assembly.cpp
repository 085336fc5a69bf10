// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/resource_assembly.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"

namespace ferry::plugin {

std::string fill_template(std::string text, const std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : values) {
    const std::string field = "{" + key + "}";
    for (auto at = text.find(field); at != std::string::npos; at = text.find(field, at + value.size()))
      text.replace(at, field.size(), value);
  }
  return text;
}

namespace {

constexpr const char* kOtherName = "`ferry plugin --alias MODEL=NAME` gives its model another name";

std::string alias_or(const NameRules& rules, const std::string& model, std::string part) {
  const auto alias = rules.aliases.find(model);
  return alias == rules.aliases.end() ? std::move(part) : alias->second;
}

}  // namespace

std::string NameRules::function_part(const std::string& ids, const std::string& human) const {
  const std::string device = ids.substr(ids.find(':') + 1);
  // A template's own text would give all models without a name the same one.
  const bool nameless = human.empty() && functions != "{name}";
  return alias_or(*this, ids,
                  fill_template(functions, {{"name", nameless ? device : pci_resource_part(human)},
                                            {"vendor", ids.substr(0, ids.find(':'))},
                                            {"device", device}}));
}

Result<ResourceName> NameRules::function_name(const std::string& domain, const std::string& ids,
                                              const std::string& human) const {
  auto name = ResourceName::parse(domain + "/" + function_part(ids, human));
  if (name) return name;
  return ResourceName::parse(domain + "/" + ids.substr(ids.find(':') + 1));
}

std::string NameRules::vgpu_part(const std::string& type) const {
  return alias_or(*this, type, fill_template(vgpus, {{"name", mdev_resource_part(type)}}));
}

Result<> check_template(std::string_view text, std::span<const std::string_view> fields) {
  std::vector<std::string> known;
  for (const std::string_view field : fields) known.push_back(fmt::format("{{{}}}", field));
  const auto wrong = [&](std::string_view part) {
    return fail(Errc::usage,
                fmt::format("name template '{}': there is no {}{}", text, part,
                            did_you_mean(std::string(part), known)),
                fmt::format("a name is made of text and {}", fmt::join(known, ", ")));
  };
  for (auto at = text.find_first_of("{}"); at != std::string_view::npos;) {
    const auto end = text.find('}', at);
    const auto part = text.substr(at, end == std::string_view::npos ? end : end + 1 - at);
    if (std::ranges::find(known, part) == known.end()) return wrong(part);
    at = text.find_first_of("{}", at + part.size());
  }
  return {};
}

Result<std::pair<std::string, std::string>> parse_alias(std::string_view text) {
  const auto sign = text.find('=');
  if (sign == std::string_view::npos || sign == 0 || sign + 1 == text.size()) {
    return fail(Errc::usage, fmt::format("alias '{}': not of the form MODEL=NAME", text),
                "as 10de:2330=h100 or 'NVIDIA A40-8Q=small'");
  }
  return std::pair(model_of(text.substr(0, sign)), std::string(text.substr(sign + 1)));
}

std::string model_of(std::string_view text) {
  // KubeVirt's object has these IDs in upper case.
  const bool is_ids = text.size() == 9 && text[4] == ':' && std::ranges::all_of(text, [](char c) {
                        return c == ':' || std::isxdigit(static_cast<unsigned char>(c)) != 0;
                      });
  return is_ids ? lower(text) : std::string(text);
}

void ResourceAssembly::advise(const std::string& id, std::string advice) {
  if (!advice.empty()) found_.advice.insert_or_assign(id, std::move(advice));
}

void ResourceAssembly::add_unusable(std::string id, std::string reason, std::string advice) {
  advise(id, std::move(advice));
  found_.not_advertised.push_back({.id = std::move(id), .reason = std::move(reason)});
}

void ResourceAssembly::add_of_other_kind(std::string id, std::string reason) {
  found_.not_advertised.push_back({.id = std::move(id), .reason = std::move(reason), .by_kind = true});
}

void ResourceAssembly::add_not_on_vfio(std::string id, const std::optional<std::string>& driver) {
  if (driver) {
    found_.left_to_host.push_back({.id = std::move(id), .reason = "its driver is " + *driver});
  } else {
    found_.driverless.push_back({.id = std::move(id), .reason = "no driver is bound to it"});
  }
}

void ResourceAssembly::add_unreadable(std::string id, std::string why) {
  found_.driverless.push_back({.id = std::move(id), .reason = std::move(why)});
  found_.unsettled = true;
}

Result<ResourceName> ResourceAssembly::name_of(const std::string& domain, const std::string& model,
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
  warn(part.empty() ? fmt::format("{} has no name; it is advertised as {}/{}", model, domain, fallback)
                    : fmt::format("{}; it is advertised as {}/{}", name.error().message, domain, fallback));
  return ResourceName::parse(domain + "/" + fallback);
}

void ResourceAssembly::add(ScannedDevice device, const std::string& part, const std::string& fallback,
                           EnvPrefix prefix, const std::string& domain) {
  const auto name = name_of(domain.empty() ? domain_ : domain, device.model, part, fallback, prefix);
  if (!name) return add_unusable(device.id, name.error().message, kOtherName);
  auto& resource = resources_.try_emplace(*name, Resource{.name = *name, .env_prefix = prefix, .devices = {}})
                       .first->second;
  // virt-launcher takes one address per entry from variables of either kind, and Kata a CDI name per ID. A
  // resource therefore has one kind of device.
  if (resource.env_prefix != prefix)
    return add_unusable(device.id, fmt::format("{} is the name of devices of another kind", name->text()),
                        kOtherName);
  resource.devices.push_back(std::move(device));
}

void ResourceAssembly::add_companion(std::string gpu, Companion companion, std::string part,
                                     std::string fallback) {
  companions_.push_back({.gpu = std::move(gpu),
                         .companion = std::move(companion),
                         .part = std::move(part),
                         .fallback = std::move(fallback)});
}

ScannedDevice* ResourceAssembly::find_function(const std::string& address) {
  for (auto& [name, resource] : resources_)
    for (auto& device : resource.devices)
      if (device.kind == DeviceKind::pci_function && device.id == address) return &device;
  return nullptr;
}

void ResourceAssembly::add_place(Waiting waiting) {
  auto* const gpu = find_function(waiting.gpu);
  if (gpu == nullptr) return;  // the GPU's own reason has been noted
  auto& companion = waiting.companion;
  const auto name =
      name_of(domain_, companion.model, waiting.part, waiting.fallback, EnvPrefix::pci_resource);
  if (!name) return add_unusable(companion.address, name.error().message, kOtherName);
  const auto known = resources_.find(*name);
  if (known != resources_.end() && !known->second.places)
    return add_unusable(companion.address, fmt::format("{} is the name of devices", name->text()),
                        kOtherName);
  companion.resource = name->text();
  companion.env_name = env_name(EnvPrefix::pci_resource, *name);
  for (const auto& [other, resource] : resources_) {
    if (other == *name || env_name(resource.env_prefix, other) != companion.env_name) continue;
    return add_unusable(companion.address,
                        fmt::format("KubeVirt cannot tell {} from {}", name->text(), other.text()),
                        kOtherName);
  }
  resources_.try_emplace(
      *name, Resource{.name = *name, .env_prefix = EnvPrefix::pci_resource, .devices = {}, .places = true});
  gpu->companions.push_back(std::move(companion));
}

ResourceSet ResourceAssembly::finish() && {
  for (auto& waiting : companions_) add_place(std::move(waiting));
  std::map<std::string, std::string> env_names;  // env name -> resource
  for (auto& [name, resource] : resources_) {
    const std::string env = env_name(resource.env_prefix, name);
    const auto [entry, is_new] = env_names.emplace(env, name.text());
    if (!is_new && !env.empty()) {
      warn(fmt::format("{} is not advertised: KubeVirt cannot tell it from {}", name.text(), entry->second));
      for (const auto& device : resource.devices)
        add_unusable(device.id, fmt::format("KubeVirt cannot tell {} from {}", name.text(), entry->second),
                     kOtherName);
      continue;
    }
    std::ranges::sort(resource.devices, {}, &ScannedDevice::id);
    found_.resources.push_back(std::move(resource));
  }
  return std::move(found_);
}

void ResourceAssembly::warn(std::string text) {
  if (std::ranges::find(found_.warnings, text) == found_.warnings.end())
    found_.warnings.push_back(std::move(text));
}

}  // namespace ferry::plugin
