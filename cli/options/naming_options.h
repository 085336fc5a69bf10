// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/session.h"
#include "kubevirt-plugin/discovery/offer_rules.h"

namespace ferry::cli {

/// The options that name resources. `plugin` takes them, and the verbs about its resources must get the same.
struct NamingOptions {
  std::vector<std::string> aliases;  ///< MODEL=NAME
  std::string name_template = "{name}";
  std::string vgpu_name_template = "{name}";
  // At most one of these is true. By default companions are places (docs/adr/0032).
  bool companions = false;
  bool companion_places = false;
  bool no_companion_places = false;
};

/// The rules of the resources for KubeVirt. Errc::usage: an alias is malformed.
Result<plugin::OfferRules> offer_rules(const Session& session, const NamingOptions& naming);

}  // namespace ferry::cli
