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
  const auto of_any_look = [this](CLI::Option* option) { return for_any_look_.emplace_back(option); };

  of_server(app.add_option("--node-name", options.node, "the Node that this host is; else $NODE_NAME"));
  of_server(app.add_option("--namespace", options.space,
                           "where the configurations are; else $POD_NAMESPACE, or the namespace we are in"));
  of_server(app.add_option("--config-map", options.config_maps,
                           "ConfigMaps with policies and vGPU profiles; may be repeated")
                ->capture_default_str()
                ->each([&options](const std::string&) { options.has_config_map = true; }));
  of_server(
      app.add_option(
             "--config-file", options.config_files,
             "files with the same, instead of ConfigMaps or beside those that are named; may be repeated")
          ->type_name("FILE"));
  CLI::Option* const among = of_server(
      app.add_flag("--among-others", options.among_others,
                   "NVIDIA's programs are meant to be on this node, one of whose place this takes: only "
                   "nvidia.com/vgpu.config counts, and Ferry never goes on standby"));
  CLI::Option* const space = of_server(app.add_option("--operator-namespace", options.operator_space,
                                                      "where NVIDIA's operator has its DaemonSets")
                                           ->capture_default_str());
  of_server(app.add_option("--owner-namespace", options.owner_spaces,
                           "another namespace whose DaemonSets are believed to be NVIDIA's, since tenants "
                           "cannot write to it; may be repeated")
                ->capture_default_str());
  of_server(app.add_flag("--without-operator", options.without_operator,
                         "it is not on this cluster: nobody's pods are asked for; should its labels be on "
                         "the node all the same, they count")
                ->excludes(space));
  of_server(app.add_option("--kubeconfig", options.kubeconfig,
                           "how to reach the API server; else $KUBECONFIG, the pod's own account, "
                           "~/.kube/config")
                ->type_name("FILE"));
  of_server(app.add_option("--context", options.context, "the context of that file; else its own choice"));
  CLI::Option* const workload = of_any_look(
      app.add_option("--default-workload", options.default_workload,
                     "what a node without labels is for: container, vm-passthrough, vm-vgpu; without it it "
                     "is left as it is")
          ->check(CLI::IsMember({"container", "vm-passthrough", "vm-vgpu"}))
          ->option_text("WORKLOAD"));
  of_any_look(app.add_option("--default-policy", options.default_policy, "or the policy of such a node")
                  ->excludes(workload));
  of_any_look(app.add_option("--default-vgpu-config", options.default_vgpu_config,
                             "the vGPU configuration of a node for vGPUs that names none")
                  ->capture_default_str());
  of_any_look(app.add_option("--release", options.release,
                             "host service that may be stopped for a workload's moves or a vGPU profile, "
                             "as for `ferry vfio bind`; policies have their own list; may be repeated"));
  of_server(app.add_option("--max-unavailable", options.max_unavailable,
                           "how many nodes of the cluster may change at once, by Leases in --namespace; 0 "
                           "does not count them")
                ->capture_default_str()
                ->check(CLI::Range(0, 1'000)));
  CLI::Option* const drain =
      of_server(app.add_flag("--drain", options.drain,
                             "pods that keep the GPUs from what is asked for are evicted, the node being "
                             "cordoned meanwhile; without it they are waited for"));
  among->excludes(drain);
  of_server(app.add_option("--drain-timeout", options.drain_timeout,
                           "for how long that is tried, as 90s, 10m or 1h; then they are waited for all the "
                           "same")
                ->needs(drain)
                ->option_text("DURATION [10m]"));
  CLI::Option* const features = of_any_look(
      app.add_option("--feature-labels", options.feature_labels,
                     "labels with what the node's GPUs are: none; node, which sets them; or for Node Feature "
                     "Discovery to set them: file, or nfd, an object of the cluster")
          ->check(CLI::IsMember({"none", "node", "file", "nfd"}))
          ->option_text("WAY [none]"));
  among->excludes(features);
  of_server(app.add_option("--feature-owner", options.feature_owner,
                           "for nfd: the ConfigMap in --namespace with which that object goes; else it "
                           "goes with the Node")
                ->option_text("NAME")
                ->needs(features));
  CLI::Option* const kata = of_server(
      app.add_option("--kata-classes", options.kata_classes,
                     "ConfigMap with a class file: which of Kata's runtimes this node shall have, for `ferry "
                     "hostd --kata`; what they are made of is pulled")
          ->option_text("[NAMESPACE/]NAME"));
  among->excludes(kata);
  of_server(app.add_option("--pull-secrets", options.pull_secrets,
                           "folder with the Secrets that classes name, each a folder with its keys as files")
                ->type_name("DIR")
                ->needs(kata));
  CLI::Option* const metrics = of_server(
      app.add_option("--metrics-address", options.metrics_address,
                     "where Prometheus is answered, by number: 127.0.0.1:9417, [::]:9417; not at all without")
          ->option_text("HOST:PORT"));
  of_server(
      app.add_option("--metrics-certificate", options.metrics_certificate,
                     "PEM file of the certificate that is shown there, read again when it is another; plain "
                     "HTTP without")
          ->type_name("FILE")
          ->needs(metrics));
  of_server(app.add_option("--metrics-key", options.metrics_key, "the certificate's key, likewise")
                ->type_name("FILE")
                ->needs(metrics));
  of_server(
      app.add_option("--metrics-token-file", options.metrics_token,
                     "file with the token without which nobody is shown the metrics, likewise; without TLS "
                     "on loopback addresses alone")
          ->type_name("FILE")
          ->needs(metrics));
}

std::string AgentOptionList::given_for_the_server() const {
  const auto given =
      std::ranges::find_if(for_the_server_, [](const CLI::Option* o) { return o->count() > 0; });
  return given == for_the_server_.end() ? std::string() : (*given)->get_name();
}

std::vector<std::string> AgentOptionList::words() const {
  std::vector<std::string> out;
  for (const auto* options : {&for_the_server_, &for_any_look_})
    for (const CLI::Option* option : *options) add_words(*option, out);
  return out;
}

}  // namespace ferry::agent
