// SPDX-License-Identifier: Apache-2.0
// Acts that have not returned from the kernel (writes, reads, modules that are loaded or unloaded, programs
// that change a device), recorded in run/ferry/stuck-writes/<pid>.json. A device named in a record is left
// alone until the act returns (its record or its process is gone) or the host reboots. If /proc belongs to
// another PID namespace than the process, as between containers, only the record or a reboot shows that.
// Without /proc, as in the agent's container, only the record does.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry {

/// An act of any kind; the name is from the most frequent one.
struct StuckWrite {
  int pid = 0;
  std::string act;           ///< "write /sys/bus/pci/drivers/x/unbind", "load module x"
  std::string value;         ///< a write's value, often a PCI address; a module's name; a program's device
  std::string kernel_state;  ///< the process's state and the kernel function it sleeps in, for people
  /// The deadline has passed, and no caller waits any more; before that the act is only slow.
  bool late = true;
};

/// Records a child whose write has not returned, by its number in our PID namespace. `act` and `value` are as
/// above; the rest is read from /proc. The act is late once `left` has passed, even if this process has
/// ended. Removes the records of acts that have ended, unless a record cannot be read.
Result<StuckWrite> record_stuck_write(HostFs& host, int pid, std::string act, std::string value,
                                      std::chrono::milliseconds left = {});

/// Removes the record of a child whose write has returned. A missing record is no error.
Result<> forget_stuck_write(HostFs& host, int pid);

/// Removes the records of acts that have ended, as far as that can be seen. A process that is killed in its
/// act leaves its record, which a container without /proc believes.
Result<> clear_ended_records(HostFs& host);

/// The acts still in the kernel. Records of another boot, or of a process that has ended, are void and
/// ignored. Errors: a record cannot be read.
Result<std::vector<StuckWrite>> stuck_writes(const HostFs& host);

/// True: the act's path or value names `device` (a PCI address, an mdev UUID, a module).
bool concerns(const StuckWrite& write, const std::string& device);

/// True: the act changes nothing, and only waits for another act.
bool is_read(const StuckWrite& write);

// Records of acts by processes that are not our children; only for files of hostfs/.

/// A process by its number in a PID namespace ("pid:[4026531836]"; empty: not known).
struct NumberedProcess {
  int pid = 0;
  std::string pid_namespace;
};

/// The name of a process's files: "700", or "27-4026532188" in another PID namespace than the host's, since
/// the same number may exist in both.
std::string file_name_of(const NumberedProcess& process);

/// record_stuck_write() for a process of any PID namespace.
Result<StuckWrite> record_stuck_act(HostFs& host, const NumberedProcess& by, std::string act,
                                    std::string value, std::chrono::milliseconds left);

/// forget_stuck_write() for a process of any PID namespace.
Result<> forget_stuck_act(HostFs& host, const NumberedProcess& by);

/// True: a record shows the process still in the kernel.
bool is_recorded(const HostFs& host, const NumberedProcess& by);

}  // namespace ferry
