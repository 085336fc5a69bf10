// SPDX-License-Identifier: Apache-2.0
// What a node is told to be: var/lib/ferry/wanted.json, written by the agent, or by a person on a host
// without Kubernetes, and replaced atomically. It outlives a reboot, so that a node comes up right with
// nobody there to tell it.
//
//   {"version": 1, "generation": 12, "policy": "NAME",
//    "config": "version: v2\npolicies: ...",       the text of a policy file (v2) or vGPU profile (v1), or
//    "file": "/etc/ferry/policy.yaml",             the path of one, below the host's /etc/ferry
//    "asked_by": "label gpu-ferry.io/policy=NAME"}
//
// `generation` and `asked_by` may be left out. Strict: unknown keys and keys that stand twice are refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/config_reader.h"
#include "common/config_tree.h"
#include "common/host_fs.h"
#include "common/result.h"
#include "policy/policy.h"

namespace ferry {

struct WantedFile {
  std::optional<std::uint64_t> generation;  ///< the writer's own count, handed on to state.json
  std::string policy;                       ///< the one of the configuration's that shall hold
  /// The configuration itself, or the path of its file, absolute on the host.
  std::variant<ConfigText, std::filesystem::path> config;
  std::string asked_by;  ///< for people; empty: not said
};

/// Errc::invalid_config: "file:line: key: what". Of the configuration only that it is a text.
Result<WantedFile> read_wanted_file(const ConfigText& source);

/// The text of such a file, as read_wanted_file() takes it. UTF-8; a byte that is none is replaced.
std::string wanted_file_text(const WantedFile& wanted);

/// All that is wanted of a node.
struct Wanted {
  WantedFile file;
  Policy policy;
  /// Everything that was read: another text is another wish.
  std::string text;
  /// The file that is named was written to a moment ago, or while it was read: somebody may be writing into
  /// it still, and the beginning of a policy file is one too. To be read again in a moment.
  bool settling = false;
  std::vector<std::string> warnings = {};  ///< PolicyFile::warnings
};

/// Reads the file, relative to the host's root, and the configuration that it carries or names, a ConfigMap's
/// too. Absent where there is no such file: nothing is wanted. Errc::invalid_config as "file:line", lines of
/// a carried text counted in it. The file itself is read strictly, the configuration as `how` says.
Result<std::optional<Wanted>> read_wanted(const HostFs& host, const std::filesystem::path& file,
                                          Reading how = Reading::strict);

/// The file that is named in it; absent: none, or it cannot be told.
std::optional<std::filesystem::path> named_file(const HostFs& host, const std::filesystem::path& file);

}  // namespace ferry
