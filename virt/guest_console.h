// SPDX-License-Identifier: Apache-2.0
// Lines that a test guest prints on its serial console:
//
//   GUEST-PCI 0000:01:00.0 vendor=10de device=2684 class=030000 subsystem_vendor=10de subsystem_device=16f3
//   GUEST-READY                          all devices are named
//
// Firmware and kernel print other lines in between. Values are hexadecimal without 0x.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "virt/selftest.h"

namespace ferry::virt {

class GuestConsole {
 public:
  /// Takes the next bytes, split at any point.
  void feed(std::string_view bytes);

  /// True once the guest has named all its devices.
  bool ready() const { return ready_; }
  const std::vector<GuestDevice>& devices() const { return devices_; }
  /// The last lines that are not empty, for people, joined by " | "; "nothing" when there are none.
  std::string tail() const;

 private:
  void take_line();

  std::string line_;
  bool ready_ = false;
  std::vector<GuestDevice> devices_;
  std::vector<std::string> last_;
};

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
