// SPDX-License-Identifier: Apache-2.0
// Acts that the kernel keeps (writes, reads, modules that come or go, programs that change a device), in
// run/ferry/hostd/stuck/<pid>.json. A device named in one is left alone until the act returns (its record, or
// its process, is gone then) or the host reboots. Where /proc is not of the PID namespace that the process
// was started in, as between containers, only the record or a reboot tells; where it is not there at all, as
// in the agent's container, the record alone.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

struct StuckWrite {
  int pid = 0;
  std::string act;    ///< what was being done: "write /sys/bus/pci/drivers/x/unbind", "load module x"
  std::string value;  ///< of a write, often a PCI address; of a module its name; of a program its device
  std::string kernel_state;  ///< the process's state and the kernel function it sleeps in, for people
  /// Its deadline has passed: nobody waits for it any more. Before that it is only slow.
  bool late = true;
};

/// Records a child whose write has not returned, by the number that it has for us. `act` and `value` as
/// above; the rest is read from /proc. It is late once `left` has passed, whoever lives then. Clears away the
/// records of writes that have ended.
Result<StuckWrite> record_stuck_write(HostFs& host, int pid, std::string act, std::string value,
                                      std::chrono::milliseconds left = {});

/// Takes the record of a child away: its write has returned. That there was none is no error.
Result<> forget_stuck_write(HostFs& host, int pid);

/// Those still in the kernel. A record of another boot, or whose process is seen to have ended, is void and
/// passed over.
Result<std::vector<StuckWrite>> stuck_writes(const HostFs& host);

/// Whether this act concerns `device` (a PCI address, an mdev UUID, a module): its path or value names it.
bool concerns(const StuckWrite& write, const std::string& device);

/// Whether it changes nothing: it only waits for somebody else's act.
bool is_read(const StuckWrite& write);

}  // namespace ferry
