// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/session.h"
#include "kubevirt-plugin/offer_rules.h"

namespace ferry {

/// What resources are called, as given on the command line: to `plugin`, and to the verbs that speak of what
/// it offers and must be given the same.
struct NamingOptions {
  std::vector<std::string> aliases;  ///< MODEL=NAME
  std::string name_template = "{name}";
  std::string vgpu_name_template = "{name}";
  // One of these at most. By default companions are places (docs/adr/0032).
  bool companions = false;
  bool companion_places = false;
  bool no_companion_places = false;
};

/// What KubeVirt is offered by these names. Errc::usage: an alias that is none.
Result<OfferRules> offer_rules(const Session& session, const NamingOptions& naming);

}  // namespace ferry
