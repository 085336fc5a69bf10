// SPDX-License-Identifier: Apache-2.0
#include "cli/naming_options.h"

#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "kubevirt-plugin/naming.h"
#include "kubevirt-plugin/resource_name.h"
#include "policy/accelerators.h"

namespace ferry {

namespace {

Companions companions_of(const NamingOptions& naming) {
  if (naming.companions) return Companions::devices;
  return naming.no_companion_places ? Companions::unasked : Companions::places;
}

/// Refuses `part` where the kubelet would take no resource of that name.
Result<> check_part(const std::string& part, const std::string& option) {
  const auto name = ResourceName::parse(fmt::format("{}/{}", kResourceDomain, part));
  if (name) return {};
  return fail(
      Errc::usage, fmt::format("{}: {}", option, name.error().message),
      "a name has at most 63 letters, digits, '-', '_' and '.', and begins and ends with a letter or digit");
}

/// A template is impossible where it makes no name of a usual one.
Result<> check_filled(const std::string& text, std::span<const std::string_view> fields, const char* option) {
  if (auto r = check_template(text, fields); !r) return r;
  const std::string filled = fill_template(text, {{"name", "GPU"}, {"vendor", "10de"}, {"device", "2330"}});
  return check_part(filled, fmt::format("{} '{}'", option, text));
}

}  // namespace

Result<OfferRules> offer_rules(const Session& session, const NamingOptions& naming) {
  OfferRules rules{.accelerators = session.rules,
                   .domain = std::string(kResourceDomain),
                   .companions = companions_of(naming),
                   .names = {.functions = naming.name_template, .vgpus = naming.vgpu_name_template}};
  if (auto r = check_filled(naming.name_template, kFunctionFields, "--name-template"); !r)
    return fail(std::move(r).error());
  if (auto r = check_filled(naming.vgpu_name_template, kVgpuFields, "--vgpu-name-template"); !r)
    return fail(std::move(r).error());
  for (const NamedVendor& vendor : named_vendors())
    rules.domains.emplace(vendor.id, fmt::format("{}.com", vendor.name));
  for (const std::string& text : naming.aliases) {
    auto alias = parse_alias(text);
    if (!alias) return fail(std::move(alias).error());
    const std::string model = alias->first;
    if (auto r = check_part(alias->second, fmt::format("alias '{}'", text)); !r)
      return fail(std::move(r).error());
    if (!rules.names.aliases.insert(std::move(*alias)).second)
      return fail(Errc::usage, fmt::format("alias '{}': {} has another one already", text, model),
                  "name each model once");
  }
  return rules;
}

}  // namespace ferry
