// SPDX-License-Identifier: Apache-2.0
#include "cli/naming_options.h"

#include <utility>

#include <fmt/format.h>

#include "kubevirt-plugin/naming.h"
#include "policy/accelerators.h"

namespace ferry {

namespace {

Companions companions_of(const NamingOptions& naming) {
  if (naming.companion_places) return Companions::places;
  return naming.companions ? Companions::devices : Companions::unasked;
}

}  // namespace

Result<OfferRules> offer_rules(const Session& session, const NamingOptions& naming) {
  OfferRules rules{.accelerators = session.rules,
                   .domain = std::string(kResourceDomain),
                   .companions = companions_of(naming),
                   .names = {.functions = naming.name_template, .vgpus = naming.vgpu_name_template}};
  if (auto r = check_template(naming.name_template, kFunctionFields); !r) return fail(std::move(r).error());
  if (auto r = check_template(naming.vgpu_name_template, kVgpuFields); !r) return fail(std::move(r).error());
  for (const std::string& text : naming.aliases) {
    auto alias = parse_alias(text);
    if (!alias) return fail(std::move(alias).error());
    const std::string model = alias->first;
    if (!rules.names.aliases.insert(std::move(*alias)).second)
      return fail(Errc::usage, fmt::format("alias '{}': {} has another one already", text, model),
                  "name each model once");
  }
  return rules;
}

}  // namespace ferry
