// SPDX-License-Identifier: Apache-2.0
// Inside this room: the checks (kata_checks.h) of one class.
#pragma once

#include <vector>

#include "common/check.h"
#include "common/host_fs.h"
#include "kata-manager/class_file.h"
#include "kata-manager/confidential_host.h"

namespace ferry {

/// `confidential` is what was read of the host.
std::vector<Check> class_checks(const HostFs& host, const ClassFile& file, const KataClass& kata,
                                const Result<ConfidentialHost>& confidential);

}  // namespace ferry
