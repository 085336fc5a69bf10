// SPDX-License-Identifier: Apache-2.0
// What ferry-agent is told on its command line. `ferry agent` takes the same and hands it on, so that this is
// the only list.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/two_owners.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ferry {

struct AgentProgramOptions {
  std::string node;   ///< empty: nobody has said which Node this is
  std::string space;  ///< of the configurations; empty: the one that the way to the API server has
  std::vector<std::string> config_maps = {"ferry"};
  bool has_config_map = false;  ///< one is named
  std::vector<std::filesystem::path> config_files;
  bool among_others = false;  ///< NodeAgent::Settings::among_others
  std::string operator_space = "gpu-operator";
  bool without_operator = false;
  std::vector<std::string> owner_spaces;  ///< NodeAgent::Settings::owner_spaces
  std::filesystem::path kubeconfig;       ///< with `context`: AccessChoice
  std::string context;
  std::string default_workload;  ///< empty: none
  std::optional<std::string> default_policy;
  std::string default_vgpu_config = "default";
  std::vector<std::string> release;  ///< for moves of a workload: release_list()
  std::size_t max_unavailable = 1;
  bool drain = false;
  std::string drain_timeout = "10m";    ///< as it was written
  std::string feature_labels = "none";  ///< a FeatureWay
  std::string feature_owner;            ///< NodeAgent::Settings::feature_owner
  std::string kata_classes;             ///< "NAMESPACE/NAME", or "NAME" in `space`; empty: none
  std::filesystem::path pull_secrets;   ///< PullCredentials::secrets; empty: there is none
  std::string metrics_address;          ///< empty: none are shown
  std::filesystem::path metrics_certificate;
  std::filesystem::path metrics_key;
  std::filesystem::path metrics_token;
  bool operator==(const AgentProgramOptions&) const = default;
};

/// The DaemonSets that an agent with these options believes, before it has listed any.
BelievedOwners believed_by(const AgentProgramOptions& options);

/// These options as part of a command line. Not with them: --host-root and how it logs, which each program
/// has its own way.
class AgentOptionList {
 public:
  /// Both must outlive the parsing.
  AgentOptionList(CLI::App& app, AgentProgramOptions& options);

  // Of what was parsed:

  /// The first that makes sense only where an API server is spoken to, as "--drain"; empty: none was given.
  std::string given_for_the_server() const;

  /// What was given, as words that another program with this list understands the same way.
  std::vector<std::string> words() const;

 private:
  std::vector<CLI::Option*> for_the_server_;
  std::vector<CLI::Option*> for_any_look_;
};

}  // namespace ferry
