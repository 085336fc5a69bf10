// SPDX-License-Identifier: Apache-2.0
// Facts of proc(5) about other processes. A process itself chooses its name and its command line, and any pod
// may run one that is called "kubelet".
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "hostfs/host_fs.h"

namespace ferry {

/// The first 128 KiB of a process's command line, with a NUL after each argument. Empty: it has none, or the
/// process has ended. A process may make its own as long as its memory.
std::string command_line(const HostFs& host, int pid);

/// True if the root directory of a process is none of `roots`, which are paths below that of process 1 ("."
/// is that itself): the process runs in a container. False also if that cannot be seen.
bool runs_below_another_root(const HostFs& host, int pid, std::initializer_list<const char*> roots);

/// The UID of the Kubernetes pod that a control group (proc/PID/cgroup) belongs to, in the API's form; "" if
/// it belongs to none. Static pods have 32 hexadecimal digits without dashes.
std::string pod_uid(std::string_view cgroup);

}  // namespace ferry
