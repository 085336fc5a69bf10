// SPDX-License-Identifier: Apache-2.0
// Inside this room: records of acts by processes that are not our own children.
#pragma once

#include <chrono>
#include <string>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/stuck_writes.h"

namespace ferry {

/// A process by its number in a PID namespace ("pid:[4026531836]"; empty: not known).
struct NumberedProcess {
  int pid = 0;
  std::string pid_namespace;
};

/// What files about a process are called: "700"; "27-4026532188" of another PID namespace than the host's,
/// since its numbers may be there twice.
std::string file_name_of(const NumberedProcess& process);

/// record_stuck_write() for a process of any PID namespace.
Result<StuckWrite> record_stuck_act(HostFs& host, const NumberedProcess& by, std::string act,
                                    std::string value, std::chrono::milliseconds left);

/// forget_stuck_write() for a process of any PID namespace.
Result<> forget_stuck_act(HostFs& host, const NumberedProcess& by);

/// Whether a record tells that it is still in the kernel.
bool is_recorded(const HostFs& host, const NumberedProcess& by);

/// Takes the records of acts away that have ended, as far as that can be seen.
Result<> clear_ended_records(HostFs& host);

}  // namespace ferry
