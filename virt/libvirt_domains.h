// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "virt/connection.h"
#include "virt/domain.h"

namespace ferry::virt {

/// All running domains in order of name, without domains that end meanwhile. `pid` comes from the pid files
/// of the host's own daemon (run/libvirt/qemu).
Result<std::vector<Domain>> list_running_domains(const HostFs& host, const Connection& connection);

/// True if libvirt would run a PC with KVM here.
bool offers_kvm(const Connection& connection);

}  // namespace ferry::virt
