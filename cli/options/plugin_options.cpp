// SPDX-License-Identifier: Apache-2.0
#include "cli/options/plugin_options.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/options/value_option.h"
#include "kubevirt-plugin/discovery/resource_assembly.h"
#include "kubevirt-plugin/discovery/resource_name.h"
#include "kubevirt-plugin/discovery/resource_rules.h"
#include "kubevirt-plugin/plugin.h"
#include "policy/accelerators.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::cli {
namespace {

/// Fails if the kubelet would take no resource of that name.
Result<> check_part(const std::string& part, const std::string& option) {
  const auto name = plugin::ResourceName::parse(fmt::format("{}/{}", policy::kResourceDomain, part));
  if (name) return {};
  return fail(
      Errc::usage, fmt::format("{}: {}", option, name.error().message),
      "a name has at most 63 letters, digits, '-', '_' and '.', and begins and ends with a letter or digit");
}

/// Fails if the template makes an invalid name of a usual one.
Result<> check_filled(const std::string& text, std::span<const std::string_view> fields, const char* option) {
  if (auto r = plugin::check_template(text, fields); !r) return r;
  const std::string filled =
      plugin::fill_template(text, {{"name", "GPU"}, {"vendor", "10de"}, {"device", "2330"}});
  return check_part(filled, fmt::format("{} '{}'", option, text));
}

}  // namespace

Result<plugin::ResourceRules> resource_rules(const Session& session, const NamingOptions& naming) {
  plugin::ResourceRules rules{
      .accelerators = session.rules,
      .domain = std::string(policy::kResourceDomain),
      .companions = naming.companions,
      .names = {.functions = naming.name_template, .vgpus = naming.vgpu_name_template}};
  if (auto r = check_filled(naming.name_template, plugin::kFunctionFields, "--name-template"); !r)
    return fail(std::move(r).error());
  if (auto r = check_filled(naming.vgpu_name_template, plugin::kVgpuFields, "--vgpu-name-template"); !r)
    return fail(std::move(r).error());
  for (const policy::NamedVendor& vendor : policy::named_vendors())
    rules.domains.emplace(vendor.id, fmt::format("{}.com", vendor.name));
  for (const std::string& text : naming.aliases) {
    auto alias = plugin::parse_alias(text);
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

namespace {

std::string environment_or(const char* name, std::string otherwise) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
  return value == nullptr ? std::move(otherwise) : std::string(value);
}

// NAMESPACE/NAME by Kubernetes' downward API. Empty: this process is in no pod.
std::string own_pod() {
  const std::string name = environment_or("POD_NAME", {});
  const std::string name_space = environment_or("POD_NAMESPACE", {});
  return name.empty() || name_space.empty() ? std::string() : name_space + "/" + name;
}

constexpr const char* kGroup = "Resources";

}  // namespace

Result<plugin::PluginOptions> plugin_options(const Session& session, const PluginVerbOptions& options) {
  auto rules = resource_rules(session, options.naming);
  if (!rules) return fail(std::move(rules).error());
  rules->kubevirt = options.mode != "kata";
  if (options.mode != "kubevirt") {
    const plugin::KataRules usual;
    rules->kata = true;
    rules->kata_names = {.gpu_alias = environment_or("P_GPU_ALIAS", usual.gpu_alias),
                         .switch_alias = environment_or("NVSWITCH_ALIAS", usual.switch_alias)};
  }

  plugin::PluginOptions out;
  // The kubelet's own directories for its two ways to find plugins.
  const std::filesystem::path usual =
      options.plugin_watcher ? "/var/lib/kubelet/plugins_registry" : "/var/lib/kubelet/device-plugins";
  out.kubelet_directory = options.kubelet_directory.value_or(usual).relative_path();
  out.plugin_watcher = options.plugin_watcher;
  out.rules = std::move(*rules);
  out.cdi_names = options.cdi_names;
  out.pod_resources.names = options.name_pods;
  out.pod_resources.own_pod = own_pod();
  out.vgpu_placement =
      options.vgpu_placement == "spread" ? plugin::VgpuPlacement::spread : plugin::VgpuPlacement::pack;
  out.read_vgpus = vgpu::scan_known_vgpus;
  return out;
}

bool asks_for_labels(const PluginVerbOptions& options) {
  constexpr std::array<std::string_view, 6> kTrue = {"1", "t", "T", "TRUE", "true", "True"};
  return options.mode != "kubevirt" &&
         std::ranges::find(kTrue, environment_or("ENABLE_GFD", {})) != kTrue.end();
}

void add_name_options(CLI::App& verb, NamingOptions& naming) {
  add_value(verb, "--alias MODEL=NAME ...", naming.aliases,
            "the name of the resource for a model, such as 10de:2330=h100 or 'NVIDIA A40-8Q=small'; may be "
            "repeated")
      ->group(kGroup);
  add_value(verb, "--name-template TEMPLATE", naming.name_template,
            "the name of whole GPUs; {name}, {vendor} and {device} are replaced")
      ->capture_default_str()
      ->group(kGroup);
  add_value(verb, "--vgpu-name-template TEMPLATE", naming.vgpu_name_template,
            "the name of vGPUs; {name} is replaced")
      ->capture_default_str()
      ->group(kGroup);
}

void add_naming_options(CLI::App& verb, NamingOptions& naming) {
  add_name_options(verb, naming);
  const auto set_to = [&naming](plugin::Companions companions) {
    return [&naming, companions] { naming.companions = companions; };
  };
  CLI::Option* apart =
      verb.add_flag_callback("--companions", set_to(plugin::Companions::devices),
                             "advertise the audio and other functions of a GPU as resources, too: a pod "
                             "gets either them or the GPU")
          ->group(kGroup);
  CLI::Option* places =
      verb.add_flag_callback(
              "--companion-places", set_to(plugin::Companions::places),
              "let a pod ask KubeVirt for such functions together with GPUs: it gets those of its own GPUs "
              "(this is the default)")
          ->excludes(apart)
          ->group(kGroup);
  verb.add_flag_callback(
          "--no-companion-places", set_to(plugin::Companions::unasked),
          "advertise whole GPUs alone: their audio functions go with them, but a VM cannot ask for them")
      ->excludes(apart)
      ->excludes(places)
      ->group(kGroup);
}

void add_plugin_options(CLI::App& verb, PluginVerbOptions& options) {
  add_value(verb, "--kubelet-directory DIR [/var/lib/kubelet/device-plugins]", options.kubelet_directory,
            "the kubelet's directory for plugins");
  verb.add_flag("--plugin-watcher", options.plugin_watcher,
                "let the kubelet find the plugin in its registration directory; the default of "
                "--kubelet-directory is then /var/lib/kubelet/plugins_registry");
  add_value(verb, "--mode MODE [kubevirt]", options.mode,
            "the users of the resources: kubevirt, kata or both; P_GPU_ALIAS and NVSWITCH_ALIAS name "
            "Kata's resources")
      ->check(CLI::IsMember({"kubevirt", "kata", "both"}));
  add_naming_options(verb, options.naming);
  add_value(
      verb, "--vgpu-placement HOW [pack]", options.vgpu_placement,
      "the order in which vGPUs are allocated: pack prefers few GPUs, spread spreads them over all GPUs")
      ->check(CLI::IsMember({"pack", "spread"}));
  verb.add_flag(
      "--name-pods", options.name_pods,
      "write the pods of all allocations to advertised.json; while a device is allocated, the plugin "
      "then asks the kubelet every 10 seconds");
  verb.add_flag("--cdi-names", options.cdi_names,
                "answer an allocation for Kata with CDI names instead of device nodes");
}

}  // namespace ferry::cli
