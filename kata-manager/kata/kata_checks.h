// SPDX-License-Identifier: Apache-2.0
// Checks whether this host can run GPU pods in Kata's VMs, each with a fix. Reads only. Without a class
// file, only the host is checked.
#pragma once

#include <vector>

#include "common/check.h"
#include "hostfs/host_fs.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/kata/confidential_mode.h"
#include "kata-manager/kata/kata_shim.h"

namespace ferry::kata {

/// Checks of the host, then those of each class, with the subject "class NAME". Ids are stable, their order
/// is not. `mode` is the GPUs' mode from the node's labels; `version_of` asks Kata's shims.
std::vector<Check> kata_checks(const HostFs& host, const ClassFile& file = {},
                               const ConfidentialMode& mode = {}, const VersionOf& version_of = {});

}  // namespace ferry::kata
