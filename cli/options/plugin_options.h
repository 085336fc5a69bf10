// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/session.h"
#include "cli/verbs/verbs.h"
#include "common/result.h"
#include "kubevirt-plugin/discovery/resource_rules.h"
#include "kubevirt-plugin/plugin.h"

namespace CLI {
class App;
}

namespace ferry::cli {

/// The rules of the resources for KubeVirt. Errc::usage: an alias is malformed.
Result<plugin::ResourceRules> resource_rules(const Session& session, const NamingOptions& naming);

/// Adds the options that name resources, the same for all verbs about the plugin's resources. Parsing the
/// command line writes `naming`.
void add_naming_options(CLI::App& verb, NamingOptions& naming);
/// Adds the options of `ferry plugin` and the naming options. Parsing the command line writes `options`.
void add_plugin_options(CLI::App& verb, PluginVerbOptions& options);

/// The settings of `ferry plugin` from the command line and the environment (plugin_verb()). Errc::usage: an
/// alias or a template is wrong.
Result<plugin::PluginOptions> plugin_options(const Session& session, const PluginVerbOptions& options);

/// True: NVIDIA's plugin for Kata would label the node with this environment. ENABLE_GFD is true in any
/// spelling that Go reads as true (strconv.ParseBool).
bool asks_for_labels(const PluginVerbOptions& options);

}  // namespace ferry::cli
