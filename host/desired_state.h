// SPDX-License-Identifier: Apache-2.0
// The desired state of a node, from desired.json (api/desired_state.h) and the configuration that it has or
// names.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "api/desired_state.h"
#include "common/config/config_reader.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "policy/policy.h"

namespace ferry::host {

/// The complete desired state of a node.
struct DesiredState {
  api::DesiredFile file;
  policy::Policy policy;
  /// The complete text that was read; another text is another desired state.
  std::string text;
  /// The named file was written less than a second ago, or during the read. Even its beginning may be a valid
  /// policy file. The caller reads it again soon.
  bool may_be_incomplete = false;
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
