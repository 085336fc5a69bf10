// SPDX-License-Identifier: Apache-2.0
// What earlier fetches of a class's artifact have left behind goes when nobody can use it any more.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/class_file.h"
#include "kata-manager/container_runtime.h"

namespace ferry {

/// The folders that are gone, of those that collect_versions() names. None while somebody may have the class
/// (kata_users.h), whichever version it began with, and none where the runtime does not say which pods run:
/// VMs outlive it; and none that Kata's configuration of the class names. To be called before a fetch, so
/// that what was in use until then is left to the next time: a sandbox that is just being made is in no list
/// yet. Errors: as collect_versions().
/// `others`: handlers that are other classes' (LeavingClasses).
Result<std::vector<std::filesystem::path>> collect_unused(HostFs& host, ContainerRuntime& runtime,
                                                          const std::filesystem::path& artifacts_dir,
                                                          const KataClass& kata,
                                                          std::vector<std::string> others = {});

}  // namespace ferry
