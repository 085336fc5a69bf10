// SPDX-License-Identifier: Apache-2.0
#include "cli/naming_options.h"

#include <utility>

#include "policy/accelerators.h"

namespace ferry {

Result<OfferRules> offer_rules(const Session& session, const NamingOptions& naming) {
  OfferRules rules{.accelerators = session.rules,
                   .domain = std::string(kResourceDomain),
                   .companions = naming.companions,
                   .names = {.functions = naming.name_template, .vgpus = naming.vgpu_name_template}};
  for (const std::string& text : naming.aliases) {
    auto alias = parse_alias(text);
    if (!alias) return fail(std::move(alias).error());
    rules.names.aliases.insert(std::move(*alias));
  }
  return rules;
}

}  // namespace ferry
