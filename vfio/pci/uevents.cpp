// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/uevents.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/file_status.h"

namespace ferry::vfio {
namespace {

constexpr std::array<std::string_view, 4> kSubsystems = {"pci", "mdev", "vfio", "vfio-dev"};

}  // namespace

bool concerns_us(std::string_view uevent) {
  std::string_view subsystem;
  while (!uevent.empty()) {
    const auto field = uevent.substr(0, uevent.find('\0'));
    uevent.remove_prefix(std::min(field.size() + 1, uevent.size()));
    constexpr std::string_view kKey = "SUBSYSTEM=";
    if (field.starts_with(kKey)) subsystem = field.substr(kKey.size());
  }
  return std::ranges::find(kSubsystems, subsystem) != kSubsystems.end();
}

Result<Uevents> Uevents::open() {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = 1;
  if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return fail(error_from_errno(errno, "listen to the kernel's device events"));
  return Uevents(std::move(fd));
}

bool Uevents::are_sent() {
  constexpr ino_t kInitialUserNamespace = 0xEFFFFFFD;  // PROC_USER_INIT_INO, include/linux/proc_ns.h
  const UniqueFd network(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!network.valid()) return false;
  const UniqueFd owner(::ioctl(network.get(), NS_GET_USERNS));
  const auto status = file_status(owner.get());
  return status && status->st_ino == kInitialUserNamespace;
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
    // Any process may send to the group; the kernel's port is 0.
    if (sender.nl_pid != 0) continue;
    ours = ours || concerns_us({buffer.data(), static_cast<std::size_t>(size)});
  }
}

}  // namespace ferry::vfio
