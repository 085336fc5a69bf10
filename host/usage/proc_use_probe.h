// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <span>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// Finds the processes that have a device node open, or mapped although closed. It walks the host's /proc,
/// also for containers and threads with their own open files; it compares nodes by number and opens no
/// device. It needs the host's PID namespace. A process that may not be looked into is noted in
/// UseReport::unknown. A process that takes longer than `patience` makes the report blind; after three of
/// them no more are looked at. A process in a pod with too many open files counts as a user of every device
/// instead, so that a drain can evict its pod, whose other processes are skipped. A process that ends
/// meanwhile is no user. A user's service is named only if none of its processes is a VM or in a pod. Errors:
/// /proc cannot be listed, or shows no process. ABI: proc(5): fd, maps, map_files, task, comm, cmdline,
/// cgroup.
class ProcUseProbe final : public vfio::UseProbe {
 public:
  explicit ProcUseProbe(const HostFs& host, std::chrono::milliseconds patience = kReadDeadline)
      : host_(&host), patience_(patience) {}
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override;

 private:
  const HostFs* host_;
  std::chrono::milliseconds patience_;
};

}  // namespace ferry::host
