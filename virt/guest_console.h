// SPDX-License-Identifier: Apache-2.0
// Lines that a test guest prints on its serial console:
//
//   GUEST-PCI 0000:01:00.0 vendor=10de device=2684 class=030000 subsystem_vendor=10de subsystem_device=16f3
//   GUEST-READY                          all devices are named
//
// Firmware and kernel print other lines in between. Values are hexadecimal without 0x.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "virt/selftest.h"

namespace ferry::virt {

class GuestConsole {
 public:
  /// Takes the next bytes, split at any point.
  void feed(std::string_view bytes);

  /// True once the guest has named all its devices.
  bool ready() const { return ready_; }
  const std::vector<GuestDevice>& devices() const { return devices_; }
  /// GUEST-PCI lines that another message was printed into.
  const std::vector<std::string>& unreadable() const { return unreadable_; }
  /// The last lines that are not empty, for people, joined by " | "; "nothing" when there are none.
  std::string tail() const;

 private:
  void take_line();

  std::string line_;
  bool ready_ = false;
  std::vector<GuestDevice> devices_;
  std::vector<std::string> unreadable_;
  std::vector<std::string> last_;
};

}  // namespace ferry::virt
