// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "virt/selftest.h"

namespace ferry::virt {

/// Starts a transient VM with the devices, waits until its guest has named them, and destroys the VM. libvirt
/// ties the VM to the connection and destroys it when this process ends, however it ends. `uri` as for
/// connect(). Errors: virt_client.h.
Result<SelftestReport> selftest(HostFs& host, const std::string& uri, const SelftestOptions& options);

}  // namespace ferry::virt
