// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/session.h"
#include "common/result.h"
#include "kubevirt-plugin/discovery/resource_rules.h"

namespace CLI {
class App;
}

namespace ferry::plugin {
struct PluginOptions;
}

namespace ferry::cli {

/// The options that name resources. `plugin` takes them, and the verbs about its resources must get the same.
struct NamingOptions {
  std::vector<std::string> aliases;  ///< MODEL=NAME
  std::string name_template = "{name}";
  std::string vgpu_name_template = "{name}";
  plugin::Companions companions = plugin::Companions::places;  ///< docs/adr/0032
};

/// The options of `ferry plugin`.
struct PluginVerbOptions {
  std::optional<std::filesystem::path> kubelet_directory;  ///< absent: the kubelet's usual one
  bool plugin_watcher = false;    ///< the kubelet's plugin watcher watches the directory
  std::string mode = "kubevirt";  ///< kubevirt, kata, both
  NamingOptions naming;
  std::string vgpu_placement = "pack";  ///< pack, spread
  bool cdi_names = false;
  bool name_pods = false;  ///< PodResourcesMonitor::Settings::names
};

/// The rules of the resources for KubeVirt. Errc::usage: an alias is malformed.
Result<plugin::ResourceRules> resource_rules(const Session& session, const NamingOptions& naming);

/// Adds the options for the names of whole GPUs and vGPUs.
void add_name_options(CLI::App& verb, NamingOptions& naming);
/// Adds all options that name resources, the same for all verbs about the plugin's resources. Parsing the
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
