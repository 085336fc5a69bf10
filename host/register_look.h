// SPDX-License-Identifier: Apache-2.0
// hostd's readings of registers (vfio/registers): which accelerators, and when again.
#pragma once

#include <chrono>
#include <vector>

#include "api/host_status.h"
#include "host/keeper_memory.h"
#include "hostfs/host_writer.h"
#include "policy/policy.h"
#include "vfio/pci/pci_address.h"

namespace ferry::host {

/// The time after which registers are read again. A mode changes at resets alone, which cause no event.
inline constexpr std::chrono::minutes kBetweenReadings{5};

/// The accelerators of a status whose registers `which` names: NVIDIA's, on vfio-pci or without a driver.
/// `confidential`: a Kata class of the node is confidential.
std::vector<vfio::PciAddress> with_registers(const api::HostStatus& status, policy::ReadRegisters which,
                                             bool confidential);

/// Reads those of `wanted` that were never read, were bound since, are no longer in use, or were last read
/// kBetweenReadings ago. Also restores functions of a reading that was killed. Forgets all others.
void look_at_registers(const HostFs& host, HostWriter& writer, const std::vector<vfio::PciAddress>& wanted,
                       Moment now, RegisterMemory& memory);

/// Undoes a change of the confidential mode that a crash has interrupted. Devices that are left are tried
/// again once a round sees that they were bound anew, opened or closed, or after kBetweenReadings, which
/// doubles with each try. A command that makes the change now holds the host's lock, and is left alone.
void undo_mode_change(HostFs& host, HostWriter& writer, Moment now, RegisterMemory& memory);

/// Takes over what an earlier hostd has published in this boot, of functions with a driver that were not
/// bound since. Those that are in no use are due for a reading.
void take_over_registers(const HostFs& host, const api::HostStatus& left, RegisterMemory& memory);

}  // namespace ferry::host
