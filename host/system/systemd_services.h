// SPDX-License-Identifier: Apache-2.0
// Stops and starts services by the host's systemd. It uses systemd's own socket run/systemd/private below the
// host's root, which answers root only, else the system bus. ABI: org.freedesktop.systemd1(5): StopUnit,
// StartUnit, RestartUnit, ReloadUnit (mode "replace"), StartTransientUnit, the signal JobRemoved.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>

#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/quiesce/release.h"

namespace ferry::host {

class SystemdServices final : public vfio::ServiceManager {
 public:
  /// `host` must outlive this. `deadline` covers a whole order: connection, question and end of the job.
  explicit SystemdServices(const HostFs& host, std::chrono::milliseconds deadline = kWriteDeadline)
      : host_(&host), deadline_(deadline) {}

  /// Each order has a connection of its own. Errors: Errc::unreachable, systemd does not listen or did not
  /// answer by the deadline (the job may still run); Errc::failed, systemd's refusal, or a job result other
  /// than "done"; Errc::unsupported, no libsystemd.
  /// When a service itself calls start(), it returns once systemd has accepted the job: a unit ordered after
  /// that service would wait for the service's end, and the service for the unit.
  Result<> stop(const std::string& unit) override;
  Result<> start(const std::string& unit) override;
  /// Returns once `unit` is running again, with the same errors. A stopped unit is started.
  Result<> restart(const std::string& unit);
  /// Returns once `unit` has been asked to reload its configuration.
  Result<> reload(const std::string& unit);
  /// Returns once `process`, by its number in systemd's PID namespace, is in a scope of that name: a control
  /// group of the host without limits, which goes with its last process. The errors are the same.
  Result<> start_scope(const std::string& unit, pid_t process);

 private:
  class Order;
  Result<> order(const std::string& unit, bool to_the_end, const std::function<Result<>(Order&)>& ask);
  Result<> order(const char* method, const std::string& unit, bool to_the_end);

  const HostFs* host_;
  std::chrono::milliseconds deadline_;
};

/// nullptr: no systemd listens below the host's root.
std::unique_ptr<vfio::ServiceManager> systemd_services(const HostFs& host);

// A container's control group forbids device nodes that the container was not given. hostd must open such
// nodes while it binds their devices, so it leaves that group for a scope of the host's systemd.

/// Calls `work` in a child process and returns its result. The child runs in a scope of the host's systemd
/// ("ferry-hostd-PID.scope") without device rules, and with 512 MiB of memory at most. The parent keeps the
/// container's control group alive until the child ends. It passes SIGTERM and SIGINT on, and the child gets
/// SIGTERM when the parent dies. In the child this function returns too. If systemd refuses, `work` is called
/// all the same, and a warning says which actions will fail. Call it with one thread, since it uses fork(2).
/// A child that a signal ended gives 128 plus its number. -1: there is no child.
int in_own_scope(const HostFs& host, const std::function<int()>& work);

}  // namespace ferry::host
