// SPDX-License-Identifier: Apache-2.0
// `ferry plugin` as people run it, one on every node: what it costs them while nothing happens.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/support/fake_kernel.h"
#include "tests/support/kubelet_standin/standin.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
constexpr auto kPatience = 20s;
constexpr unsigned kLimitKib = 10 * 1024;

/// A program that is ended with its test.
class Started {
 public:
  explicit Started(const std::string& root) : pid_(::fork()) {
    if (pid_ != 0) return;
    const int null = ::open("/dev/null", O_RDWR);
    if (null < 0 || ::dup2(null, 0) < 0 || ::dup2(null, 1) < 0 || ::dup2(null, 2) < 0) ::_exit(126);
    ::execl(FERRY_PROGRAM, "ferry", "--host-root", root.c_str(), "plugin", "--kubelet-directory", "/kubelet",
            nullptr);
    ::_exit(127);
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  Started(Started&&) = delete;
  Started& operator=(Started&&) = delete;
  ~Started() { EXPECT_EQ(end(), 0); }

  /// Its exit status after SIGTERM.
  int end() const {
    ::kill(pid_, SIGTERM);
    int status = -1;
    return ::waitpid(pid_, &status, 0) == pid_ && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  unsigned resident_kib() const {
    std::ifstream in("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(in, line);)
      if (line.starts_with("VmRSS:")) return static_cast<unsigned>(std::stoul(line.substr(6)));
    return 0;
  }

 private:
  pid_t pid_;
};

TEST(PluginMemory, IsBelowTenMebibytesWhileItWaits) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's memory is not the program's";
#endif
  test::FakeKernel kernel;
  kernel.add_driver({.name = "vfio-pci", .vfio = true});
  kernel.file("dev/vfio/vfio", "");
  for (unsigned i = 0; i < 8; ++i) {
    kernel.add_function(
        {.address = "0000:0" + std::to_string(i) + ":00.0", .group = i, .driver = "vfio-pci"});
  }
  kernel.directory("kubelet");
  standin::Kubelet kubelet(kernel.root() / "kubelet",
                           {.pod_resources = kernel.root() / "var/lib/kubelet/pod-resources"});
  ASSERT_TRUE(kubelet.start());
  const Started plugin(kernel.root());
  constexpr const char* kGpu = "nvidia.com/AD102_GEFORCE_RTX_4090";
  ASSERT_TRUE(kubelet.wait_for(
      [&](const auto& resources) {
        return resources.contains(kGpu) && resources.at(kGpu).allocatable() == 8;
      },
      kPatience));
  const auto calm = [&] {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (plugin.resident_kib() >= kLimitKib && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    return plugin.resident_kib();
  };
  EXPECT_LT(calm(), kLimitKib);
  EXPECT_GT(calm(), 0U);
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(kubelet.allocate(kGpu, {"0000:00:00.0"}, true).ok());
  EXPECT_LT(calm(), kLimitKib) << "after 500 calls";
}

}  // namespace
}  // namespace ferry
