// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Finds the processes that have a device node open, or mapped into memory although closed, by walking the
/// host's /proc: all processes, in containers too, nodes compared by number. Opens no device. Needs the
/// host's process namespace; a process that cannot be looked into is told in UseReport::unknown. A process
/// that takes longer than `patience` makes the look blind, with its name, and after three of them no more are
/// asked. A process in a pod with too many open files counts as a user of every device instead: a drain can
/// evict its pod, of which no other process is asked then. A process that ends meanwhile holds nothing any
/// more. Threads are looked at too where they have a table of open files of their own. A holder's service is
/// told only if no process of that service is a VM or in a pod. Errors: /proc cannot be listed, or shows no
/// process at all. ABI: proc(5): fd, maps, map_files, task, comm, cmdline, cgroup.
class ProcUseProbe final : public UseProbe {
 public:
  explicit ProcUseProbe(const HostFs& host, std::chrono::milliseconds patience = kReadDeadline)
      : host_(&host), patience_(patience) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
  std::chrono::milliseconds patience_;
};

}  // namespace ferry
