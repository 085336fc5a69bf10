// SPDX-License-Identifier: Apache-2.0
// Records which drivers' locks against unbinding are held, in run/ferry/hostd/unbind-locks/<address>. A
// record is written before its lock is taken and removed after the lock is released, so that the next run
// releases the locks of a killed run. A lock that stays taken may keep every program from opening the device.
// A record of another boot, by its boot id, is void.
#pragma once

#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "vfio/pci_address.h"

namespace ferry {

Result<> record_lock(HostFs& host, const PciAddress& device);

/// Removes a lock's record. No error if there is none.
Result<> forget_lock(HostFs& host, const PciAddress& device);

/// The recorded locks of this boot. Any other file is skipped, which costs one try to release at most.
Result<std::vector<PciAddress>> recorded_locks(const HostFs& host);

}  // namespace ferry
