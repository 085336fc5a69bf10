// SPDX-License-Identifier: Apache-2.0
// Records of acts by processes that are not our children; only for files of common/.
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

/// Removes the records of acts that have ended, as far as that can be seen.
Result<> clear_ended_records(HostFs& host);

}  // namespace ferry
