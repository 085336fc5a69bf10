// SPDX-License-Identifier: Apache-2.0
// The host's systemd as the one who stops and starts services: its own socket run/systemd/private below the
// host's root, which answers root alone, else the system bus. ABI: org.freedesktop.systemd1(5): StopUnit,
// StartUnit, RestartUnit, ReloadUnit (mode "replace"), StartTransientUnit, the signal JobRemoved.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "vfio/release.h"

namespace ferry {

class SystemdServices final : public Releaser {
 public:
  /// `host` must outlive this. `deadline` is for one order whole: connecting, asking and the job's end.
  explicit SystemdServices(const HostFs& host, std::chrono::milliseconds deadline = kWriteDeadline)
      : host_(&host), deadline_(deadline) {}

  /// Each order has a connection of its own. Errors: Errc::unreachable, nobody listens or there was no answer
  /// by the deadline (the job may still be under way); Errc::failed, systemd's own words when it refuses, the
  /// job's result when that is not "done"; Errc::unsupported, no libsystemd.
  /// Run by a service itself, start() returns once systemd has taken the job on: a unit that is ordered after
  /// that service would wait for our end, and we for its.
  Result<> stop(const std::string& unit) override;
  Result<> start(const std::string& unit) override;
  /// Returns once `unit` says that it runs again, with the same errors. One that is stopped is started.
  Result<> restart(const std::string& unit);
  /// Returns once `unit` has been told to read its configuration anew.
  Result<> reload(const std::string& unit);
  /// Returns once `process`, by its number in systemd's PID namespace, is in a scope of that name: a control
  /// group of the host's without limits, which is gone when its last process is. With the same errors.
  Result<> start_scope(const std::string& unit, pid_t process);

 private:
  class Order;
  Result<> order(const std::string& unit, bool to_the_end, const std::function<Result<>(Order&)>& ask);
  Result<> order(const char* method, const std::string& unit, bool to_the_end);

  const HostFs* host_;
  std::chrono::milliseconds deadline_;
};

/// nullptr when no systemd listens below the host's root.
std::unique_ptr<Releaser> systemd_services(const HostFs& host);

}  // namespace ferry
