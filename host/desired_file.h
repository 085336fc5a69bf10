// SPDX-License-Identifier: Apache-2.0
// The desired state of a node, var/lib/ferry/desired.json. The agent writes it, or a person on a host without
// Kubernetes, and it is replaced atomically. It survives a reboot, so that a node reaches the state without
// the agent.
//
//   {"version": 2, "generation": 12, "policy": "NAME",
//    "config": "version: v2\npolicies: ...",       the text of a policy file (v2) or vGPU profile (v1), or
//    "file": "/etc/ferry/policy.yaml",             the path of one, below the host's /etc/ferry
//    "source": "label gpu-ferry.io/policy=NAME"}
//
// `generation` and `source` are optional. The reader is strict: unknown and repeated keys are errors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/config/config_reader.h"
#include "common/config/config_tree.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "policy/policy.h"

namespace ferry::host {

struct DesiredFile {
  std::optional<std::uint64_t> generation;  ///< the writer's own counter, copied to status.json
  std::string policy;                       ///< the policy of the configuration that applies
  /// The configuration itself, or the absolute path of its file on the host.
  std::variant<ConfigText, std::filesystem::path> config;
  std::string source;  ///< the source of the desired state, for people; empty: not given
};

/// Errc::invalid_config: "file:line: key: error". The configuration is only checked to be a text.
Result<DesiredFile> read_desired_file(const ConfigText& source);

/// The text of such a file, for read_desired_file(). UTF-8; invalid bytes are replaced.
std::string desired_file_text(const DesiredFile& desired);

/// The complete desired state of a node.
struct DesiredState {
  DesiredFile file;
  policy::Policy policy;
  /// The complete text that was read; another text is another desired state.
  std::string text;
  /// The named file was written less than a second ago, or during the read, so it may be incomplete; even its
  /// beginning may be a valid policy file. The caller reads it again soon.
  bool settling = false;
  std::vector<std::string> warnings = {};  ///< PolicyFile::warnings
};

/// Reads the file, relative to the host's root, and the configuration that it carries or names, even a
/// ConfigMap. Absent: no such file, so no desired state. Errc::invalid_config: "file:line"; lines of a
/// carried text count in it. The file itself is read strictly, the configuration according to `how`.
Result<std::optional<DesiredState>> read_desired(const HostFs& host, const std::filesystem::path& file,
                                                 Reading how = Reading::strict);

/// The configuration file that `file` names; absent: none, or `file` cannot be read.
std::optional<std::filesystem::path> named_file(const HostFs& host, const std::filesystem::path& file);

}  // namespace ferry::host
