// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "virt/guest_console.h"

namespace ferry::virt {

/// The listening end of a VM's serial port: a unix socket that QEMU connects to. A pty would lose output from
/// before it is opened, and a file would not show when QEMU ends. The destructor removes the socket.
class ConsoleSocket {
 public:
  /// Listens at run/ferry/`name`.console. libvirt makes QEMU's user its owner.
  static Result<ConsoleSocket> listen(HostFs& host, const std::string& name);
  ConsoleSocket(ConsoleSocket&&) noexcept = default;
  ConsoleSocket& operator=(ConsoleSocket&&) = delete;
  ConsoleSocket(const ConsoleSocket&) = delete;
  ConsoleSocket& operator=(const ConsoleSocket&) = delete;
  ~ConsoleSocket();

  /// The path as the libvirt host sees it.
  std::string path() const { return "/" + relative_; }

  /// Feeds `console` until the guest is ready. Errc::failed: the VM ended before that, or the time is up.
  Result<> read_until_ready(GuestConsole& console, std::chrono::steady_clock::time_point until) const;

 private:
  ConsoleSocket(HostFs& host, std::string relative, UniqueFd listener)
      : host_(&host), relative_(std::move(relative)), listener_(std::move(listener)) {}

  HostFs* host_;
  std::string relative_;
  UniqueFd listener_;
};

}  // namespace ferry::virt
