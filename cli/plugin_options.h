// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/verbs.h"
#include "common/result.h"
#include "kubevirt-plugin/plugin.h"

namespace CLI {
class App;
}

namespace ferry {

/// How resources are called, the same for all verbs that speak of the plugin's. `naming` is written when the
/// command line is parsed.
void add_naming_options(CLI::App& verb, NamingOptions& naming);
/// Those of `ferry plugin`, with the ones above. `serving` is written when the command line is parsed.
void add_plugin_options(CLI::App& verb, ServingOptions& serving);

/// What `ferry plugin` runs with, by the command line and the environment (plugin_verb()). Errors:
/// Errc::usage, by an alias or a template.
Result<PluginOptions> plugin_options(const Session& session, const ServingOptions& serving);

/// Whether NVIDIA's plugin for Kata would label the node by the same environment: ENABLE_GFD is true, in any
/// of the ways in which Go reads it (strconv.ParseBool).
bool asks_for_labels(const ServingOptions& serving);

}  // namespace ferry
