// SPDX-License-Identifier: Apache-2.0
// Who a process is, for people: from what proc(5) shows of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry {

/// A holder of `what`: a virtual machine by its name when the process is QEMU, else a process by its command
/// name ("?" once it has ended).
Holder describe_process(const HostFs& host, int pid, std::string what);

/// The guest's name on a QEMU command line (proc/PID/cmdline, NUL between arguments): `-name guest=NAME,…` or
/// `-name NAME`. Empty text: a QEMU without a name; absent: another program.
std::optional<std::string> vm_name(std::string_view cmdline);

/// The UID of the Kubernetes pod whose control group (proc/PID/cgroup) this is, in the API's form; "" when it
/// is none's. Static pods have 32 hexadecimal digits without dashes.
std::string pod_uid(std::string_view cgroup);

/// The service of the host's systemd whose control group (proc/PID/cgroup) this is:
/// "0::/system.slice/nvidia-persistenced.service". "" when it is none's, when it lies deeper than a service's
/// own group (who divides its group may run anything there), or when another hierarchy of cgroup v1 says
/// otherwise. Seen from a cgroup namespace that is not the host's it is always "". Escaped as in systemd's
/// cg_escape(): one leading '_' is not part of the name.
std::string service_of(std::string_view cgroup);

}  // namespace ferry
