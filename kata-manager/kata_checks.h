// SPDX-License-Identifier: Apache-2.0
// Can this host run pods with GPUs in VMs of Kata's, and if not, what would have to be changed where?
//
// Looks only. Without a class file the host alone is looked at.
#pragma once

#include <vector>

#include "common/check.h"
#include "common/host_fs.h"
#include "kata-manager/class_file.h"
#include "kata-manager/confidential_mode.h"
#include "kata-manager/kata_shim.h"

namespace ferry {

/// Those about the host first, then those of each class, whose subject is "class NAME". Ids are stable, their
/// order is not. `mode` is that of the GPUs, as the cluster knows it; `version_of` asks Kata's shims.
std::vector<Check> kata_checks(const HostFs& host, const ClassFile& file = {},
                               const ConfidentialMode& mode = {}, const VersionOf& version_of = {});

}  // namespace ferry
