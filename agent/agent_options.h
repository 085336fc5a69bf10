// SPDX-License-Identifier: Apache-2.0
// The options of ferry-agent's command line. `ferry agent` parses the same list and passes it on, so there is
// no second list.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/operator_compat/two_owners.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ferry::agent {

struct AgentProgramOptions {
  std::string node;   ///< the Node's name; empty: not given
  std::string space;  ///< namespace of the configurations; empty: that of the API access
  std::vector<std::string> config_maps = {"ferry"};
  bool has_config_map = false;  ///< --config-map was given
  std::vector<std::filesystem::path> config_files;
  bool among_others = false;  ///< AgentSettings::among_others
  std::string operator_space = "gpu-operator";
  bool without_operator = false;
  std::vector<std::string> owner_spaces;  ///< AgentSettings::owner_spaces
  std::filesystem::path kubeconfig;       ///< AccessChoice::kubeconfig
  std::string context;
  std::string default_workload;  ///< empty: none
  std::optional<std::string> default_policy;
  std::string default_vgpu_config = "default";
  std::vector<std::string> release;  ///< services that a workload's change may stop: release_list()
  std::size_t max_unavailable = 1;
  bool drain = false;
  std::string drain_timeout = "10m";    ///< as written on the command line
  std::string feature_labels = "none";  ///< word of a FeatureWay
  bool not_confidential = false;        ///< feature_labels()
  bool sets_cc_mode = false;            ///< AgentSettings::sets_cc_mode
  std::string feature_owner;            ///< AgentSettings::feature_owner
  std::string kata_classes;             ///< "NAMESPACE/NAME", or "NAME" in `space`; empty: none
  std::filesystem::path pull_secrets;   ///< PullCredentials::secrets; empty: no folder
  std::string metrics_address;          ///< empty: no metrics are served
  std::filesystem::path metrics_certificate;
  std::filesystem::path metrics_key;
  std::filesystem::path metrics_token;
  bool operator==(const AgentProgramOptions&) const = default;
};

/// Namespaces that an agent with these options trusts, before it has listed the operator's DaemonSets.
BelievedOwners believed_by(const AgentProgramOptions& options);

/// The agent's options as part of a command line. --host-root and the log options are not among them: each
/// program has its own.
class AgentOptionList {
 public:
  /// `app` and `options` must outlive the parsing.
  AgentOptionList(CLI::App& app, AgentProgramOptions& options);

  // Call this after the parsing:

  /// The first given option that needs an API server, as in "--drain"; empty: none was given.
  std::string given_for_the_server() const;

  /// The given options, as words for the command line of another program with this list.
  std::vector<std::string> words() const;

 private:
  std::vector<CLI::Option*> for_the_server_;
  std::vector<CLI::Option*> for_any_mode_;
};

}  // namespace ferry::agent
