// SPDX-License-Identifier: Apache-2.0
#include "agent/agent_options.h"

#include <algorithm>

#include <CLI/CLI.hpp>

namespace ferry::agent {
namespace {

void add_words(const CLI::Option& option, std::vector<std::string>& out) {
  const std::string name = option.get_name();
  for (const std::string& value : option.results()) {
    // A value may begin with a dash, so "=" joins it to its option. An empty value would be lost that way.
    if (value.empty())
      out.insert(out.end(), {name, value});
    else
      out.push_back(name + "=" + value);
  }
}

}  // namespace

BelievedOwners believed_by(const AgentProgramOptions& options) {
  BelievedOwners out{.spaces = {options.owner_spaces.begin(), options.owner_spaces.end()},
                     .operator_space = options.without_operator ? "" : options.operator_space};
  if (!out.operator_space.empty()) out.spaces.insert(out.operator_space);
  return out;
}

AgentOptionList::AgentOptionList(CLI::App& app, AgentProgramOptions& options) {
  const auto of_server = [this](CLI::Option* option) { return for_the_server_.emplace_back(option); };
  const auto of_any_mode = [this](CLI::Option* option) { return for_any_mode_.emplace_back(option); };

  of_server(app.add_option("--node-name", options.node,
                           "the name of the Node that this host is; the default is $NODE_NAME")
                ->option_text("NAME"));
  of_server(
      app.add_option("--namespace", options.space,
                     "the namespace of the ConfigMaps; the default is $POD_NAMESPACE, or the namespace in "
                     "which the agent runs")
          ->option_text("NAME"));
  of_server(app.add_option("--config-map", options.config_maps,
                           "a ConfigMap with policies and vGPU profiles; may be repeated")
                ->capture_default_str()
                ->option_text("NAME ...")
                ->each([&options](const std::string&) { options.has_config_map = true; }));
  of_server(
      app.add_option("--config-file", options.config_files,
                     "a file with policies and vGPU profiles, instead of the ConfigMap, or in addition to "
                     "those that --config-map names; may be repeated")
          ->option_text("FILE ..."));
  CLI::Option* const among =
      of_server(app.add_flag("--among-others", options.among_others,
                             "run on a node that NVIDIA's programs serve, in place of one of them: only "
                             "nvidia.com/vgpu.config counts, and the agent is never on standby"));
  CLI::Option* const space = of_server(app.add_option("--operator-namespace", options.operator_space,
                                                      "the namespace of the DaemonSets of NVIDIA's operator")
                                           ->capture_default_str()
                                           ->option_text("NAME"));
  of_server(
      app.add_option("--owner-namespace", options.owner_spaces,
                     "another namespace whose DaemonSets count as NVIDIA's; tenants must not be able to "
                     "write there; may be repeated")
          ->capture_default_str()
          ->option_text("NAME ..."));
  of_server(
      app.add_flag("--without-operator", options.without_operator,
                   "NVIDIA's operator is not on this cluster: its pods are not listed, but its labels on "
                   "the node count")
          ->excludes(space));
  of_server(
      app.add_option("--kubeconfig", options.kubeconfig,
                     "how to reach the API server; the default is $KUBECONFIG, then the pod's own account, "
                     "then ~/.kube/config")
          ->option_text("FILE"));
  of_server(app.add_option("--context", options.context,
                           "the context of that file; the default is its current context")
                ->option_text("NAME"));
  CLI::Option* const workload = of_any_mode(
      app.add_option(
             "--default-workload", options.default_workload,
             "the workload of a node without labels: container, vm-passthrough or vm-vgpu; without it "
             "the GPUs of such a node stay as they are")
          ->check(CLI::IsMember({"container", "vm-passthrough", "vm-vgpu"}))
          ->option_text("WORKLOAD"));
  of_any_mode(app.add_option("--default-policy", options.default_policy,
                             "the policy of a node without labels, instead of a workload")
                  ->excludes(workload)
                  ->option_text("NAME"));
  of_any_mode(app.add_option("--default-vgpu-config", options.default_vgpu_config,
                             "the vGPU profile of a vGPU node without a label for one")
                  ->capture_default_str()
                  ->option_text("NAME"));
  of_any_mode(
      app.add_option("--release", options.release,
                     "a service of the host that may be stopped during a change for a workload or a vGPU "
                     "profile, as for `ferry vfio bind`; policies have their own list; may be repeated")
          ->option_text("NAME ..."));
  of_server(app.add_option("--max-unavailable", options.max_unavailable,
                           "how many nodes of the cluster may change at the same time; 0 means no limit")
                ->capture_default_str()
                ->check(CLI::Range(0, 1'000))
                ->option_text("COUNT"));
  CLI::Option* const drain =
      of_server(app.add_flag("--drain", options.drain,
                             "cordon the node and evict pods whose GPUs have to change; without it the agent "
                             "waits until these pods end"));
  among->excludes(drain);
  of_server(app.add_option("--drain-timeout", options.drain_timeout,
                           "the time after which the agent stops evicting and only waits: 90s, 10m or 1h")
                ->needs(drain)
                ->option_text("DURATION [10m]"));
  CLI::Option* const features = of_any_mode(
      app.add_option(
             "--feature-labels", options.feature_labels,
             "how labels describe the GPUs of the node: none; node (the agent sets them); file or nfd "
             "(Node Feature Discovery sets them, from a file or a NodeFeature object)")
          ->check(CLI::IsMember({"none", "node", "file", "nfd"}))
          ->option_text("WAY [none]"));
  among->excludes(features);
  of_server(app.add_option("--feature-owner", options.feature_owner,
                           "for nfd: the ConfigMap in --namespace that owns the NodeFeature object, which is "
                           "deleted together with it; the default is the Node")
                ->option_text("NAME")
                ->needs(features));
  CLI::Option* const kata = of_server(
      app.add_option(
             "--kata-classes", options.kata_classes,
             "the ConfigMap with the class file of the Kata runtimes: the agent pulls their artifacts, "
             "and `ferry hostd --kata` installs them")
          ->option_text("[NAMESPACE/]NAME"));
  among->excludes(kata);
  of_server(
      app.add_option("--pull-secrets", options.pull_secrets,
                     "the folder with the Secrets that the classes name, each a folder with its keys as "
                     "files")
          ->option_text("DIR")
          ->needs(kata));
  CLI::Option* const metrics = of_server(
      app.add_option(
             "--metrics-address", options.metrics_address,
             "the numeric address of the metrics for Prometheus, such as 127.0.0.1:9417 or [::]:9417; "
             "without it there are none")
          ->option_text("HOST:PORT"));
  of_server(
      app.add_option("--metrics-certificate", options.metrics_certificate,
                     "the PEM file with the certificate of the metrics, which is read again when it changes; "
                     "without it they are served by plain HTTP")
          ->option_text("FILE")
          ->needs(metrics));
  of_server(
      app.add_option("--metrics-key", options.metrics_key, "the PEM file with the key of the certificate")
          ->option_text("FILE")
          ->needs(metrics));
  of_server(
      app.add_option("--metrics-token-file", options.metrics_token,
                     "the file with the token that a request for metrics must send; without TLS only on "
                     "loopback addresses")
          ->option_text("FILE")
          ->needs(metrics));
}

std::string AgentOptionList::given_for_the_server() const {
  const auto given =
      std::ranges::find_if(for_the_server_, [](const CLI::Option* o) { return o->count() > 0; });
  return given == for_the_server_.end() ? std::string() : (*given)->get_name();
}

std::vector<std::string> AgentOptionList::words() const {
  std::vector<std::string> out;
  for (const auto* options : {&for_the_server_, &for_any_mode_})
    for (const CLI::Option* option : *options) add_words(*option, out);
  return out;
}

}  // namespace ferry::agent
