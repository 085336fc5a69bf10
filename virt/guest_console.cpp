// SPDX-License-Identifier: Apache-2.0
#include "virt/guest_console.h"

#include <array>
#include <cerrno>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"

namespace ferry::virt {
namespace {

constexpr std::string_view kDevice = "GUEST-PCI ";

// Parses exactly `name=` and `digits` hexadecimal digits.
std::optional<std::uint32_t> field(std::string_view word, std::string_view name, std::size_t digits) {
  if (!word.starts_with(name) || word.size() != name.size() + 1 + digits || word[name.size()] != '=')
    return {};
  word.remove_prefix(name.size() + 1);
  return whole_number(word, 16);
}

std::optional<GuestDevice> device_of(std::string_view text) {
  const auto address = vfio::PciAddress::parse(cut(text, ' '));
  const auto vendor = field(cut(text, ' '), "vendor", 4);
  const auto device = field(cut(text, ' '), "device", 4);
  const auto class_code = field(cut(text, ' '), "class", 6);
  const auto subsystem_vendor = field(cut(text, ' '), "subsystem_vendor", 4);
  const auto subsystem_device = field(cut(text, ' '), "subsystem_device", 4);
  if (!address || !vendor || !device || !class_code || !subsystem_vendor || !subsystem_device ||
      !text.empty()) {
    return {};
  }
  return GuestDevice{.address = *address,
                     .ids = {.vendor = static_cast<std::uint16_t>(*vendor),
                             .device = static_cast<std::uint16_t>(*device),
                             .subsystem_vendor = static_cast<std::uint16_t>(*subsystem_vendor),
                             .subsystem_device = static_cast<std::uint16_t>(*subsystem_device)},
                     .class_code = *class_code};
}

}  // namespace

void GuestConsole::feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (c == '\n') {
      take_line();
      line_.clear();
    } else if (c != '\r') {
      line_ += c;
    }
  }
}

void GuestConsole::take_line() {
  if (line_.empty()) return;
  constexpr std::size_t kTail = 4;
  if (last_.size() == kTail) last_.erase(last_.begin());
  last_.push_back(line_);
  if (line_.ends_with("GUEST-READY")) ready_ = true;
  // Firmware leaves the cursor, and its escape sequences, in front of the first line.
  const auto at = line_.find(kDevice);
  if (at == std::string::npos) return;
  // Another message may be printed into the line, which then names no device.
  if (auto device = device_of(std::string_view(line_).substr(at + kDevice.size())))
    devices_.push_back(*device);
}

std::string GuestConsole::tail() const {
  auto lines = last_;
  if (!line_.empty()) lines.push_back(line_);
  return lines.empty() ? "nothing" : fmt::format("{}", fmt::join(lines, " | "));
}

namespace {

using Clock = std::chrono::steady_clock;

// Returns false if the time is up or poll() fails.
bool wait_readable(int fd, Clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) return false;
    pollfd watched{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

Error silent(const GuestConsole& console) {
  return {.code = Errc::failed,
          .message = "the guest did not name its devices in time; it said last: " + console.tail(),
          .hint = "give it more time with --timeout (emulation without KVM is slow)"};
}

}  // namespace

Result<ConsoleSocket> ConsoleSocket::listen(HostFs& host, const std::string& name) {
  const std::string relative = "run/ferry/" + name + ".console";
  const std::string path = (host.root() / relative).string();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return fail(Errc::usage, "the host's root has too long a path for a socket: " + path);
  path.copy(address.sun_path, path.size());

  if (auto made = host.make_directory("run/ferry"); !made) return fail(std::move(made).error());
  ConsoleSocket socket(host, relative, UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  const int fd = socket.listener_.get();
  if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd, 1) != 0) {
    return fail(error_from_errno(errno, "listen on " + path));
  }
  return socket;
}

ConsoleSocket::~ConsoleSocket() {
  // A failure leaves an empty socket file; a destructor cannot report it.
  if (listener_.valid()) (void)host_->remove_file(relative_).has_value();
}

Result<> ConsoleSocket::read_until_ready(GuestConsole& console, Clock::time_point until) const {
  if (!wait_readable(listener_.get(), until)) return fail(silent(console));
  const UniqueFd serial(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!serial.valid()) return fail(error_from_errno(errno, "accept the VM's console"));
  while (!console.ready()) {
    if (!wait_readable(serial.get(), until)) return fail(silent(console));
    std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
    const ssize_t n = ::read(serial.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return fail(
          Errc::failed,
          "the VM ended before its guest had named its devices; it said last: " + console.tail(),
          "the kernel must run on a PC with a serial console, and its initramfs must name the PCI devices");
    }
    console.feed({buffer.data(), static_cast<std::size_t>(n)});
  }
  return {};
}

}  // namespace ferry::virt
