// SPDX-License-Identifier: Apache-2.0
// The configuration for a trial start of containerd (restart_check.h).
#pragma once

#include <filesystem>

#include "hostfs/host_fs.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// Turns the output of `config dump` into a configuration that touches nothing outside `folder`, a path as
/// the program sees it. Whatever the program cannot have on this host stays as it is, so that the program
/// says why.
TomlTable kept_apart(const HostFs& host, TomlTable dump, const std::filesystem::path& folder);

}  // namespace ferry::kata
