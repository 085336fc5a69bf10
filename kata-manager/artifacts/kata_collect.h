// SPDX-License-Identifier: Apache-2.0
// Removes the versions of a class's artifact that earlier fetches left and no pod can use.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/runtime/container_runtime.h"

namespace ferry::kata {

/// Returns the removed folders, of those that collect_versions() names. Nothing is removed while a pod may
/// use the class (kata_users.h), whichever version it began with. Nothing is removed either while the
/// runtime does not list its pods, because VMs outlive it. A version in the class's Kata configuration
/// stays. Callers collect before a fetch: the version in use until then stays for a sandbox that is being
/// made and is not listed yet. `others`: handlers of other classes (LeavingClasses). Errors: as
/// collect_versions().
Result<std::vector<std::filesystem::path>> collect_unused(HostFs& host, ContainerRuntime& runtime,
                                                          const std::filesystem::path& artifacts_dir,
                                                          const KataClass& kata,
                                                          std::vector<std::string> others = {});

}  // namespace ferry::kata
