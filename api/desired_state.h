// SPDX-License-Identifier: Apache-2.0
// The desired state of a node (kDesiredFile). The agent writes it, or a person on a host without
// Kubernetes, and it is replaced atomically. It survives a reboot, so that a node reaches the state without
// the agent.
//
//   {"version": 2, "generation": 12, "policy": "NAME",
//    "config": "version: v2\npolicies: ...",       the text of a policy file (v2) or vGPU profile (v1), or
//    "file": "/etc/ferry/policy.yaml",             the path of one, below the host's /etc/ferry
//    "source": "label gpu-ferry.io/policy=NAME",
//    "cc_mode": "on"}                              or "off" or "devtools"
//
// `generation`, `source` and `cc_mode` are optional. The reader is strict: unknown and repeated keys are
// errors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/config/config_tree.h"
#include "common/result.h"
#include "vfio/registers/register_facts.h"

namespace ferry::api {

struct DesiredFile {
  std::optional<std::uint64_t> generation;  ///< the writer's own counter, copied to status.json
  std::string policy;                       ///< the policy of the configuration that applies
  ConfigText config = {};                   ///< the configuration itself
  std::filesystem::path file = {};          ///< or the absolute path of its file on the host; empty: `config`
  std::string source = {};                  ///< the source of the desired state, for people; empty: not given
  /// The confidential mode of the GPUs. Never ppcie. Absent: it stays as it is.
  std::optional<vfio::WantedMode> cc_mode = {};
  bool operator==(const DesiredFile&) const = default;
};

/// Errc::invalid_config: "file:line: key: error". The configuration is only checked to be a text.
Result<DesiredFile> read_desired_file(const ConfigText& source);

/// The text of such a file, for read_desired_file(). UTF-8; invalid bytes are replaced.
std::string desired_file_text(const DesiredFile& desired);

}  // namespace ferry::api
