// SPDX-License-Identifier: Apache-2.0
#include "agent/agent_options.h"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace ferry::agent {

BelievedOwners believed_by(const AgentProgramOptions& options) {
  return believed_owners(options.owner_spaces, options.without_operator ? "" : options.operator_space);
}

AgentOptionList::AgentOptionList(CLI::App& app, AgentProgramOptions& options) {
  const auto of_server = [&](const char* name, auto& into, const char* word, const char* help) {
    return for_the_server_.emplace_back(app.add_option(name, into, help)->option_text(word));
  };
  const auto of_any_mode = [&](const char* name, auto& into, const char* word, const char* help) {
    return for_any_mode_.emplace_back(app.add_option(name, into, help)->option_text(word));
  };
  const auto flag = [&](const char* name, bool& into, const char* help) {
    return for_the_server_.emplace_back(app.add_flag(name, into, help));
  };

  of_server("--node-name", options.node, "NAME",
            "the name of the Node that this host is; the default is $NODE_NAME");
  of_server("--namespace", options.space, "NAME",
            "the namespace of the ConfigMaps; the default is $POD_NAMESPACE, or the namespace in which the "
            "agent runs");
  of_server("--config-map", options.config_maps, "NAME ...",
            "a ConfigMap with policies and vGPU profiles; may be repeated")
      ->capture_default_str()
      ->each([&options](const std::string&) { options.has_config_map = true; });
  of_server("--config-file", options.config_files, "FILE ...",
            "a file with policies and vGPU profiles, instead of the ConfigMap, or in addition to those that "
            "--config-map names; may be repeated");
  CLI::Option* const among =
      flag("--among-others", options.among_others,
           "run on a node that NVIDIA's programs serve, in place of one of them: only nvidia.com/vgpu.config "
           "counts, and the agent is never on standby");
  CLI::Option* const space = of_server("--operator-namespace", options.operator_space, "NAME",
                                       "the namespace of the DaemonSets of NVIDIA's operator")
                                 ->capture_default_str();
  of_server("--owner-namespace", options.owner_spaces, "NAME ...",
            "another namespace whose DaemonSets count as NVIDIA's; tenants must not be able to write there; "
            "may be repeated")
      ->capture_default_str();
  flag("--without-operator", options.without_operator,
       "NVIDIA's operator is not on this cluster: its pods are not listed, but its labels on the node count")
      ->excludes(space);
  of_server("--kubeconfig", options.kubeconfig, "FILE",
            "how to reach the API server; the default is $KUBECONFIG, then the pod's own account, then "
            "~/.kube/config");
  of_server("--context", options.context, "NAME",
            "the context of that file; the default is its current context");
  CLI::Option* const workload =
      of_any_mode("--default-workload", options.default_workload, "WORKLOAD",
                  "the workload of a node without labels: container, vm-passthrough or vm-vgpu; without it "
                  "the GPUs of such a node stay as they are")
          ->check(CLI::IsMember({"container", "vm-passthrough", "vm-vgpu"}));
  of_any_mode("--default-policy", options.default_policy, "NAME",
              "the policy of a node without labels, instead of a workload")
      ->excludes(workload);
  of_any_mode("--default-vgpu-config", options.default_vgpu_config, "NAME",
              "the vGPU profile of a vGPU node without a label for one")
      ->capture_default_str();
  of_any_mode("--release", options.release, "NAME ...",
              "a service of the host that may be stopped during a change for a workload or a vGPU profile, "
              "as for `ferry vfio bind`; policies have their own list; may be repeated");
  of_server("--max-unavailable", options.max_unavailable, "COUNT",
            "how many nodes of the cluster may change at the same time; 0 means no limit")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000));
  CLI::Option* const drain = flag("--drain", options.drain,
                                  "cordon the node and evict pods whose GPUs have to change; without it the "
                                  "agent waits until these pods end");
  among->excludes(drain);
  of_server("--drain-timeout", options.drain_timeout, "DURATION [10m]",
            "the time after which the agent stops evicting and only waits: 90s, 10m or 1h")
      ->needs(drain);
  CLI::Option* const features =
      of_any_mode("--feature-labels", options.feature_labels, "WAY [none]",
                  "how labels describe the GPUs of the node: none; node (the agent sets them); nfd (Node "
                  "Feature Discovery sets them, from a NodeFeature object)")
          ->check([](const std::string& way) {
            return std::string(
                way == "file" ? "there is no way file: with nfd Node Feature Discovery sets the labels" : "");
          })
          ->check(CLI::IsMember({"none", "node", "nfd"}));
  among->excludes(features);
  for_any_mode_
      .emplace_back(app.add_flag(
          "--not-confidential", options.not_confidential,
          "declare that no GPU of the node is in confidential mode: the feature labels then have "
          "nvidia.com/cc.ready.state=false on Hopper and newer, too"))
      ->needs(features);
  CLI::Option* const cc_mode = for_any_mode_.emplace_back(app.add_flag(
      "--set-cc-mode", options.sets_cc_mode,
      "pass on the confidential mode that the label nvidia.com/cc.mode asks for; hostd needs the "
      "same option"));
  among->excludes(cc_mode);
  of_server("--feature-owner", options.feature_owner, "NAME",
            "for nfd: the ConfigMap in --namespace that owns the NodeFeature object, which is deleted "
            "together with it; the default is the Node")
      ->needs(features);
  CLI::Option* const kata =
      of_server("--kata-classes", options.kata_classes, "[NAMESPACE/]NAME",
                "the ConfigMap with the class file of the Kata runtimes: the agent pulls their artifacts, "
                "and `ferry hostd --kata` installs them");
  among->excludes(kata);
  of_server("--pull-secrets", options.pull_secrets, "DIR",
            "the folder with the Secrets that the classes name, each a folder with its keys as files")
      ->needs(kata);
  CLI::Option* const metrics =
      of_server("--metrics-address", options.metrics_address, "HOST:PORT",
                "the numeric address of the metrics for Prometheus, such as 127.0.0.1:9417 or [::]:9417; "
                "without it there are none");
  of_server("--metrics-certificate", options.metrics_certificate, "FILE",
            "the PEM file with the certificate of the metrics, which is read again when it changes; without "
            "it they are served by plain HTTP")
      ->needs(metrics);
  of_server("--metrics-key", options.metrics_key, "FILE", "the PEM file with the key of the certificate")
      ->needs(metrics);
  of_server("--metrics-token-file", options.metrics_token, "FILE",
            "the file with the token that a request for metrics must send; without TLS only on loopback "
            "addresses")
      ->needs(metrics);
}

std::string AgentOptionList::given_for_the_server() const {
  const auto given =
      std::ranges::find_if(for_the_server_, [](const CLI::Option* o) { return o->count() > 0; });
  return given == for_the_server_.end() ? std::string() : (*given)->get_name();
}

std::vector<std::string> AgentOptionList::words() const {
  std::vector<const CLI::Option*> options(for_the_server_.begin(), for_the_server_.end());
  options.insert(options.end(), for_any_mode_.begin(), for_any_mode_.end());
  std::vector<std::string> out;
  for (const CLI::Option* option : options) {
    for (const std::string& value : option->results()) {
      // A value may begin with a dash, so "=" joins it to its option. An empty value would be lost that way.
      if (value.empty())
        out.insert(out.end(), {option->get_name(), value});
      else
        out.push_back(fmt::format("{}={}", option->get_name(), value));
    }
  }
  return out;
}

}  // namespace ferry::agent
