// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <spdlog/spdlog.h>

#include "cli/plugin_options.h"
#include "cli/verbs.h"
#include "common/stop_on_signal.h"
#include "kubevirt-plugin/plugin.h"
#include "vgpu-dm/type_table.h"

namespace ferry {
namespace {

std::string environment_or(const char* name, std::string otherwise) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
  return value == nullptr ? std::move(otherwise) : std::string(value);
}

Result<OfferRules> rules_of(const Session& session, const ServingOptions& serving) {
  auto rules = offer_rules(session, serving.naming);
  if (!rules) return rules;
  rules->kubevirt = serving.mode != "kata";
  if (serving.mode != "kubevirt") {
    const KataRules usual;
    rules->kata = true;
    rules->kata_names = {.gpu_alias = environment_or("P_GPU_ALIAS", usual.gpu_alias),
                         .switch_alias = environment_or("NVSWITCH_ALIAS", usual.switch_alias)};
  }
  return rules;
}

// As Kubernetes' downward API says it. Empty: we are in no pod.
std::string own_pod() {
  const std::string name = environment_or("POD_NAME", {});
  const std::string name_space = environment_or("POD_NAMESPACE", {});
  return name.empty() || name_space.empty() ? std::string() : name_space + "/" + name;
}

// The kubelet's own places for the two ways in which it comes to know plugins.
std::filesystem::path directory_of(const ServingOptions& serving) {
  if (serving.kubelet_directory) return *serving.kubelet_directory;
  return serving.plugin_watcher ? "/var/lib/kubelet/plugins_registry" : "/var/lib/kubelet/device-plugins";
}

}  // namespace

Result<PluginOptions> plugin_options(const Session& session, const ServingOptions& serving) {
  auto rules = rules_of(session, serving);
  if (!rules) return fail(std::move(rules).error());
  PluginOptions options;
  options.kubelet_directory = directory_of(serving).relative_path();
  options.plugin_watcher = serving.plugin_watcher;
  options.rules = std::move(*rules);
  options.cdi_names = serving.cdi_names;
  options.holders.names = serving.name_pods;
  options.holders.own_pod = own_pod();
  options.vgpu_placement = serving.vgpu_placement == "spread" ? VgpuPlacement::spread : VgpuPlacement::pack;
  options.read_vgpus = scan_known_vgpus;
  return options;
}

bool asks_for_labels(const ServingOptions& serving) {
  constexpr std::array<std::string_view, 6> kTrue = {"1", "t", "T", "TRUE", "true", "True"};
  return serving.mode != "kubevirt" &&
         std::ranges::find(kTrue, environment_or("ENABLE_GFD", {})) != kTrue.end();
}

ExitStatus plugin_verb(const Session& session, const ServingOptions& serving) {
  const auto options = plugin_options(session, serving);
  if (!options) return complain(options.error());
  if (asks_for_labels(serving))
    spdlog::warn(
        "ENABLE_GFD: the node is not labelled by this program but by `ferry agent --feature-labels`");
  const StopOnSignal stop;
  if (auto served = run_plugin(*session.host, *options, stop.token()); !served)
    return complain(served.error());
  return ExitStatus::done;
}

}  // namespace ferry
