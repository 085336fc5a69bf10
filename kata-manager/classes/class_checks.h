// SPDX-License-Identifier: Apache-2.0
// Internal: the checks (kata_checks.h) of one class.
#pragma once

#include <vector>

#include "common/check.h"
#include "hostfs/host_fs.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/kata/confidential_host.h"
#include "kata-manager/kata/kata_shim.h"

namespace ferry::kata {

inline constexpr const char* kWhyShim = "the container runtime starts it for each pod in a VM";
/// Completes the check of a shim that was found.
Check answered_by_shim(Check check, const KataShim& shim, const ClassFile& file);

/// `confidential` is ConfidentialHost::read() of the host.
std::vector<Check> class_checks(const HostFs& host, const ClassFile& file, const KataClass& kata,
                                const Result<ConfidentialHost>& confidential, const VersionOf& version_of);

}  // namespace ferry::kata
