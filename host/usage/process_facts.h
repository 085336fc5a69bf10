// SPDX-License-Identifier: Apache-2.0
// Facts about a process for people, from proc(5).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// The deadline for the scan of a process, needed because the process itself chooses how many files it opens.
using ScanDeadline = std::chrono::steady_clock::time_point;

/// A process as the user of `what`. A virtual machine has its own name or command name, another process its
/// command name ("?" once it has ended). The service stays empty for a VM, and for a user of a VFIO node,
/// since its purpose is unknown. `until` works as in runs_a_vm().
vfio::DeviceUser describe_process(const HostFs& host, int pid, std::string what,
                                  ScanDeadline until = ScanDeadline::max());

/// The process number in a name of proc/; absent: the name is no number.
std::optional<int> pid_of(std::string_view name);

/// A directory that lists open files, and the names in it.
struct OpenFiles {
  std::filesystem::path directory;
  Result<std::vector<std::string>> names;
};
/// Calls `visit` with each table of open files of a process until `visit` returns false: proc/PID/fd, and the
/// tables of threads that have their own. Threads get their own by unshare(2), or when the first thread ends.
/// The kernel says which threads share a table; if it does not, each thread's table is shown. False: `until`
/// passed before all were shown. ABI: proc(5), kcmp(2).
bool each_table(const HostFs& host, int pid, ScanDeadline until,
                const std::function<bool(const OpenFiles&)>& visit);

/// True if a process runs a VM: its program is known to, or it has a VM of KVM open. The latter covers
/// unknown programs and a container's shim. Also true if its files may not be looked at, or there are too
/// many of them to finish by `until`.
bool runs_a_vm(const HostFs& host, int pid, ScanDeadline until = ScanDeadline::max());

/// The guest's name on the command line of a program that runs VMs (proc/PID/cmdline, NUL between arguments).
/// QEMU has `-name guest=NAME,…` or `-name NAME`. Empty: the VM has no name; absent: another program.
std::optional<std::string> vm_name(std::string_view cmdline);

/// The service of the host's systemd whose control group (proc/PID/cgroup) this is:
/// "0::/system.slice/nvidia-persistenced.service". "" if it is no service's, or if it lies deeper than a
/// service's own group, where the service may run anything. "" also if another hierarchy of cgroup v1
/// differs. Names are escaped as in systemd's cg_escape(): a leading '_' is not part of the name.
/// `root`: systemd_root(), which the host's services have before their paths.
std::string service_of(std::string_view cgroup, std::string_view root = {});
/// The root of the host's systemd as this process sees it, by the control group of process 1. "" on the host;
/// "/../../../.." in a container with a cgroup namespace of its own, as version 2 gives it. "" also if
/// process 1 is no systemd.
std::string_view systemd_root(std::string_view cgroup);

/// Reports the ends of processes, by a pidfd each. Belongs to the loop's thread.
class ProcessEnds : Pinned {
 public:
  /// The most processes at a time, and fewer if descriptors are scarce: a job may have thousands of
  /// processes, and the loop's owner needs descriptors for its work.
  static constexpr std::size_t kMost = 64;

  /// `ended` is called once for each process, from the loop or watch(). `loop` and `host` must outlive this.
  ProcessEnds(EventLoop& loop, const HostFs& host, std::function<void()> ended);
  ~ProcessEnds();

  /// Watches these processes, by their numbers in the host's /proc, and forgets all others. False if some
  /// ends will be missed: the numbers belong to another PID namespace, or there are too many processes.
  bool watch(const std::set<int>& processes);

 private:
  void forget_all();
  void report(int pid);

  EventLoop& loop_;
  const HostFs& host_;
  const std::function<void()> ended_;
  std::map<int, UniqueFd> watched_;
  std::set<int> reported_;  // reported ones among the last watch()'s processes
};

}  // namespace ferry::host
