// SPDX-License-Identifier: Apache-2.0
// usage: systemd-standin SOCKET GROUP UNIT PROGRAM [ARGUMENT...]
// A systemd of one service, on the socket where the real one listens for root (tests/host/fake_systemd.h):
// UNIT is PROGRAM, of Type=notify and KillMode=process. A transient unit is a control group of its name below
// GROUP. Orders for other units are obeyed by doing nothing. Ends with SIGTERM, which ends the service too.
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "common/process/spawn.h"
#include "common/unique_fd.h"
#include "tests/host/fake_systemd.h"

namespace ferry::test {
namespace {

constexpr int kPatienceMs = 60'000;

/// One service, whose notes come to a socket beside systemd's own. ABI: sd_notify(3).
class Service {
 public:
  Service(const std::filesystem::path& notes, std::vector<std::string> command)
      : notes_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)), command_(std::move(command)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (notes.string().size() >= sizeof(address.sun_path)) throw std::runtime_error("too long a path");
    std::memcpy(address.sun_path, notes.c_str(), notes.string().size());
    if (::bind(notes_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      throw std::runtime_error("cannot listen at " + notes.string());
    ::setenv("NOTIFY_SOCKET", notes.c_str(), 1);
  }

  /// Returns once it says that it is ready; false when it does not.
  bool start() {
    const auto started = spawn(command_.front(), command_, {.out = STDOUT_FILENO, .err = STDERR_FILENO});
    if (!started) return false;
    pid_ = *started;
    pollfd desired = {.fd = notes_.get(), .events = POLLIN, .revents = 0};
    while (::poll(&desired, 1, kPatienceMs) > 0) {
      std::array<char, 4096> note{};
      const ssize_t size = ::recv(notes_.get(), note.data(), note.size(), 0);
      if (size <= 0) return false;
      const std::string_view text(note.data(), static_cast<std::size_t>(size));
      if (text.find("READY=1") != std::string_view::npos) return true;
    }
    return false;
  }

  /// Its own process alone, as KillMode=process has it; returns when that is over.
  void stop() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGTERM);
    reap(pid_);
    pid_ = 0;
  }

 private:
  UniqueFd notes_;
  std::vector<std::string> command_;
  pid_t pid_ = 0;
};

/// Has the process in a control group of its own, without a container's device rules. ABI: cgroups(7), both
/// versions.
bool start_scope(const std::string& group, const FakeSystemd::Order& order) {
  for (const char* hierarchy : {"/sys/fs/cgroup/devices", "/sys/fs/cgroup"}) {
    const std::filesystem::path parent = std::filesystem::path(hierarchy) / group;
    if (!std::filesystem::exists(parent)) continue;
    std::filesystem::create_directory(parent / order.unit);
    std::ofstream members(parent / order.unit / "cgroup.procs");
    return static_cast<bool>(members << order.process << std::flush);
  }
  return false;
}

int serve(const std::filesystem::path& socket, const std::string& group, const std::string& unit,
          std::vector<std::string> command) {
  // Before there is a thread, which would be given them.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  Service service(socket.string() + "-notify", std::move(command));
  if (!service.start()) throw std::runtime_error(unit + " does not start");
  const auto obey = [&](const FakeSystemd::Order& order) {
    fmt::print("{} {}\n", order.member, order.unit);
    static_cast<void>(std::fflush(stdout));
    if (order.member == "StartTransientUnit") return start_scope(group, order);
    if (order.unit != unit) return true;
    if (order.member != "StartUnit") service.stop();
    return order.member == "StopUnit" || service.start();
  };
  const FakeSystemd systemd(socket, FakeSystemd::Manner::prompt, obey);
  int signal = 0;
  ::sigwait(&ends, &signal);
  service.stop();
  return 0;
}

}  // namespace
}  // namespace ferry::test

int main(int count, char** words) try {
  constexpr int kFewest = 5;
  if (count < kFewest) {
    fmt::print(stderr, "usage: systemd-standin SOCKET GROUP UNIT PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  return ferry::test::serve(words[1], words[2], words[3], std::vector<std::string>(words + 4, words + count));
} catch (const std::exception& error) {
  fmt::print(stderr, "systemd-standin: {}\n", error.what());
  return 1;
}
