// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/class_file.h"

namespace ferry {

/// The program that runs a class's VMs: the one that the class names, or the first of those that Kata's
/// installers and distributions put there (/opt/kata, /usr/local/bin, /usr/bin). A path of the host's.
/// Errc::not_found: there is none.
Result<std::filesystem::path> find_kata_shim(const HostFs& host, const KataClass& kata);

}  // namespace ferry
