// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/containerd_daemon.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sstream>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "common/process/spawn.h"
#include "kata-manager/runtimes/cri_client.h"
#include "tests/support/must.h"

namespace ferry::test {

std::vector<ContainerdBinary> containerd_binaries() {
  std::vector<ContainerdBinary> out;
  const char* list = std::getenv("FERRY_CONTAINERDS");
  std::istringstream lines(list == nullptr ? "" : list);
  for (std::string version, path; lines >> version >> path;)
    out.push_back({.release = must(kata::ContainerdRelease::parse(version)), .path = path});
  return out;
}

bool reads_that_it_has_booted(int output, std::string& log) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::minutes(1);
  std::array<char, 4096> buffer{};
  while (log.find("containerd successfully booted") == std::string::npos) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd waiting{.fd = output, .events = POLLIN, .revents = 0};
    if (left <= 0 || ::poll(&waiting, 1, static_cast<int>(left)) <= 0) return false;
    const auto n = ::read(output, buffer.data(), buffer.size());
    if (n <= 0) return false;
    log.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return true;
}

ContainerdDaemon::ContainerdDaemon(ContainerdBinary binary, std::filesystem::path folder)
    : binary_(std::move(binary)), folder_(std::move(folder)) {
  std::filesystem::create_directories(main().parent_path());
  std::filesystem::create_directories(socket().parent_path());
}

ContainerdDaemon::~ContainerdDaemon() {
  stop();
}

std::string ContainerdDaemon::own_settings() const {
  return fmt::format(
      "version = 2\nroot = \"{0}/root\"\nstate = \"{0}/state\"\n[grpc]\naddress = \"{1}\"\n"
      "[plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{0}/opt\"\n"
      "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = \"{0}/cni\"\n"
      "[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true\n"  // its socket is one for the machine
      "[plugins.\"io.containerd.grpc.v1.cri\"]\nstream_server_port = \"0\"\n",
      folder_.string(), socket().string());
}

bool ContainerdDaemon::start() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  output_ = UniqueFd(ends[0]);
  UniqueFd writer(ends[1]);
  pid_ = must(spawn(binary_.path, {"containerd", "--config", main().string()}, {.err = writer.get()}));
  writer.reset();
  log_.clear();
  if (reads_that_it_has_booted(output_.get(), log_)) return runs_pods();
  ::kill(pid_, SIGKILL);
  log_ += fmt::format("it did not boot, and ended with {}\n", reap(std::exchange(pid_, 0)));
  return false;
}

// It says that it has booted a moment before it takes the kubelet's questions. One without that service
// answers otherwise, at once.
bool ContainerdDaemon::runs_pods() {
  const HostFs host("/");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (true) {
    const auto state = kata::CriClient(host, socket()).state();
    if (state || state.error().code == make_error_code(Errc::unsupported)) return true;
    if (std::chrono::steady_clock::now() >= end) {
      log_ += fmt::format("it has booted, and does not answer: {}\n", state.error().message);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void ContainerdDaemon::stop() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGTERM);
  reap(std::exchange(pid_, 0));
}

}  // namespace ferry::test
