// SPDX-License-Identifier: Apache-2.0
// Who a process is, for people: from what proc(5) shows of it.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "vfio/use_probe.h"

namespace ferry {

/// When a look into a process ends: the process itself chooses how many tables of open files it has, and how
/// many files are in each.
using LookDeadline = std::chrono::steady_clock::time_point;

/// A holder of `what`: a virtual machine by its name or command name, else a process by its command name ("?"
/// once it has ended). A VM has no service that could be stopped, nor has who holds a node of VFIO: what it
/// drives the device for is not known. By `until` as runs_a_vm().
Holder describe_process(const HostFs& host, int pid, std::string what,
                        LookDeadline until = LookDeadline::max());

/// The number that a name in proc/ is; absent: it is no process's.
std::optional<int> pid_of(std::string_view name);

/// A directory that shows which files are open, and the names in it.
struct OpenFiles {
  std::filesystem::path directory;
  Result<std::vector<std::string>> names;
};
/// Shows `visit` the tables of open files of a process, one after the other, until it says false:
/// proc/PID/fd, and those of threads that have tables of their own (unshare(2), or the first thread has
/// ended). The kernel says which threads share a table; where it does not say, each thread's is shown. False:
/// `until` came before all were shown. ABI: proc(5), kcmp(2).
bool each_table(const HostFs& host, int pid, LookDeadline until,
                const std::function<bool(const OpenFiles&)>& visit);

/// Whether a process is a VM's: by its program, or because it has a VM of KVM's open (a program that nobody
/// has heard of, a container's shim with the VM inside). True also where its files may not be looked at, or
/// are too many to be looked through by `until`.
bool runs_a_vm(const HostFs& host, int pid, LookDeadline until = LookDeadline::max());

/// The guest's name on the command line of a program that runs VMs (proc/PID/cmdline, NUL between arguments);
/// of QEMU `-name guest=NAME,…` or `-name NAME`. Empty text: one without a name; absent: another program.
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
