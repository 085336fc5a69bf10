// SPDX-License-Identifier: Apache-2.0
// The process with its locks, folders and sockets, and an API server that never answers.
#include "dra/dra_program.h"

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>

#include <gmock/gmock.h>

#include "api/files.h"
#include "common/event_loop.h"
#include "hostfs/host_fs.h"
#include "hostfs/locks.h"
#include "kube/api_transport.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::dra {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class SilentServer final : public kube::ApiTransport {
 public:
  Call send(kube::ApiRequest /*request*/, kube::ApiListener /*listener*/) override { return ++last_call_; }
  void cancel(Call /*call*/) override {}

 private:
  Call last_call_ = 0;
};

class DraProgramTest : public testing::Test {
 protected:
  DraProgramTest() {
    scratch.file("proc/sys/kernel/random/boot_id", "0e7c\n");
    scratch.directory("run/ferry/claims");
    scratch.directory("kubelet/plugins_registry");
  }

  bool is_offered() const {
    return std::filesystem::exists(scratch.path() / "kubelet/plugins_registry/gpu-ferry.io-reg.sock");
  }

  /// Runs the process until `done`, which is asked every 10 ms, or for 20 s.
  Result<> run_until(const std::function<bool()>& done) {
    const auto loop = test::must(EventLoop::create());
    DraProgramOptions options;
    options.node = "node7";
    options.kubelet_folder = "/kubelet";
    DraProgram program(
        *loop, host, server, [] { return 0.5; }, options);
    std::stop_source stop;
    const auto end = EventLoop::Clock::now() + 20s;
    const std::function<void()> look = [&] {
      if (done() || EventLoop::Clock::now() >= end)
        stop.request_stop();
      else
        loop->at(EventLoop::Clock::now() + 10ms, look);
    };
    loop->post(look);
    return program.run(stop.get_token());
  }
  /// Runs the process until the kubelet can find it. `at_first` runs after 200 ms, and the kubelet must not
  /// find the process before.
  void expect_to_wait_for(const std::function<void()>& at_first) {
    int looks = 0;
    bool too_early = false;
    bool was_offered = false;
    const auto ended = run_until([&] {
      ++looks;
      if (looks < 20) too_early = too_early || is_offered();
      if (looks == 20) at_first();
      was_offered = is_offered();
      return was_offered;
    });
    EXPECT_TRUE(ended);
    EXPECT_FALSE(too_early);
    EXPECT_TRUE(was_offered);
  }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  SilentServer server;
};

TEST_F(DraProgramTest, ServesTheKubeletUntilItIsStopped) {
  bool was_offered = false;
  ASSERT_TRUE(run_until([&] {
    was_offered = is_offered();
    return was_offered;
  }));
  EXPECT_TRUE(was_offered) << "the kubelet is served while the API server is away";
  EXPECT_FALSE(is_offered()) << "no process answers there any more";
  EXPECT_TRUE(host.exists(api::kCheckpointFile));
}

TEST_F(DraProgramTest, WaitsForTheFolderOfHostd) {
  scratch.remove("run/ferry/claims");
  expect_to_wait_for([this] { scratch.directory("run/ferry/claims"); });
}

TEST_F(DraProgramTest, WaitsForTheEndOfAnotherProcess) {
  std::optional<InstanceLock> other(test::must(InstanceLock::claim(host, api::kDraLock)));
  expect_to_wait_for([&other] { other.reset(); });
}

TEST_F(DraProgramTest, EndsWhereThereIsNoKubelet) {
  scratch.remove("kubelet");
  const auto ended = run_until([] { return false; });
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Errc::not_found);
  EXPECT_THAT(ended.error().message, HasSubstr("kubelet/plugins_registry"));
}

TEST_F(DraProgramTest, EndsIfItIsNotKnownWhichDevicesClaimsHave) {
  scratch.file(api::kCheckpointFile, "{");
  const auto ended = run_until([] { return false; });
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Errc::malformed_host);
  EXPECT_THAT(ended.error().message, HasSubstr(api::kCheckpointFile));
  EXPECT_FALSE(is_offered());
}

}  // namespace
}  // namespace ferry::dra
