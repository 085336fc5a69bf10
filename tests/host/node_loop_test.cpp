// SPDX-License-Identifier: Apache-2.0
// The loop itself: real files, real processes, a fake host. Each test waits for what state.json says.
#include "host/node_loop.h"

#include <atomic>
#include <csignal>
#include <future>
#include <poll.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>

#include "common/directory_watch.h"
#include "common/presence.h"
#include "host/state_file.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
using test::must;

constexpr auto kPatience = 20s;
constexpr const char* kGpu = "0000:05:00.0";
constexpr const char* kStateFile = "run/ferry/state.json";

/// A process has the GPU while it lives.
class OneProcess final : public UseProbe {
 public:
  std::atomic<int> pid = 0;
  Result<UseReport> look(std::span<const UseQuestion> questions) override {
    UseReport report;
    const int holder = pid;
    // A zombie holds nothing, as in /proc.
    if (holder != 0 && ::waitid(P_PID, static_cast<id_t>(holder), &info_, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info_.si_pid == 0)
      for (const UseQuestion& question : questions)
        report.holders[question.device] = {
            {.name = "worker", .pid = holder, .what = "/dev/nvidia0", .pod_uid = {}}};
    return report;
  }

 private:
  siginfo_t info_{};
};

/// A process that does nothing until it is ended.
class Worker {
 public:
  Worker() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::pause();
    ::_exit(0);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  Worker(Worker&&) = delete;
  Worker& operator=(Worker&&) = delete;
  ~Worker() {
    end();
    ::waitpid(pid_, nullptr, 0);
  }
  void end() const { ::kill(pid_, SIGKILL); }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

class NodeLoopTest : public testing::Test {
 protected:
  NodeLoopTest() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_function(
        {.address = kGpu, .ids = "10de:1eb8", .class_code = 0x030200, .group = 5, .driver = "nvidia"});
    // As where the host's /proc is ours.
    for (const char* process : {"self", "1"})
      kernel_.link(std::string("proc/") + process + "/ns/pid", "pid:[4026531836]");
    kernel_.directory("run/ferry");
  }
  ~NodeLoopTest() override { EXPECT_TRUE(stop()); }
  NodeLoopTest(const NodeLoopTest&) = delete;
  NodeLoopTest& operator=(const NodeLoopTest&) = delete;
  NodeLoopTest(NodeLoopTest&&) = delete;
  NodeLoopTest& operator=(NodeLoopTest&&) = delete;

  Result<NodeHost> host(UseProbe& uses) {
    const AcceleratorRules rules{.vendors = {0x10de}, .classes = {PciClass::display_3d}};
    return NodeHost{
        .moves = {.host = &kernel_, .writer = &kernel_, .probe = &uses, .rules = rules, .on_step = {}},
        .vgpus = {.host = kernel_, .writer = kernel_, .uses = uses, .rules = rules, .node = "node-a"}};
  }
  Result<ExitStatus> run(const NodeLoopOptions& options, const std::stop_token& token) {
    return run_node_loop(
        kernel_, holder_, [this](UseProbe& uses) { return host(uses); }, options, token);
  }
  Result<ExitStatus> once() { return run({.files = {}, .once = true}, {}); }
  void start() {
    std::packaged_task<Result<ExitStatus>(std::stop_token)> task(
        [this](const std::stop_token& token) { return run({.files = {}}, token); });
    result_ = task.get_future();
    thread_ = std::jthread(std::move(task));
  }
  Result<ExitStatus> stop() {
    if (!thread_.joinable()) return ExitStatus::done;
    thread_.request_stop();
    EXPECT_EQ(result_.wait_for(kPatience), std::future_status::ready) << "the loop does not end";
    thread_.join();
    return result_.get();
  }
  void want(const std::string& mode) {
    must(kernel_.write_file("var/lib/ferry/wanted.json", wanted_text(mode)));
  }
  static std::string wanted_text(const std::string& mode) {
    return wanted_file_text({.generation = {},
                             .policy = "a",
                             .config = ConfigText{.file = {}, .text = policy_text(mode)},
                             .asked_by = {}});
  }
  static std::string policy_text(const std::string& mode) {
    return "version: v2\npolicies:\n  a: [{devices: all, mode: " + mode + "}]\n";
  }
  /// Waits for changes of state.json until it says so.
  bool becomes(NodePhase phase, Mode mode) {
    const auto watch = must(DirectoryWatch::open(kernel_.root() / "run/ferry"));
    const auto end = std::chrono::steady_clock::now() + kPatience;
    const auto is_so = [&] {
      const auto text = kernel_.read_file(kStateFile);
      const auto state = text ? read_state_file(*text) : Result<NodeState>(fail(Error(text.error())));
      return state && state->phase == phase && !state->accelerators.empty() &&
             state->accelerators[0].mode == mode;
    };
    while (!is_so()) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      pollfd fd{.fd = watch.fd(), .events = POLLIN, .revents = 0};
      if (left.count() <= 0 || ::poll(&fd, 1, static_cast<int>(left.count())) == 0) return false;
      watch.read();
    }
    return true;
  }

  test::FakeKernel kernel_;
  OneProcess holder_;
  std::future<Result<ExitStatus>> result_;
  std::jthread thread_;
};

TEST_F(NodeLoopTest, FollowsTheFileAsItChanges) {
  start();
  ASSERT_TRUE(becomes(NodePhase::nothing_wanted, Mode::host));
  want("passthrough");
  ASSERT_TRUE(becomes(NodePhase::as_wanted, Mode::passthrough));
  // Written into, as an editor may do it, and not replaced.
  kernel_.file("var/lib/ferry/wanted.json", wanted_text("host"));
  ASSERT_TRUE(becomes(NodePhase::as_wanted, Mode::host));
  EXPECT_EQ(stop().value_or(ExitStatus::failed), ExitStatus::done);
}

TEST_F(NodeLoopTest, FollowsTheFileThatIsNamed) {
  kernel_.file("etc/ferry/policy.yaml", policy_text("passthrough"));
  kernel_.file("var/lib/ferry/wanted.json",
               R"({"version": 1, "policy": "a", "file": "/etc/ferry/policy.yaml"})");
  start();
  ASSERT_TRUE(becomes(NodePhase::as_wanted, Mode::passthrough));
  must(kernel_.write_file("etc/ferry/policy.yaml", policy_text("host")));
  EXPECT_TRUE(becomes(NodePhase::as_wanted, Mode::host));
}

TEST_F(NodeLoopTest, LearnsThatAHolderHasEnded) {
  const Worker worker;
  holder_.pid = worker.pid();
  want("passthrough");
  start();
  EXPECT_TRUE(becomes(NodePhase::refused, Mode::host));
  worker.end();
  EXPECT_TRUE(becomes(NodePhase::as_wanted, Mode::passthrough)) << "nobody has asked again";
  EXPECT_TRUE(stop()) << "before the process is forgotten";
}

TEST_F(NodeLoopTest, LearnsWhatThePluginAnswers) {
  want("passthrough");
  const auto plugin = must(Presence::announce(kernel_, "run/ferry/plugin.lock"));
  start();
  ASSERT_TRUE(becomes(NodePhase::as_wanted, Mode::passthrough));
  want("host");
  ASSERT_TRUE(becomes(NodePhase::withdrawing, Mode::passthrough));
  const auto generation = must(read_withdrawals(must(kernel_.read_file(kStateFile)))).generation;
  must(kernel_.write_file(
      "run/ferry/offered.json",
      R"({"version": 1, "resources": [], "state_generation": )" + std::to_string(generation) + "}"));
  EXPECT_TRUE(becomes(NodePhase::as_wanted, Mode::host));
}

TEST_F(NodeLoopTest, EndsAsApplyDoesWhenItRunsOnce) {
  EXPECT_EQ(must(once()), ExitStatus::done);
  want("passthrough");
  EXPECT_EQ(must(once()), ExitStatus::done);
  EXPECT_EQ(kernel_.driver_of(kGpu), "vfio-pci");
  {
    const Worker worker;
    holder_.pid = worker.pid();
    want("host");
    EXPECT_EQ(must(once()), ExitStatus::refused);
    EXPECT_EQ(kernel_.driver_of(kGpu), "vfio-pci");
    holder_.pid = 0;
  }
  kernel_.file("var/lib/ferry/wanted.json", "{");
  EXPECT_EQ(must(once()), ExitStatus::usage);
}

TEST_F(NodeLoopTest, IsTheOnlyOne) {
  std::optional<OnlyOne> other = must(OnlyOne::claim(kernel_, "run/ferry/hostd.lock"));
  const auto refused = once();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::refused);
  want("passthrough");
  start();
  other.reset();
  EXPECT_TRUE(becomes(NodePhase::as_wanted, Mode::passthrough)) << "once the other has ended";
}

}  // namespace
}  // namespace ferry
