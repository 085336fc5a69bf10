// SPDX-License-Identifier: Apache-2.0
// Which drivers' locks against unbinding are held, in run/ferry/hostd/unbind-locks/<address>: written before
// a lock is taken and removed once it is given back, so that the next run gives back what a killed one has
// left. A lock that stays taken may keep everybody from opening the device. Void after a reboot, told by the
// boot id.
#pragma once

#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "vfio/pci_address.h"

namespace ferry {

Result<> record_lock(HostFs& host, const PciAddress& device);

/// That there was no record is no error.
Result<> forget_lock(HostFs& host, const PciAddress& device);

/// Those of this boot. What is no record of ours is passed over: nothing is lost but one more try.
Result<std::vector<PciAddress>> recorded_locks(const HostFs& host);

}  // namespace ferry
