// SPDX-License-Identifier: Apache-2.0
// The loop itself: real files, real processes, a fake host. Each test waits for what status.json says.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <future>
#include <latch>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "api/claim_request.h"
#include "api/files.h"
#include "api/host_status.h"
#include "api/serving.h"
#include "common/process/this_process.h"
#include "common/rpc/socket_file.h"
#include "host/claims/claim_record.h"
#include "host/node_keeper.h"
#include "hostfs/directory_watch.h"
#include "hostfs/locks.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/fake_mdev.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/idle_process.h"
#include "tests/support/log_of.h"
#include "tests/support/must.h"
#include "tests/support/open_files.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using test::must;

constexpr auto kPatience = 20s;
constexpr const char* kGpu = "0000:05:00.0";
constexpr const char* kStatusFile = "run/ferry/status.json";
constexpr const char* kLock = "run/ferry/hostd/hostd.lock";
constexpr const char* kLiveness = "run/ferry/hostd.running";

/// Processes have the GPU while they live.
class Processes final : public vfio::UseProbe {
 public:
  std::atomic<int> pid = 0;
  std::vector<int> more;  // as they are when the loop starts

  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override {
    vfio::UseReport report;
    std::vector<int> users = more;
    if (const int one = pid; one != 0) users.push_back(one);
    std::erase_if(users, [](int user) { return !lives(user); });
    for (const int user : users)
      for (const vfio::UseQuestion& question : questions)
        report.users[question.device].push_back(
            {.name = "worker", .pid = user, .what = "/dev/nvidia0", .pod_uid = {}});
    return report;
  }

 private:
  // A zombie holds nothing, as in /proc.
  static bool lives(int user) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(user), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
  }
};

class NodeLoopTest : public testing::Test {
 protected:
  NodeLoopTest() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_function(test::kinds::kTeslaT4, kGpu, 5, "nvidia");
    // As where the host's /proc is ours.
    for (const char* process : {"self", "1"})
      kernel_.link(std::string("proc/") + process + "/ns/pid", "pid:[4026531836]");
    kernel_.directory("run/ferry");
  }
  void TearDown() override { EXPECT_TRUE(stop()); }

  Result<NodeContext> context(const NodeProbes& uses) {
    const vfio::AcceleratorRules rules{.vendors = {0x10de}, .classes = {vfio::PciClass::display_3d}};
    return NodeContext{
        .rebind_context =
            {.host = &kernel_, .writer = &kernel_, .probe = &uses.for_rebinds, .rules = rules, .on_step = {}},
        .vgpu_host = {
            .host = kernel_, .writer = kernel_, .uses = uses.for_vgpus, .rules = rules, .node = "node-a"}};
  }
  Result<ExitStatus> run(const NodeLoopOptions& options, const std::stop_token& token) {
    return run_node_loop(
        kernel_, {.for_rebinds = user_, .for_vgpus = user_, .open_nodes = user_},
        [this](const NodeProbes& uses) { return context(uses); }, options, token);
  }
  Result<ExitStatus> once() { return run({.keeper = {}, .once = true}, {}); }
  void start() {
    std::packaged_task<Result<ExitStatus>(std::stop_token)> task([this](const std::stop_token& token) {
      return run({.keeper = keeper_,
                  .use_poll_period = 20ms,
                  .without_uevents = without_uevents_,
                  .between_announcements = 20ms,
                  .open_uevents = open_uevents_,
                  .uevents_are_sent = [this] { return are_sent_; },
                  .beside =
                      [this](EventLoop& loop) {
                        loop_ = &loop;
                        return nullptr;
                      },
                  .claims = claims_},
                 token);
    });
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
    must(kernel_.write_file("var/lib/ferry/desired.json", desired_text(mode)));
  }
  static std::string desired_text(const std::string& mode) {
    return api::desired_file_text({.generation = {},
                                   .policy = "a",
                                   .config = ConfigText{.file = {}, .text = policy_text(mode)},
                                   .source = {}});
  }
  static std::string policy_text(const std::string& mode) {
    return "version: v2\nsanitize: off\npolicies:\n  a: [{devices: all, mode: " + mode + "}]\n";
  }
  /// Waits for changes of status.json until it says so.
  bool becomes(api::NodePhase phase, policy::Mode mode) {
    return reported([=](const api::HostStatus& state) {
      return state.phase == phase && !state.accelerators.empty() && state.accelerators[0].mode == mode;
    });
  }
  bool starts_as(api::NodePhase phase, policy::Mode mode) {
    start();
    return becomes(phase, mode);
  }
  /// Waits until the loop has seen to all that has happened: to this text, with a count of its own, too.
  bool sees_to(const std::string& keys) {
    const std::uint64_t generation = ++generation_;
    must(kernel_.write_file("var/lib/ferry/desired.json", R"({"version": 2, "policy": "a", "generation": )" +
                                                              std::to_string(generation) + keys + "}"));
    return reported([=](const api::HostStatus& state) {
      return state.desired && state.desired->generation == generation;
    });
  }
  /// Waits until the loop has done what is due by now.
  bool does_what_is_due() {
    const auto done = std::make_shared<std::promise<void>>();
    EventLoop* loop = loop_;
    loop->post([=] { loop->at(EventLoop::Clock::now(), [=] { done->set_value(); }); });
    return done->get_future().wait_for(kPatience) == std::future_status::ready;
  }
  /// Asks to undo a claim.
  Result<std::vector<api::PreparedDevice>> unprepare() {
    const auto folder = must(kernel_.open("run/ferry/claims", O_RDONLY | O_DIRECTORY));
    const UniqueFd client = must(connect_to_socket(folder.get(), "hostd.sock", SOCK_SEQPACKET));
    const std::string request = api::claim_request_text(
        {.action = api::ClaimAction::unprepare, .claim = "a", .space = "studio", .name = "render-a"});
    EXPECT_EQ(::send(client.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    pollfd answered{.fd = client.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&answered, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())), 1);
    std::string answer(api::kLongestClaimMessage, '\0');
    const ssize_t size = ::recv(client.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    answer.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return api::read_claim_answer(answer);
  }
  bool reported(const std::function<bool(const api::HostStatus&)>& desired) {
    return changes_until("run/ferry", [&] {
      const auto text = kernel_.read_file(kStatusFile);
      const auto state = text ? api::read_host_status(*text) : Result<api::HostStatus>(fail(text.error()));
      return state && desired(*state);
    });
  }
  bool appears(const std::filesystem::path& file) {
    return changes_until(file.parent_path(), [&] { return kernel_.exists(file); });
  }
  /// Waits for changes in the folder until it is so.
  bool changes_until(const std::filesystem::path& folder, const std::function<bool()>& is_so) {
    const auto watch = must(DirectoryWatch::open(kernel_.root() / folder));
    const auto end = std::chrono::steady_clock::now() + kPatience;
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
  Processes user_;
  std::chrono::milliseconds without_uevents_ = std::chrono::hours(1);
  std::function<Result<vfio::Uevents>()> open_uevents_ = vfio::Uevents::open;
  bool are_sent_ = true;
  std::optional<ClaimServerSettings> claims_;
  KeeperSettings keeper_;
  std::uint64_t generation_ = 0;
  std::atomic<EventLoop*> loop_ = nullptr;  // once it has begun
  std::future<Result<ExitStatus>> result_;
  std::jthread thread_;
};

TEST_F(NodeLoopTest, FollowsTheFileAsItChanges) {
  ASSERT_TRUE(starts_as(api::NodePhase::idle, policy::Mode::host));
  want("passthrough");
  ASSERT_TRUE(becomes(api::NodePhase::ready, policy::Mode::passthrough));
  // Written into, as an editor may do it, and not replaced.
  kernel_.file("var/lib/ferry/desired.json", desired_text("host"));
  ASSERT_TRUE(becomes(api::NodePhase::ready, policy::Mode::host));
  EXPECT_EQ(stop().value_or(ExitStatus::failed), ExitStatus::done);
}

// A pod of the gpu-operator that ends removes all ready files.
TEST_F(NodeLoopTest, WritesAReadyFileAnewWhenItIsRemoved) {
  keeper_.validations = true;
  want("passthrough");
  ASSERT_TRUE(starts_as(api::NodePhase::ready, policy::Mode::passthrough));
  for (const char* const file : {kVfioReady, kWorkloadType, kVfioReady}) {
    ASSERT_TRUE(appears(file)) << file;
    kernel_.remove(file);
    EXPECT_TRUE(appears(file)) << file;
  }
}

TEST_F(NodeLoopTest, ServesAClaimAndLooksAtTheNodeAfterIt) {
  claims_ = ClaimServerSettings{.user = ::geteuid(), .group = ::getegid()};
  ASSERT_TRUE(starts_as(api::NodePhase::idle, policy::Mode::host));
  must(kernel_.write("sys/bus/pci/drivers/nvidia/unbind", kGpu));  // raises no event here
  EXPECT_THAT(must(unprepare()), testing::IsEmpty()) << "hostd knows no such claim";
  EXPECT_TRUE(reported([](const api::HostStatus& state) {
    return !state.accelerators.empty() && !state.accelerators[0].driver;
  }));
}

TEST_F(NodeLoopTest, AnswersAClaimWhileAnotherFerryChangesTheHost) {
  claims_ = ClaimServerSettings{.user = ::geteuid(), .group = ::getegid()};
  ClaimRecord record{.boot_id = must(kernel_.read_attribute("proc/sys/kernel/random/boot_id"))};
  record.put(Claim{.uid = "a", .space = "studio", .name = "render-a"});
  kernel_.file(kClaimRecordFile, claim_record_text(record));
  ASSERT_TRUE(starts_as(api::NodePhase::idle, policy::Mode::host));
  const NodeLock other = must(NodeLock::take(kernel_, 0ms));
  const auto began = std::chrono::steady_clock::now();
  const auto answer = unprepare();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s) << "rounds wait behind each claim";
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, testing::HasSubstr("another ferry is changing this host"));
}

TEST_F(NodeLoopTest, SeesThatAnotherProgramHasWrittenTheRecordOfClaims) {
  ASSERT_TRUE(starts_as(api::NodePhase::idle, policy::Mode::host));
  must(kernel_.write_file(kClaimRecordFile, "{"));
  EXPECT_TRUE(reported([](const api::HostStatus& state) {
    return state.phase == api::NodePhase::failed && state.error &&
           state.error->message.find("claims.json") != std::string::npos;
  }));
}

// After a boot, with nobody there who could tell it: what the agent wrote before is all there is.
TEST_F(NodeLoopTest, BringsTheNodeUpByWhatWasWrittenBeforeTheBoot) {
  kernel_.file("var/lib/ferry/desired.json",
               api::desired_file_text({.generation = 12,
                                       .policy = "a",
                                       .config = ConfigText{.file = {}, .text = policy_text("passthrough")},
                                       .source = "label gpu-ferry.io/policy=a"}));
  ASSERT_TRUE(starts_as(api::NodePhase::ready, policy::Mode::passthrough));
  EXPECT_EQ(kernel_.driver_of(kGpu), "vfio-pci");
  const api::HostStatus state = must(api::read_host_status(must(kernel_.read_file(kStatusFile))));
  EXPECT_TRUE(state.desired && state.desired->generation == 12U)
      << "the agent finds its own desired state done when it comes";
  EXPECT_FALSE(kernel_.exists("var/lib/ferry/agent.lock"));
}

TEST_F(NodeLoopTest, HearsThatThePluginShallServeNoMore) {
  ASSERT_TRUE(starts_as(api::NodePhase::idle, policy::Mode::host));
  must(kernel_.write_file("var/lib/ferry/serving.json", api::serving_file_text("another serves")));
  ASSERT_TRUE(reported([](const api::HostStatus& state) { return state.standby == "another serves"; }));
  must(kernel_.remove_file("var/lib/ferry/serving.json"));
  EXPECT_TRUE(reported([](const api::HostStatus& state) { return state.standby.empty(); }));
}

TEST_F(NodeLoopTest, FollowsTheFileThatIsNamed) {
  kernel_.file("etc/ferry/policy.yaml", policy_text("passthrough"));
  kernel_.file("var/lib/ferry/desired.json",
               R"({"version": 2, "policy": "a", "file": "/etc/ferry/policy.yaml"})");
  ASSERT_TRUE(starts_as(api::NodePhase::ready, policy::Mode::passthrough));
  must(kernel_.write_file("etc/ferry/policy.yaml", policy_text("host")));
  EXPECT_TRUE(becomes(api::NodePhase::ready, policy::Mode::host));
}

TEST_F(NodeLoopTest, FollowsTheFileBehindALink) {
  kernel_.file("opt/site/policy.yaml", policy_text("passthrough"));
  kernel_.link("etc/ferry/policy.yaml", "/opt/site/policy.yaml");
  kernel_.file("var/lib/ferry/desired.json",
               R"({"version": 2, "policy": "a", "file": "/etc/ferry/policy.yaml"})");
  ASSERT_TRUE(starts_as(api::NodePhase::ready, policy::Mode::passthrough));
  ASSERT_TRUE(sees_to(R"(, "file": "/etc/ferry/policy.yaml")"));
  must(kernel_.write_file("opt/site/policy.yaml", policy_text("host")));
  EXPECT_TRUE(becomes(api::NodePhase::ready, policy::Mode::host));
}

TEST_F(NodeLoopTest, FollowsAConfigMapThatIsMounted) {
  kernel_.file("etc/ferry/..1/policy.yaml", policy_text("passthrough"));
  kernel_.link("etc/ferry/..data", "..1");
  kernel_.link("etc/ferry/policy.yaml", "..data/policy.yaml");
  kernel_.file("var/lib/ferry/desired.json",
               R"({"version": 2, "policy": "a", "file": "/etc/ferry/policy.yaml"})");
  ASSERT_TRUE(starts_as(api::NodePhase::ready, policy::Mode::passthrough));
  for (const char* next : {"2", "3"}) {
    const bool back = std::string(next) == "2";
    kernel_.file(std::string("etc/ferry/..") + next + "/policy.yaml",
                 policy_text(back ? "host" : "passthrough"));
    kernel_.link("etc/ferry/..data_tmp", std::string("..") + next);
    std::filesystem::rename(kernel_.root() / "etc/ferry/..data_tmp", kernel_.root() / "etc/ferry/..data");
    EXPECT_TRUE(becomes(api::NodePhase::ready, back ? policy::Mode::host : policy::Mode::passthrough));
  }
}

TEST_F(NodeLoopTest, LearnsThatAUserHasEnded) {
  const test::IdleProcess worker;
  user_.pid = worker.pid();
  want("passthrough");
  start();
  EXPECT_TRUE(becomes(api::NodePhase::blocked, policy::Mode::host));
  worker.end();
  EXPECT_TRUE(becomes(api::NodePhase::ready, policy::Mode::passthrough)) << "nobody has asked again";
  EXPECT_TRUE(stop()) << "before the process is forgotten";
}

TEST_F(NodeLoopTest, LearnsWhoHasAVgpuWithoutTheKubelet) {
  test::FakeMdev mdev(kernel_);
  mdev.add_parent(kGpu);
  mdev.add_device(kGpu, "nvidia-232", "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10");
  const auto has_users = [this](std::size_t number) {
    return reported([=](const api::HostStatus& state) {
      if (state.accelerators.empty() || state.accelerators[0].vgpus.empty()) return false;
      const auto& users = state.accelerators[0].vgpus[0].users;
      return users && users->size() == number;
    });
  };
  start();
  ASSERT_TRUE(has_users(0));
  const test::IdleProcess worker;
  user_.pid = worker.pid();
  EXPECT_TRUE(has_users(1)) << "no event has come";
  worker.end();
  EXPECT_TRUE(has_users(0));
  EXPECT_TRUE(stop()) << "before the process is forgotten";
}

// Without this kind of netlink, and in a network namespace that the kernel sends nothing to.
TEST_F(NodeLoopTest, LooksAtTheHostNowAndThenWhereTheKernelTellsNothing) {
  without_uevents_ = 20ms;
  are_sent_ = false;
  want("host");
  for (const bool opens : {false, true}) {
    open_uevents_ = [opens]() -> Result<vfio::Uevents> {
      if (opens) return vfio::Uevents::open();
      return fail(Errc::unsupported, "listen to the kernel's device events: not supported");
    };
    start();
    for (const char* const boot : {"one", "two"}) {
      kernel_.file("proc/sys/kernel/random/boot_id", boot);  // no event tells of it
      EXPECT_TRUE(reported([&](const api::HostStatus& state) { return state.boot_id == boot; }))
          << opens << boot;
    }
    EXPECT_TRUE(stop());
  }
}

// A job's processes end within the time of one round, and their device cannot be bound.
TEST_F(NodeLoopTest, TriesOnceForUsersThatEndTogether) {
  const std::vector<test::IdleProcess> workers(20);
  for (const test::IdleProcess& worker : workers) user_.more.push_back(worker.pid());
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/bind");
  want("passthrough");
  ASSERT_TRUE(starts_as(api::NodePhase::blocked, policy::Mode::host));
  std::latch busy(1);
  std::latch all_ended(1);
  loop_.load()->post([&] {
    busy.count_down();
    all_ended.wait();
  });
  busy.wait();
  for (const test::IdleProcess& worker : workers) worker.end_now();
  all_ended.count_down();
  ASSERT_TRUE(reported([](const api::HostStatus& state) { return state.phase == api::NodePhase::failed; }));
  EXPECT_TRUE(does_what_is_due());
  EXPECT_TRUE(stop());
  const auto is_a_try = [](const std::string& write) {
    return write.find("drivers/nvidia/unbind") != std::string::npos;
  };
  EXPECT_EQ(std::ranges::count_if(kernel_.writes(), is_a_try), 1);
}

TEST_F(NodeLoopTest, LeavesASecondBetweenTheEndsOfUsers) {
  const std::vector<test::IdleProcess> workers(2);
  for (const test::IdleProcess& worker : workers) user_.more.push_back(worker.pid());
  want("passthrough");
  start();
  const auto has_users = [this](std::size_t number) {
    return reported([=](const api::HostStatus& state) {
      return state.phase == api::NodePhase::blocked && !state.accelerators.empty() &&
             state.accelerators[0].users.size() == number;
    });
  };
  ASSERT_TRUE(has_users(2));
  workers[0].end();
  ASSERT_TRUE(has_users(1));
  const auto first = std::filesystem::last_write_time(kernel_.root() / kStatusFile);
  workers[1].end();
  ASSERT_TRUE(reported([](const api::HostStatus& state) { return state.phase == api::NodePhase::ready; }));
  const auto second = std::filesystem::last_write_time(kernel_.root() / kStatusFile);
  EXPECT_GE(second - first, 900ms);
}

TEST_F(NodeLoopTest, OutlivesMoreUsersThanItHasDescriptors) {
  const std::vector<test::IdleProcess> workers(150);
  for (const test::IdleProcess& worker : workers) user_.more.push_back(worker.pid());
  ASSERT_TRUE(starts_as(api::NodePhase::idle, policy::Mode::host));
  const test::FewDescriptors few(100);
  want("passthrough");
  ASSERT_TRUE(becomes(api::NodePhase::blocked, policy::Mode::host));
  ASSERT_TRUE(sees_to(R"(, "config": "version: v2\npolicies:\n  a: [{devices: all, mode: passthrough}]\n")"));
  for (const test::IdleProcess& worker : workers) worker.end_now();
  EXPECT_TRUE(becomes(api::NodePhase::ready, policy::Mode::passthrough));
  EXPECT_TRUE(stop());
}

TEST_F(NodeLoopTest, HasAsManyDescriptorsAsItMay) {
  const test::FewDescriptors few(100);
  ASSERT_TRUE(starts_as(api::NodePhase::idle, policy::Mode::host));
  EXPECT_GT(descriptor_limit(), 100U);
}

TEST_F(NodeLoopTest, LearnsWhatThePluginAnswers) {
  want("passthrough");
  const auto plugin = must(LivenessLock::announce(kernel_, "run/ferry/plugin/plugin.lock"));
  ASSERT_TRUE(starts_as(api::NodePhase::ready, policy::Mode::passthrough));
  want("host");
  ASSERT_TRUE(becomes(api::NodePhase::applying, policy::Mode::passthrough));
  const auto generation = must(api::read_plugin_orders(must(kernel_.read_file(kStatusFile)))).generation;
  must(kernel_.write_file(
      "run/ferry/plugin/advertised.json",
      R"({"version": 2, "resources": [], "state_generation": )" + std::to_string(generation) + "}"));
  EXPECT_TRUE(becomes(api::NodePhase::ready, policy::Mode::host));
}

// Killed, it writes nothing more: what its file says of a pod is nobody's.
TEST_F(NodeLoopTest, LearnsThatThePluginHasDied) {
  want("passthrough");
  std::optional<LivenessLock> plugin = must(LivenessLock::announce(kernel_, "run/ferry/plugin/plugin.lock"));
  ASSERT_TRUE(starts_as(api::NodePhase::ready, policy::Mode::passthrough));
  want("host");
  ASSERT_TRUE(becomes(api::NodePhase::applying, policy::Mode::passthrough));
  const auto generation = must(api::read_plugin_orders(must(kernel_.read_file(kStatusFile)))).generation;
  must(kernel_.write_file("run/ferry/plugin/advertised.json",
                          R"({"version": 2, "resources": [{"name": "nvidia.com/GPU", "devices": [
          {"id": "0000:05:00.0", "iommu_group": 5, "allocated": true}]}], "state_generation": )" +
                              std::to_string(generation) + "}"));
  ASSERT_TRUE(becomes(api::NodePhase::blocked, policy::Mode::passthrough));
  ASSERT_TRUE(sees_to(R"(, "config": "version: v2\npolicies:\n  a: [{devices: all, mode: host}]\n")"));
  plugin.reset();
  EXPECT_TRUE(becomes(api::NodePhase::ready, policy::Mode::host));
}

TEST_F(NodeLoopTest, EndsAsApplyDoesWhenItRunsOnce) {
  EXPECT_EQ(must(once()), ExitStatus::done);
  want("passthrough");
  EXPECT_EQ(must(once()), ExitStatus::done);
  EXPECT_EQ(kernel_.driver_of(kGpu), "vfio-pci");
  {
    const test::IdleProcess worker;
    user_.pid = worker.pid();
    want("host");
    EXPECT_EQ(must(once()), ExitStatus::refused);
    EXPECT_EQ(kernel_.driver_of(kGpu), "vfio-pci");
    user_.pid = 0;
  }
  kernel_.file("var/lib/ferry/desired.json", "{");
  EXPECT_EQ(must(once()), ExitStatus::usage);
}

TEST_F(NodeLoopTest, IsTheOnlyOne) {
  std::optional<InstanceLock> other = must(InstanceLock::claim(kernel_, kLock));
  const auto refused = once();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_EQ(refused.error().message, "/run/ferry/hostd/hostd.lock: another ferry hostd keeps this node");
  EXPECT_NE(refused.error().hint, "");
  want("passthrough");
  start();
  ASSERT_TRUE(test::becomes_open(kernel_.root() / kLock, 2)) << "it has tried";
  EXPECT_FALSE(kernel_.exists(kStatusFile));
  other.reset();
  EXPECT_TRUE(becomes(api::NodePhase::ready, policy::Mode::passthrough)) << "once the other has ended";
}

TEST_F(NodeLoopTest, IsSeenToRunWhileItKeepsTheNode) {
  EXPECT_FALSE(must(is_present(kernel_, kLiveness)));
  EXPECT_EQ(must(once()), ExitStatus::done);
  EXPECT_FALSE(kernel_.exists(kLiveness)) << "what runs once keeps nothing";
  std::optional<InstanceLock> other = must(InstanceLock::claim(kernel_, kLock));
  want("passthrough");
  start();
  ASSERT_TRUE(test::becomes_open(kernel_.root() / kLock, 2)) << "it has tried";
  EXPECT_FALSE(kernel_.exists(kLiveness)) << "who waits keeps nothing";
  other.reset();
  ASSERT_TRUE(becomes(api::NodePhase::ready, policy::Mode::passthrough));
  EXPECT_TRUE(must(is_present(kernel_, kLiveness)));
  EXPECT_TRUE(stop());
  EXPECT_FALSE(must(is_present(kernel_, kLiveness)));
}

TEST_F(NodeLoopTest, KeepsTheNodeThoughAnotherProcessLocksItsFile) {
  kernel_.file(kLiveness, "");
  const UniqueFd stranger = must(kernel_.open(kLiveness, O_RDONLY));
  ASSERT_EQ(::flock(stranger.get(), LOCK_EX | LOCK_NB), 0);
  want("passthrough");
  const test::LogOf log;
  start();
  EXPECT_TRUE(becomes(api::NodePhase::ready, policy::Mode::passthrough));
  ASSERT_EQ(::flock(stranger.get(), LOCK_UN), 0);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!must(is_present(kernel_, kLiveness)) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(must(is_present(kernel_, kLiveness)));
  EXPECT_TRUE(stop());
  EXPECT_THAT(log.text(), testing::HasSubstr("`lslocks` shows the process"));
}

TEST_F(NodeLoopTest, TellsThatItRunsWhereItsFileIsThereAlready) {
  kernel_.file(kLiveness, "");
  const auto folder = must(DirectoryWatch::open(kernel_, "run/ferry", DirectoryWatch::Contents::written));
  ASSERT_TRUE(starts_as(api::NodePhase::idle, policy::Mode::host));
  const auto events = folder.read();
  EXPECT_TRUE(std::ranges::any_of(events, [](const DirectoryEvent& event) {
    return event.kind == DirectoryEvent::Kind::written && event.name == "hostd.running";
  }));
}

// A reader of a FIFO waits for a writer that never comes.
TEST_F(NodeLoopTest, IsKeptWaitingByNoFifoInThePlaceOfAFile) {
  for (const char* file : {"var/lib/ferry/serving.json", "run/ferry/plugin/advertised.json"}) {
    kernel_.directory(std::filesystem::path(file).parent_path());
    ASSERT_EQ(::mkfifo((kernel_.root() / file).c_str(), 0600), 0);
  }
  want("passthrough");
  ASSERT_TRUE(starts_as(api::NodePhase::ready, policy::Mode::passthrough));
  kernel_.remove("var/lib/ferry/desired.json");
  ASSERT_EQ(::mkfifo((kernel_.root() / "var/lib/ferry/desired.json").c_str(), 0600), 0);
  EXPECT_TRUE(reported([](const api::HostStatus& state) {
    return state.error && state.error->message.find("/var/lib/ferry/desired.json: it is no regular file") !=
                              std::string::npos;
  }));
  kernel_.remove("var/lib/ferry/desired.json");
  want("host");
  EXPECT_TRUE(becomes(api::NodePhase::ready, policy::Mode::host));
}

TEST_F(NodeLoopTest, GoesOnWhenItsFolderIsRemoved) {
  want("passthrough");
  ASSERT_TRUE(starts_as(api::NodePhase::ready, policy::Mode::passthrough));
  kernel_.remove("run/ferry");
  kernel_.directory("run/ferry");  // for the test to watch it
  ASSERT_TRUE(becomes(api::NodePhase::ready, policy::Mode::passthrough)) << "it is reported again";
  EXPECT_FALSE(InstanceLock::claim(kernel_, kLock)) << "nobody else begins";
  EXPECT_TRUE(must(is_present(kernel_, kLiveness)));
  want("host");
  EXPECT_TRUE(becomes(api::NodePhase::ready, policy::Mode::host));
}

TEST_F(NodeLoopTest, EndsWhenAnotherHasBegunSinceItsFolderWasRemoved) {
  want("passthrough");
  ASSERT_TRUE(starts_as(api::NodePhase::ready, policy::Mode::passthrough));
  // Beside the old one until the name leads there, so that nothing comes between.
  const auto other = must(InstanceLock::claim(kernel_, "run/ferry/other"));
  std::filesystem::rename(kernel_.root() / "run/ferry/other", kernel_.root() / kLock);
  want("host");
  ASSERT_EQ(result_.wait_for(kPatience), std::future_status::ready);
  thread_.join();
  const auto ended = result_.get();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Errc::refused);
  EXPECT_EQ(kernel_.driver_of(kGpu), "vfio-pci");
}

TEST_F(NodeLoopTest, AdvertisesUnavailableDevicesAgainWhenItCannotGoOn) {
  want("passthrough");
  const auto plugin = must(LivenessLock::announce(kernel_, "run/ferry/plugin/plugin.lock"));
  ASSERT_TRUE(starts_as(api::NodePhase::ready, policy::Mode::passthrough));
  want("host");
  ASSERT_TRUE(becomes(api::NodePhase::applying, policy::Mode::passthrough));
  // A directory that is no lock, where its lock was; at once, so that it cannot be had again between.
  kernel_.directory("run/ferry/other");
  ASSERT_EQ(::renameat2(AT_FDCWD, (kernel_.root() / "run/ferry/other").c_str(), AT_FDCWD,
                        (kernel_.root() / kLock).c_str(), RENAME_EXCHANGE),
            0);
  want("host");
  ASSERT_EQ(result_.wait_for(kPatience), std::future_status::ready);
  thread_.join();
  EXPECT_FALSE(result_.get());
  const api::HostStatus left = must(api::read_host_status(must(kernel_.read_file(kStatusFile))));
  EXPECT_EQ(left.phase, api::NodePhase::applying) << "nothing has failed";
  EXPECT_THAT(left.unavailable, testing::IsEmpty());
}

}  // namespace
}  // namespace ferry::host
