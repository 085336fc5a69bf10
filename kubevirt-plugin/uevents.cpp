// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/uevents.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <linux/netlink.h>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

namespace ferry {
namespace {

constexpr std::array<std::string_view, 4> kSubsystems = {"SUBSYSTEM=pci", "SUBSYSTEM=mdev", "SUBSYSTEM=vfio",
                                                         "SUBSYSTEM=vfio-dev"};

// "add@/devices/..." and then KEY=VALUE fields, each ended by a zero byte.
bool concerns_us(std::string_view event) {
  while (!event.empty()) {
    const auto field = event.substr(0, event.find('\0'));
    if (std::find(kSubsystems.begin(), kSubsystems.end(), field) != kSubsystems.end()) return true;
    event.remove_prefix(std::min(field.size() + 1, event.size()));
  }
  return false;
}

}  // namespace

Result<Uevents> Uevents::open() {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = 1;
  if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return fail(error_from_errno(errno, "listen to the kernel's device events"));
  return Uevents(std::move(fd));
}

bool Uevents::take() const {
  bool ours = false;
  std::array<char, 8192> buffer{};
  while (true) {
    sockaddr_nl sender{};
    socklen_t sender_size = sizeof(sender);
    const ssize_t size = ::recvfrom(fd_.get(), buffer.data(), buffer.size(), 0,
                                    reinterpret_cast<sockaddr*>(&sender), &sender_size);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == ENOBUFS) {
      ours = true;
      continue;
    }
    if (size <= 0) return ours;
    // Anyone may send to the group; the kernel's port is 0.
    if (sender.nl_pid == 0 && concerns_us({buffer.data(), static_cast<std::size_t>(size)})) ours = true;
  }
}

}  // namespace ferry
