// SPDX-License-Identifier: Apache-2.0
// The rounds of hostd against a fake host and a stand-in for the device plugin that follows its files.
#include "host/node_keeper.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "api/files.h"
#include "api/host_status.h"
#include "api/serving.h"
#include "hostfs/locks.h"
#include "tests/support/fake_mdev.h"
#include "tests/support/must.h"
#include "vfio/bind/fence.h"
#include "vfio/quiesce/release.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::SizeIs;
using Clock = NodeKeeper::Clock;
using News = NodeKeeper::News;

/// Free, but for what a test says.
class DeviceUsers final : public vfio::UseProbe {
 public:
  std::map<std::string, vfio::DeviceUser> held;
  std::function<void()> before_look;
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override {
    if (before_look) before_look();
    vfio::UseReport report;
    for (const vfio::UseQuestion& question : questions)
      if (const auto user = held.find(question.device); user != held.end())
        report.users[question.device] = {user->second};
    return report;
  }
};

/// As another one, but for what it cannot see.
class Cautious final : public vfio::UseProbe {
 public:
  explicit Cautious(vfio::UseProbe& as) : as_(as) {}
  std::string blind;
  std::vector<std::string> unknown;
  std::optional<Error> error;
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override {
    if (error) return fail(Error(*error));
    auto report = as_.look(questions);
    if (report) report->blind = blind;
    if (report) report->unknown = unknown;
    return report;
  }

 private:
  vfio::UseProbe& as_;
};

/// Keeps what it was told to start, and can do it but where a test says not.
class Orders final : public vfio::Releaser {
 public:
  std::vector<std::string> started;
  bool fails = false;
  Result<> stop(const std::string& /*unit*/) override { return {}; }
  Result<> start(const std::string& unit) override {
    started.push_back(unit);
    return fails ? Result<>(fail(Errc::failed, unit + " does not start")) : Result<>();
  }
};

/// Of a driver that has none, but for those that were left.
class Locks final : public vfio::DriverLock {
 public:
  std::vector<std::string> released;
  bool fails = false;
  bool has(const vfio::PciAddress& /*device*/) const override { return false; }
  Result<> take(const vfio::PciAddress& /*device*/) override { return {}; }
  Result<> release(const vfio::PciAddress& device) override {
    released.push_back(device.text());
    return fails ? Result<>(fail(Errc::failed, "the driver says no")) : Result<>();
  }
};

vfio::DeviceUser vm(int pid) {
  return {.kind = vfio::DeviceUser::Kind::virtual_machine,
          .name = "tenant",
          .pid = pid,
          .what = "its group",
          .pod_uid = "uid-7"};
}

/// Three T4s, each in a group of its own, on the driver that divides them.
class NodeKeeperTest : public testing::Test {
 protected:
  static constexpr const char* kFirst = "0000:05:00.0";
  static constexpr const char* kSecond = "0000:06:00.0";
  static constexpr const char* kThird = "0000:07:00.0";
  static constexpr const char* kDesired = "var/lib/ferry/desired.json";
  static constexpr const char* kServing = "var/lib/ferry/serving.json";

  NodeKeeperTest() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    unsigned group = 5;
    for (const char* address : {kFirst, kSecond, kThird}) {
      kernel_.add_function({.address = address,
                            .ids = "10de:1eb8",
                            .subsystem_ids = "10de:12a2",
                            .class_code = 0x030200,
                            .group = group++,
                            .driver = "nvidia"});
      mdev_.add_parent(address);
    }
    kernel_.file("proc/sys/kernel/random/boot_id", "b\n");
  }

  NodeHost host(const NodeProbes& uses) {
    const vfio::AcceleratorRules rules{.vendors = {0x10de}, .classes = {vfio::PciClass::display_3d}};
    return {
        .moves = {.host = &kernel_,
                  .writer = &kernel_,
                  .probe = &uses.moves,
                  .rules = rules,
                  .on_step = {},
                  .driver_lock = &locks_,
                  .releaser = &services_},
        .vgpus = {.host = kernel_, .writer = kernel_, .uses = uses.vgpus, .rules = rules, .node = "node-a"}};
  }
  NodeKeeper make_keeper() {
    return {kernel_,
            {.moves = holders_, .vgpus = vgpu_holders_, .open = open_holders_},
            [this](const NodeProbes& uses) { return host(uses); },
            settings_};
  }
  /// `items`: of the policy's list.
  void want(const std::string& items, std::uint64_t generation = 1) {
    const api::DesiredFile desired{
        .generation = generation,
        .policy = "a",
        .config = ConfigText{.file = {}, .text = "version: v2\npolicies:\n  a:\n" + items},
        .source = "a test"};
    kernel_.file(kDesired, api::desired_file_text(desired));
  }
  NodeKeeper::Round round(News news = News::anything) {
    now_ += 1s;
    return keeper_.round(news);
  }
  /// As the loop does it: the plugin is told, answers, and that is news.
  NodeKeeper::Round rounds() {
    auto last = round();
    for (int i = 0; i < 10 && plugin_follows(); ++i) last = round();
    return last;
  }

  api::HostStatus state() const {
    return must(api::read_host_status(must(kernel_.read_file("run/ferry/status.json"))));
  }
  api::AcceleratorStatus gpu(const std::string& address) const {
    for (const api::AcceleratorStatus& one : state().accelerators)
      if (one.address.text() == address) return one;
    throw std::runtime_error("no " + address + " in status.json");
  }
  std::vector<std::string> withdrawn() const {
    std::vector<std::string> ids;
    for (const api::Withdrawal& one : state().withdraw) ids.push_back(one.id);
    return ids;
  }
  std::vector<std::string> drivers() const {
    std::vector<std::string> out;
    for (const char* address : {kFirst, kSecond, kThird}) out.push_back(kernel_.driver_of(address));
    return out;
  }
  std::vector<std::string> host_writes() const {
    std::vector<std::string> out = kernel_.writes();
    std::erase_if(out, [](const std::string& write) { return write.find("run/ferry") != std::string::npos; });
    return out;
  }

  // -- the plugin --
  void start_plugin() {
    liveness_.emplace(must(LivenessLock::announce(kernel_, "run/ferry/plugin/plugin.lock")));
    plugin_follows();
  }
  void kill_plugin() { liveness_.reset(); }
  /// It has read status.json, and lists what is on vfio, and vGPUs, and is not withdrawn; what it has listed
  /// before also without a driver; what is allocated in any case. Whether its file is another now.
  bool plugin_follows() {
    if (!liveness_ || silent_) return false;
    const auto text = kernel_.read_file("run/ferry/status.json");
    const auto withdrawals = text ? must(api::read_withdrawals(*text)) : api::HostStatus();
    auto devices = nlohmann::json::array();
    const auto add = [&](const std::string& id, unsigned group) {
      const bool allocated = allocated_.contains(id);
      if (!allocated && std::ranges::any_of(withdrawals.withdraw, [&](const api::Withdrawal& one) {
            return one.id == id || (kata_ && iommu_group_of(kernel_, one.id) == group);
          })) {
        listed_.erase(id);
        return;
      }
      listed_.insert(id);
      devices.push_back(
          {{"id", kata_ ? std::to_string(group) : id}, {"iommu_group", group}, {"allocated", allocated}});
    };
    for (const char* address : {kFirst, kSecond, kThird}) {
      const std::string driver = kernel_.driver_of(address);
      if (driver == "vfio-pci" || (driver.empty() && listed_.contains(address)))
        add(address, *iommu_group_of(kernel_, address));
      if (!driver.empty() && driver != "vfio-pci") listed_.erase(address);
      for (const std::string& vgpu : mdev_.devices_on(address)) add(vgpu.substr(vgpu.find(' ') + 1), 200);
    }
    const nlohmann::json file = {{"version", 2},
                                 {"state_generation", withdrawals.generation + answer_ahead_},
                                 {"resources", {{{"name", "nvidia.com/T4"}, {"devices", devices}}}}};
    const std::string now = file.dump();
    if (now == kernel_.read_file("run/ferry/plugin/advertised.json").value_or("")) return false;
    kernel_.file("run/ferry/plugin/advertised.json", now);
    return true;
  }

  test::FakeKernel kernel_;
  test::FakeMdev mdev_{kernel_};
  DeviceUsers holders_;
  Cautious vgpu_holders_{holders_};
  Cautious open_holders_{holders_};
  Orders services_;
  Locks locks_;
  KeeperSettings settings_{.lock_patience = 1ms,
                           .watch_ends = [](const std::set<int>& processes) { return processes.size() <= 2; },
                           .now = [this] { return now_; }};
  NodeKeeper keeper_ = make_keeper();
  Clock::time_point now_ = Clock::time_point() + 1h;
  std::optional<LivenessLock> liveness_;
  std::set<std::string> allocated_;
  std::set<std::string> listed_;
  bool silent_ = false;
  bool kata_ = false;
  std::uint64_t answer_ahead_ = 0;
};

constexpr const char* kAllAway = "  - {devices: all, mode: passthrough}\n";
constexpr const char* kAllBack = "  - {devices: all, mode: host}\n";
constexpr const char* kFirstBack = "  - {devices: all, mode: passthrough}\n  - {devices: [0], mode: host}\n";
constexpr const char* kDivided = "  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n";

TEST_F(NodeKeeperTest, ChangesNothingWhereNothingIsWanted) {
  EXPECT_EQ(round().phase, api::NodePhase::idle);
  EXPECT_THAT(host_writes(), IsEmpty());
  EXPECT_EQ(state().phase, api::NodePhase::idle);
  EXPECT_FALSE(state().desired);
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::unmanaged);
  EXPECT_EQ(gpu(kFirst).mode, policy::Mode::host);
  EXPECT_EQ(gpu(kFirst).driver, "nvidia");
  EXPECT_EQ(gpu(kFirst).id, "10de:1eb8");
}

TEST_F(NodeKeeperTest, MakesTheNodeAsWantedAndSaysSo) {
  want(kAllAway, 12);
  const auto done = round();
  EXPECT_EQ(done.phase, api::NodePhase::ready);
  EXPECT_EQ(done.status, ExitStatus::done);
  EXPECT_FALSE(done.again);
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "vfio-pci"));
  const api::HostStatus told = state();
  EXPECT_EQ(told.desired.value_or(api::DesiredMark()), (api::DesiredMark{12, "a", "a test"}));
  EXPECT_EQ(told.phase, api::NodePhase::ready);
  EXPECT_EQ(told.boot_id, "b");
  EXPECT_EQ(told.pid, ::getpid());
  EXPECT_EQ(gpu(kSecond).mode, policy::Mode::passthrough);
  EXPECT_EQ(gpu(kSecond).desired, policy::Mode::passthrough);
  EXPECT_EQ(gpu(kSecond).state, api::GpuState::ready);
}

// What is taken away cannot be put back for the pod that was given it. Groups come back.
TEST_F(NodeKeeperTest, TakesNoVgpuAwayWhileItsUsersAreNotKnown) {
  want("  - {devices: [0], mode: passthrough}\n" + std::string(kDivided));
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  vgpu_holders_.blind = "the kubelet does not answer";
  want(kAllBack);
  const auto refused = rounds();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_THAT(gpu(kSecond).reason, HasSubstr("the kubelet does not answer"));
  EXPECT_THAT(mdev_.devices_on(kSecond), SizeIs(2));
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
  vgpu_holders_.blind.clear();
  now_ += 1h;
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(mdev_.devices_on(kSecond), IsEmpty());
}

TEST_F(NodeKeeperTest, WritesNothingWhenNothingHasChanged) {
  start_plugin();
  want(kAllAway);
  rounds();
  kernel_.forget_changes();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(NodeKeeperTest, TakesUpAnotherDesiredState) {
  want(kAllAway);
  round();
  want(kDivided);
  EXPECT_EQ(round().phase, api::NodePhase::ready) << "GPUs that no item is for are left as they are";
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "nvidia", "vfio-pci"));
  EXPECT_THAT(gpu(kSecond).vgpus, SizeIs(2));
  EXPECT_EQ(gpu(kSecond).vgpus.at(0).type, "T4-4Q");
  // Four of them fit; a GPU that carries vGPUs of one size takes none of another.
  EXPECT_THAT(gpu(kSecond).more_vgpus, IsSupersetOf({std::pair("T4-4Q", 2U), {"T4-8Q", 0U}}));
  EXPECT_THAT(gpu(kFirst).more_vgpus, IsEmpty()) << "nobody lists what could be made on a GPU on vfio";
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::unmanaged);
}

TEST_F(NodeKeeperTest, LeavesTheHostAsItIsWhenItCannotReadWhatIsWanted) {
  want(kAllAway);
  round();
  kernel_.forget_changes();
  kernel_.file(kDesired, "{\"version\": 2,\n \"polcy\": \"a\"}");
  const auto broken = round();
  EXPECT_EQ(broken.phase, api::NodePhase::failed);
  EXPECT_EQ(broken.status, ExitStatus::usage);
  EXPECT_THAT(host_writes(), IsEmpty());
  const auto error = state().error.value_or(api::StatusError());
  EXPECT_THAT(error.message,
              HasSubstr("/var/lib/ferry/desired.json:2: polcy: unknown key; did you mean 'policy'?"));
  EXPECT_EQ(gpu(kFirst).mode, policy::Mode::passthrough) << "what is there is told all the same";
  want(kAllBack);
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_FALSE(state().error);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
}

TEST_F(NodeKeeperTest, FollowsTheFileThatIsNamed) {
  const auto write_policy = [this](const char* items) {
    kernel_.file("etc/ferry/policy.yaml", std::string("version: v2\npolicies:\n  a:\n") + items);
  };
  const auto grow_old = [this] {
    const auto file = kernel_.root() / "etc/ferry/policy.yaml";
    std::filesystem::last_write_time(file, std::filesystem::last_write_time(file) - 2s);
  };
  write_policy(kAllAway);
  kernel_.file(kDesired, R"({"version": 2, "policy": "a", "file": "/etc/ferry/policy.yaml"})");
  const auto early = round();
  EXPECT_THAT(host_writes(), IsEmpty()) << "somebody may be writing still";
  EXPECT_TRUE(early.unfinished);
  EXPECT_EQ(early.again, now_ + 1s);
  EXPECT_EQ(early.file.value_or(""), "/etc/ferry/policy.yaml");
  grow_old();
  const auto done = round();
  EXPECT_FALSE(done.unfinished);
  EXPECT_EQ(done.file.value_or(""), "/etc/ferry/policy.yaml");
  EXPECT_THAT(drivers(), Contains("vfio-pci"));
  write_policy(kAllAway);
  EXPECT_FALSE(round().unfinished) << "the same again";
  write_policy(kAllBack);
  EXPECT_TRUE(round().unfinished);
  grow_old();
  round();
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
}

// -- the plugin makes way first --

TEST_F(NodeKeeperTest, WaitsForThePluginBeforeItTakesAGpuBack) {
  want(kAllAway);
  start_plugin();
  rounds();
  kernel_.forget_changes();
  want(kFirstBack);
  const auto waiting = round();
  EXPECT_EQ(waiting.phase, api::NodePhase::applying);
  EXPECT_TRUE(waiting.again) << "a plugin that never answers";
  EXPECT_THAT(withdrawn(), ElementsAre(kFirst));
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::pending);
  EXPECT_EQ(round().phase, api::NodePhase::applying) << "other news";
  EXPECT_THAT(host_writes(), IsEmpty());

  ASSERT_TRUE(plugin_follows());
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "vfio-pci"));
  EXPECT_THAT(withdrawn(), IsEmpty()) << "whatever is there now may be advertised";
}

TEST_F(NodeKeeperTest, TakesNoAnswerToAnEarlierFile) {
  want(kAllAway);
  start_plugin();
  rounds();
  want(kFirstBack);
  EXPECT_EQ(round().phase, api::NodePhase::applying) << "it has answered the file before";
  kernel_.forget_changes();
  // It lists nothing, but from before it was asked: it may be about to list the GPU.
  nlohmann::json file = {
      {"version", 2}, {"state_generation", state().generation - 1}, {"resources", nlohmann::json::array()}};
  kernel_.file("run/ferry/plugin/advertised.json", file.dump());
  EXPECT_EQ(round().phase, api::NodePhase::applying);
  EXPECT_THAT(host_writes(), IsEmpty());
  file["state_generation"] = state().generation;
  kernel_.file("run/ferry/plugin/advertised.json", file.dump());
  EXPECT_EQ(round().phase, api::NodePhase::ready);
}

TEST_F(NodeKeeperTest, CountsOnFromWhereThePluginIs) {
  want(kAllAway);
  answer_ahead_ = 500;
  start_plugin();
  round();
  EXPECT_GT(state().generation, 500U);
}

TEST_F(NodeKeeperTest, WaitsForVgpusThatGo) {
  want(kDivided);
  start_plugin();
  rounds();
  const std::string id = gpu(kSecond).vgpus.at(0).id;
  want("  - {devices: [1], mode: vgpu, vgpu-devices: {T4-8Q: 1}}\n");
  kernel_.forget_changes();
  EXPECT_EQ(round().phase, api::NodePhase::applying);
  EXPECT_THAT(withdrawn(), AllOf(SizeIs(3), Contains(id))) << "and the one that is made in their place";
  EXPECT_THAT(host_writes(), IsEmpty());
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(gpu(kSecond).vgpus.at(0).type, "T4-8Q");
}

// Somebody has unbound what the plugin had offered: it is listed, Unhealthy, until it is withdrawn.
TEST_F(NodeKeeperTest, AsksForWhatIsListedThoughItHasLostItsDriver) {
  want(kAllAway);
  start_plugin();
  rounds();
  plugin_follows();
  must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", kFirst));
  plugin_follows();
  ASSERT_TRUE(listed_.contains(kFirst));
  EXPECT_EQ(round().phase, api::NodePhase::applying);
  EXPECT_THAT(withdrawn(), ElementsAre(kFirst));
  ASSERT_TRUE(plugin_follows());
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
  EXPECT_THAT(withdrawn(), IsEmpty());
}

TEST_F(NodeKeeperTest, KnowsKatasNumbersByTheirGroups) {
  want(kAllAway);
  kata_ = true;
  start_plugin();
  rounds();
  want(kFirstBack);
  round();
  // It has read the file and lists the GPU's group still: a pod's.
  allocated_ = {kFirst};
  ASSERT_TRUE(plugin_follows());
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
  allocated_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
}

TEST_F(NodeKeeperTest, WaitsForNobodyWithoutAPlugin) {
  want(kAllAway);
  start_plugin();
  rounds();
  kill_plugin();
  want(kFirstBack);
  EXPECT_EQ(round().phase, api::NodePhase::ready) << "what it left in its file is nobody's";
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
}

TEST_F(NodeKeeperTest, DoesNotAskAboutWhatThePluginCannotOffer) {
  start_plugin();
  silent_ = true;
  want(kAllAway);
  EXPECT_EQ(round().phase, api::NodePhase::ready);
}

TEST_F(NodeKeeperTest, RefusesWhenThePluginDoesNotAnswer) {
  want(kAllAway);
  start_plugin();
  rounds();
  silent_ = true;
  want(kFirstBack);
  EXPECT_EQ(round().phase, api::NodePhase::applying);
  now_ += 31s;
  kernel_.forget_changes();
  const auto refused = round();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_EQ(refused.status, ExitStatus::refused);
  EXPECT_THAT(host_writes(), IsEmpty());
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("the device plugin"));
  EXPECT_THAT(gpu(kFirst).hint, HasSubstr("`ferry plugin`")) << "there is no pod to delete";
  EXPECT_THAT(withdrawn(), IsEmpty()) << "the node is as it was";
  ASSERT_TRUE(refused.again) << "nobody tells when it wakes up";
  EXPECT_EQ(*refused.again, now_ + 10s);
}

TEST_F(NodeKeeperTest, LetsNothingBeOfferedThatIsStillBeingMade) {
  start_plugin();
  std::vector<std::string> withheld;
  holders_.before_look = [&] {
    if (kernel_.exists("run/ferry/status.json") && state().phase == api::NodePhase::applying)
      withheld = withdrawn();
  };
  want(
      "  - {devices: [0], mode: passthrough}\n"
      "  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  ASSERT_THAT(gpu(kSecond).vgpus, SizeIs(2));
  EXPECT_THAT(withheld, testing::UnorderedElementsAre(kFirst, gpu(kSecond).vgpus.at(0).id,
                                                      gpu(kSecond).vgpus.at(1).id));
  EXPECT_THAT(withdrawn(), IsEmpty()) << "and then it is";
}

// It may take half a minute to get the node's lock.
TEST_F(NodeKeeperTest, MindsAPluginThatHasStartedSinceThePlan) {
  want(kAllAway);
  round();
  holders_.before_look = [this] {
    if (liveness_ || state().phase != api::NodePhase::applying) return;
    // It has read an earlier file, and has offered the GPU.
    kernel_.file("run/ferry/plugin/advertised.json",
                 R"({"version": 2, "resources": [{"name": "nvidia.com/T4", "devices": [
                     {"id": "0000:05:00.0", "iommu_group": 5, "allocated": false}]}]})");
    liveness_.emplace(must(LivenessLock::announce(kernel_, "run/ferry/plugin/plugin.lock")));
  };
  want(kFirstBack);
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
}

TEST_F(NodeKeeperTest, WaitsForThePluginNoLongerBecauseTheQuestionGrows) {
  want(kAllAway);
  start_plugin();
  rounds();
  plugin_follows();
  want(kFirstBack);
  ASSERT_EQ(round().phase, api::NodePhase::applying);
  const auto asked = now_;
  silent_ = true;
  now_ += 20s;
  // By now a pod has another one, which is waited for too.
  want(kAllBack);
  ASSERT_EQ(round().phase, api::NodePhase::applying) << "another desired state is another question";
  const auto asked_again = now_;
  EXPECT_GT(asked_again, asked);
  now_ += 20s;
  holders_.held = {{kSecond, vm(412)}};
  ASSERT_EQ(round().phase, api::NodePhase::applying);
  ASSERT_THAT(withdrawn(), ElementsAre(kFirst, kThird));
  now_ = asked_again + 30s;
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
}

TEST_F(NodeKeeperTest, WritesItsFileAnewWhenItIsGone) {
  want(kAllAway);
  round();
  kernel_.remove("run/ferry");
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_EQ(state().phase, api::NodePhase::ready);
}

// -- what pods have --

TEST_F(NodeKeeperTest, LeavesWhatAPodHasAndTakesItWhenThePodEnds) {
  want(kAllAway);
  start_plugin();
  rounds();
  allocated_ = {kFirst};
  plugin_follows();
  want(kAllBack);
  const auto refused = rounds();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "nvidia", "nvidia")) << "the others do not wait";
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::blocked);
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("pod (by the kubelet) holds nvidia.com/T4"));
  ASSERT_THAT(gpu(kFirst).users, SizeIs(1));
  EXPECT_EQ(gpu(kFirst).users.at(0).kind, "pod");
  EXPECT_TRUE(gpu(kFirst).users.at(0).by_the_plugin);
  EXPECT_TRUE(gpu(kFirst).only_in_use);
  EXPECT_THAT(withdrawn(), ElementsAre(kFirst)) << "no other pod shall get it when this one ends";

  kernel_.forget_changes();
  EXPECT_EQ(rounds().phase, api::NodePhase::blocked);
  EXPECT_THAT(kernel_.changes(), IsEmpty()) << "and nothing is said twice";

  allocated_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
  EXPECT_THAT(withdrawn(), IsEmpty());
}

TEST_F(NodeKeeperTest, WithdrawsWhatAPodsVmUses) {
  want(kAllAway);
  start_plugin();
  rounds();
  allocated_ = {kFirst};
  holders_.held = {{kFirst, vm(412)}};
  plugin_follows();
  want(kFirstBack);
  const auto refused = rounds();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_THAT(refused.processes, ElementsAre(412));
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("VM tenant (pid 412)"));
  EXPECT_THAT(withdrawn(), ElementsAre(kFirst));
  EXPECT_EQ(refused.again, now_ + 300s) << "the plugin tells, if it lives";
  holders_.held.clear();
  allocated_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
}

TEST_F(NodeKeeperTest, NamesOnlyThoseWhoHaveWhatShallGo) {
  want("  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
  rounds();
  ASSERT_THAT(gpu(kSecond).vgpus, SizeIs(2));
  const std::string stays = gpu(kSecond).vgpus.at(0).id;
  const std::string goes = gpu(kSecond).vgpus.at(1).id;
  holders_.held = {{stays, vm(412)}, {goes, vm(413)}};
  want("  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 1}}\n");
  EXPECT_EQ(rounds().phase, api::NodePhase::blocked);
  EXPECT_TRUE(gpu(kSecond).only_in_use) << gpu(kSecond).reason;
  ASSERT_THAT(gpu(kSecond).users, SizeIs(1)) << gpu(kSecond).reason;
  EXPECT_THAT(gpu(kSecond).reason, HasSubstr("pid " + std::to_string(*gpu(kSecond).users.at(0).pid)));
}

// Of libvirt, or of QEMU by hand, neither the kubelet nor the plugin knows.
TEST_F(NodeKeeperTest, TellsWhoHasAVgpuWithoutTheKubelet) {
  want(kDivided);
  rounds();
  ASSERT_THAT(gpu(kSecond).vgpus, SizeIs(2));
  const std::string id = gpu(kSecond).vgpus.at(0).id;
  EXPECT_FALSE(gpu(kSecond).vgpus.at(0).users) << "nobody has looked";
  holders_.held = {{id, vm(412)}};
  must(keeper_.look_at_use());
  ASSERT_TRUE(gpu(kSecond).vgpus.at(0).users);
  EXPECT_THAT(*gpu(kSecond).vgpus.at(0).users,
              ElementsAre(api::ReportedUser{"virtual_machine", "tenant", 412, "uid-7"}));
  ASSERT_TRUE(gpu(kSecond).vgpus.at(1).users);
  EXPECT_THAT(*gpu(kSecond).vgpus.at(1).users, IsEmpty()) << "free, by all that could be asked";
  const auto generation = state().generation;
  must(keeper_.look_at_use());
  round();
  EXPECT_EQ(state().generation, generation) << "nothing has changed";
  holders_.held.clear();
  must(keeper_.look_at_use());
  EXPECT_THAT(*gpu(kSecond).vgpus.at(0).users, IsEmpty());
}

TEST_F(NodeKeeperTest, CallsNoVgpuFreeWhoseHolderMayHaveGoneUnseen) {
  want(kDivided);
  rounds();
  const std::string id = gpu(kSecond).vgpus.at(0).id;
  holders_.held = {{id, vm(412)}};
  open_holders_.blind = "a process keeps us waiting";
  must(keeper_.look_at_use());
  EXPECT_TRUE(gpu(kSecond).vgpus.at(0).users) << "who is seen is seen";
  EXPECT_FALSE(gpu(kSecond).vgpus.at(1).users);
  open_holders_.blind.clear();
  open_holders_.unknown = {"process 7: permission denied"};
  must(keeper_.look_at_use());
  EXPECT_FALSE(gpu(kSecond).vgpus.at(1).users) << "it may be the one";
}

TEST_F(NodeKeeperTest, SaysOfNoVgpuWhoHasItOnceNobodyCanSee) {
  want(kDivided);
  rounds();
  const std::string id = gpu(kSecond).vgpus.at(0).id;
  holders_.held = {{id, vm(412)}};
  must(keeper_.look_at_use());
  ASSERT_TRUE(gpu(kSecond).vgpus.at(0).users);
  open_holders_.error =
      Error{.code = make_error_code(Errc::malformed_host), .message = "no /proc", .hint = {}};
  EXPECT_FALSE(keeper_.look_at_use());
  EXPECT_FALSE(gpu(kSecond).vgpus.at(0).users);
}

TEST_F(NodeKeeperTest, AsksNobodyWhoHasVgpusWhereThereAreNone) {
  want(kAllAway);
  rounds();
  holders_.before_look = [] { FAIL() << "somebody is asked"; };
  must(keeper_.look_at_use());
}

TEST_F(NodeKeeperTest, WithdrawsTheVgpuThatAPodsVmUses) {
  want(kDivided);
  start_plugin();
  rounds();
  const std::string id = gpu(kSecond).vgpus.at(0).id;
  allocated_ = {id};
  holders_.held = {{id, vm(412)}};
  plugin_follows();
  want("  - {devices: [1], mode: passthrough}\n");
  const auto refused = rounds();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_THAT(withdrawn(), ElementsAre(id));
  holders_.held.clear();
  allocated_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kSecond), "vfio-pci");
}

// A file that cannot be read says nothing about the GPU that a pod has, and the next pod shall not be given.
TEST_F(NodeKeeperTest, AwaitsThePodThoughItCannotReadWhatIsWanted) {
  want(kAllAway);
  start_plugin();
  rounds();
  allocated_ = {kFirst};
  plugin_follows();
  want(kFirstBack);
  rounds();
  ASSERT_THAT(withdrawn(), ElementsAre(kFirst));
  kernel_.file(kDesired, "{");
  EXPECT_EQ(round().phase, api::NodePhase::failed);
  EXPECT_THAT(withdrawn(), ElementsAre(kFirst));
  NodeKeeper next = make_keeper();
  next.round();
  EXPECT_THAT(withdrawn(), ElementsAre(kFirst)) << "after a restart too";
  kernel_.remove(kDesired);
  EXPECT_EQ(next.round().phase, api::NodePhase::idle);
  EXPECT_THAT(withdrawn(), IsEmpty());
}

TEST_F(NodeKeeperTest, TellsOfTheAcceleratorsAsTheyWereWhereTheyCannotBeRead) {
  want(kAllAway);
  round();
  kernel_.remove("sys/bus/pci/devices");
  EXPECT_EQ(round().phase, api::NodePhase::failed);
  EXPECT_THAT(state().accelerators, SizeIs(3));
  EXPECT_EQ(gpu(kFirst).mode, policy::Mode::passthrough);
}

// -- other holders --

TEST_F(NodeKeeperTest, SaysOfAVmsGpuOnlyThatTheVmHasIt) {
  want(kAllAway);
  start_plugin();
  rounds();
  holders_.held = {{kSecond, vm(412)}};
  want(kAllBack);
  const auto refused = rounds();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "nvidia"));
  EXPECT_EQ(gpu(kSecond).reason, "0000:06:00.0 is in use: VM tenant (pid 412) in pod uid-7 holds its group");
  EXPECT_THAT(gpu(kSecond).users, SizeIs(1));
  EXPECT_EQ(refused.again, now_ + 300s);
  EXPECT_THAT(withdrawn(), IsEmpty()) << "it is advertised as before";
}

// What was free when the plugin was asked, and is the kubelet's to give out.
TEST_F(NodeKeeperTest, DoesNotTakeUnaskedWhatHasJustComeFree) {
  want(kAllAway);
  start_plugin();
  rounds();
  holders_.held = {{kSecond, vm(412)}};
  want(kAllBack);
  round();
  plugin_follows();
  unsigned looks = 0;  // the first is the plan's, and decides what the plugin is asked
  holders_.before_look = [&] {
    if (++looks > 1) holders_.held.clear();
  };
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_EQ(kernel_.driver_of(kSecond), "vfio-pci");
}

TEST_F(NodeKeeperTest, RefusesWhatAVmHasAndDoesItWhenTheVmEnds) {
  want(kAllAway);
  round();
  holders_.held = {{kSecond, vm(412)}};
  want(kAllBack);
  const auto refused = round();
  EXPECT_EQ(refused.phase, api::NodePhase::blocked);
  EXPECT_EQ(refused.status, ExitStatus::refused);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "nvidia"));
  EXPECT_THAT(refused.processes, ElementsAre(412));
  EXPECT_EQ(refused.again, now_ + 300s) << "the kernel tells of its end, and not that it lets go";
  ASSERT_THAT(gpu(kSecond).users, SizeIs(1));
  EXPECT_EQ(gpu(kSecond).users.at(0), (api::ReportedUser{"virtual_machine", "tenant", 412, "uid-7"}));
  EXPECT_TRUE(gpu(kSecond).only_in_use);
  EXPECT_THAT(gpu(kSecond).hint, HasSubstr("stop the VM"));
  EXPECT_THAT(withdrawn(), IsEmpty());
  holders_.held.clear();
  EXPECT_EQ(round(News::process_ended).phase, api::NodePhase::ready);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
}

TEST_F(NodeKeeperTest, SaysWhereMoreThanAHolderStandsInTheWay) {
  kernel_.add_driver({.name = "e1000e", .ids = {"class:0200"}});
  kernel_.add_function({.address = "0000:09:00.0",
                        .ids = "8086:10d3",
                        .class_code = 0x020000,
                        .group = 6,
                        .driver = "e1000e"});
  holders_.held = {{kFirst, vm(412)}, {kSecond, vm(413)}};
  want(kAllAway);
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_TRUE(gpu(kFirst).only_in_use);
  EXPECT_EQ(gpu(kSecond).state, api::GpuState::blocked);
  EXPECT_FALSE(gpu(kSecond).only_in_use) << gpu(kSecond).reason;
}

TEST_F(NodeKeeperTest, WritesNothingForWhatIsStillRefused) {
  want(kAllAway);
  round();
  holders_.held = {{kSecond, vm(412)}};
  want(kAllBack);
  round();
  kernel_.forget_changes();
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(NodeKeeperTest, ComesBackToHoldersOfWhichNobodyTells) {
  want(kAllAway);
  round();
  vfio::DeviceUser configured = vm(0);
  configured.pid.reset();
  holders_.held = {{kSecond, configured}};
  want(kAllBack);
  const auto refused = round();
  ASSERT_TRUE(refused.again);
  EXPECT_EQ(*refused.again, now_ + 10s);
  const auto again = round();
  ASSERT_TRUE(again.again);
  EXPECT_EQ(*again.again, now_ + 20s);
}

TEST_F(NodeKeeperTest, ComesBackToThoseWhoseEndsAreNotAllTold) {
  want(kAllAway);
  round();
  holders_.held = {{kFirst, vm(41)}, {kSecond, vm(42)}, {kThird, vm(43)}};
  want(kAllBack);
  const auto untold = round();
  EXPECT_EQ(untold.phase, api::NodePhase::blocked);
  EXPECT_EQ(untold.again, now_ + 10s);
  holders_.held.erase(kThird);
  const auto told = round();
  EXPECT_EQ(told.phase, api::NodePhase::blocked);
  EXPECT_EQ(told.again, now_ + 300s);
}

// -- what a run that was killed has left --

constexpr const char* kStopped = "run/ferry/hostd/stopped-services.json";
constexpr const char* kDcgmStopped =
    R"({"version":1,"boot_id":"b","services":{"nvidia-dcgm.service":"to start"}})";

TEST_F(NodeKeeperTest, MakesGoodWhatWasLeftWhateverIsWanted) {
  const std::map<std::string, api::NodePhase> desired = {
      {"", api::NodePhase::idle},
      {"{", api::NodePhase::failed},
      {R"({"version": 2, "policy": "none"})", api::NodePhase::failed}};
  for (const auto& [status, phase] : desired) {
    SCOPED_TRACE(status);
    kernel_.file(kStopped, kDcgmStopped);
    must(vfio::record_lock(kernel_, vfio::PciAddress::parse(kFirst).value()));
    if (!status.empty()) kernel_.file(kDesired, status);
    services_.started.clear();
    locks_.released.clear();
    EXPECT_EQ(round().phase, phase);
    EXPECT_THAT(services_.started, ElementsAre("nvidia-dcgm.service"));
    EXPECT_THAT(locks_.released, ElementsAre(kFirst));
    EXPECT_FALSE(kernel_.exists(kStopped));
    EXPECT_THAT(must(vfio::recorded_locks(kernel_)), IsEmpty());
    round();
    EXPECT_THAT(services_.started, SizeIs(1)) << "once";
  }
}

TEST_F(NodeKeeperTest, MakesGoodWhatWasLeftThoughThePolicyCannotBe) {
  kernel_.file(kStopped, kDcgmStopped);
  kernel_.add_function({.address = "0000:05:00.1",
                        .ids = "10de:1eb8",
                        .class_code = 0x030200,
                        .group = 5,
                        .driver = "nvidia"});
  want("  - {devices: all, mode: host}\n  - {devices: [0], mode: passthrough}\n");
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_THAT(services_.started, ElementsAre("nvidia-dcgm.service"));
}

TEST_F(NodeKeeperTest, MakesGoodWhatWasLeftThoughPodsHaveAll) {
  want(kAllAway);
  start_plugin();
  rounds();
  plugin_follows();
  allocated_ = {kFirst, kSecond, kThird};
  plugin_follows();
  kernel_.file(kStopped, kDcgmStopped);
  want(kAllBack);
  EXPECT_EQ(rounds().phase, api::NodePhase::blocked);
  EXPECT_THAT(services_.started, ElementsAre("nvidia-dcgm.service"));
}

TEST_F(NodeKeeperTest, SaysWhatOfItFailsAndTriesAgain) {
  for (const bool broken_file : {false, true}) {
    SCOPED_TRACE(broken_file);
    if (broken_file) kernel_.file(kDesired, "{");
    kernel_.file(kStopped, kDcgmStopped);
    services_.fails = true;
    const auto failed = round();
    EXPECT_EQ(failed.phase, api::NodePhase::failed);
    EXPECT_NE(failed.status, ExitStatus::done);
    EXPECT_THAT(state().error.value_or(api::StatusError()).message,
                HasSubstr("nvidia-dcgm.service does not start"));
    ASSERT_TRUE(failed.again);
    services_.fails = false;
    services_.started.clear();
    EXPECT_EQ(round().again, failed.again);
    EXPECT_THAT(services_.started, IsEmpty()) << "deaf until it is time";
    now_ = *failed.again;
    EXPECT_EQ(keeper_.round().phase, broken_file ? api::NodePhase::failed : api::NodePhase::idle);
    EXPECT_THAT(services_.started, ElementsAre("nvidia-dcgm.service"));
  }
}

TEST_F(NodeKeeperTest, SaysThatALockStaysTakenAndTriesAgain) {
  must(vfio::record_lock(kernel_, vfio::PciAddress::parse(kFirst).value()));
  locks_.fails = true;
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  EXPECT_EQ(state().error.value_or(api::StatusError()).message,
            "the lock of 0000:05:00.0 against unbinding was left by an earlier run and stays taken");
  locks_.fails = false;
  ASSERT_TRUE(failed.again);
  now_ = *failed.again;
  EXPECT_EQ(keeper_.round().phase, api::NodePhase::idle);
}

TEST_F(NodeKeeperTest, MakesGoodWhatWasLeftOnceNobodyElseChangesTheHost) {
  kernel_.file(kStopped, kDcgmStopped);
  std::optional<NodeLock> other = must(NodeLock::take(kernel_, 0ms));
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  EXPECT_THAT(state().error.value_or(api::StatusError()).message,
              HasSubstr("another ferry is changing this host"));
  EXPECT_THAT(services_.started, IsEmpty());
  other.reset();
  ASSERT_TRUE(failed.again);
  now_ = *failed.again;
  EXPECT_EQ(keeper_.round().phase, api::NodePhase::idle);
  EXPECT_THAT(services_.started, ElementsAre("nvidia-dcgm.service"));
}

// -- failures --

TEST_F(NodeKeeperTest, TriesAgainAfterAFailureWhenItIsTimeAndNotBefore) {
  want("  - {devices: [1], mode: passthrough}\n");
  round();
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/bind");
  want("  - {devices: [0], mode: passthrough}\n");
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  EXPECT_EQ(failed.status, ExitStatus::failed);
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::failed);
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("vfio-pci/bind"));
  ASSERT_TRUE(failed.again);
  EXPECT_EQ(*failed.again, now_ + 10s);

  kernel_.forget_changes();
  EXPECT_EQ(round().again, failed.again) << "our own writes made events";
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  auto last = failed;
  for (const auto pause : {20s, 40s, 80s, 160s, 300s, 300s}) {
    ASSERT_TRUE(last.again);
    now_ = *last.again;
    last = keeper_.round();
    EXPECT_EQ(last.again, now_ + pause);
    EXPECT_THAT(host_writes(), testing::Not(IsEmpty()));
    kernel_.forget_changes();
  }
  // Another desired state is another matter.
  want(kAllBack);
  EXPECT_EQ(round().phase, api::NodePhase::ready);
}

TEST_F(NodeKeeperTest, OffersWhatWasTakenBackAndTriesAgain) {
  start_plugin();
  want("  - {devices: [0], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n  - {devices: [1], mode: passthrough}\n");
  ASSERT_EQ(rounds().phase, api::NodePhase::ready);
  plugin_follows();
  const auto vgpus = gpu(kFirst).vgpus;
  kernel_.fail_for_good({.path = "sys/bus/pci/drivers/vfio-pci/bind", .value = kFirst}, EIO);
  want(
      "  - {devices: [0], mode: passthrough}\n  - {devices: [1], mode: vgpu, vgpu-devices: {L40S-12Q: 1}}\n");
  const auto failed = rounds();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "nvidia"));
  EXPECT_EQ(gpu(kFirst).vgpus, vgpus);
  EXPECT_EQ(gpu(kFirst).state, api::GpuState::failed);
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("it could not be bound for passthrough: bind 0000:05:00.0"));
  EXPECT_EQ(gpu(kSecond).state, api::GpuState::blocked);
  EXPECT_THAT(gpu(kSecond).reason, HasSubstr("L40S-12Q"));
  EXPECT_THAT(withdrawn(), IsEmpty());

  kernel_.mend();
  ASSERT_TRUE(failed.again);
  now_ = *failed.again;
  rounds();
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "nvidia"));
}

TEST_F(NodeKeeperTest, HearsThatAPodEndsWhileAnotherGpuFails) {
  want(kAllAway);
  start_plugin();
  rounds();
  plugin_follows();
  allocated_ = {kSecond};
  plugin_follows();
  want("  - {devices: [0, 1], mode: host}\n");
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/unbind");
  const auto failed = rounds();
  ASSERT_EQ(failed.phase, api::NodePhase::failed);
  kernel_.file("sys/bus/pci/drivers/vfio-pci/unbind", "");
  ASSERT_EQ(round().again, failed.again) << "deaf to all else";
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
  allocated_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "vfio-pci"));
}

// The pod begins after the failed attempt and ends before the pause does.
TEST_F(NodeKeeperTest, HearsThatAPodEndsWhichHasComeSinceTheFailure) {
  want(kAllAway);
  start_plugin();
  rounds();
  plugin_follows();
  want("  - {devices: [0, 1], mode: host}\n");
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/unbind");
  const auto failed = rounds();
  ASSERT_EQ(failed.phase, api::NodePhase::failed);
  kernel_.file("sys/bus/pci/drivers/vfio-pci/unbind", "");
  allocated_ = {kSecond};
  ASSERT_TRUE(plugin_follows());
  ASSERT_EQ(round().again, failed.again);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
  allocated_.clear();
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  ASSERT_TRUE(failed.again);
  EXPECT_LT(now_, *failed.again) << "before the pause is over";
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "vfio-pci"));
}

// Else the echo of a long failure would be heard, and tried again at once.
TEST_F(NodeKeeperTest, PausesFromTheEndOfWhatItHasTried) {
  want("  - {devices: [1], mode: passthrough}\n");
  round();
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/bind");
  holders_.before_look = [this] { now_ += 60s; };
  want("  - {devices: [0], mode: passthrough}\n");
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::failed);
  ASSERT_TRUE(failed.again);
  EXPECT_EQ(*failed.again, now_ + 10s);
  kernel_.forget_changes();
  round();
  EXPECT_THAT(host_writes(), IsEmpty());
}

TEST_F(NodeKeeperTest, DoesNothingWhileAnotherChangesTheHost) {
  want(kAllAway);
  std::optional<NodeLock> other = must(NodeLock::take(kernel_, 0ms));
  const auto failed = round();
  EXPECT_EQ(failed.phase, api::NodePhase::applying) << "nothing was tried, so nothing has failed";
  EXPECT_EQ(failed.status, ExitStatus::failed) << "of a single look";
  EXPECT_EQ(state().phase, api::NodePhase::applying);
  EXPECT_THAT(state().error.value_or(api::StatusError()).message,
              HasSubstr("another ferry is changing this host"));
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
  other.reset();
  ASSERT_TRUE(failed.again);
  now_ = *failed.again;
  EXPECT_EQ(keeper_.round().phase, api::NodePhase::ready);
}

TEST_F(NodeKeeperTest, GivesBackToTheKubeletWhatItNoLongerChanges) {
  want(kAllAway);
  start_plugin();
  rounds();
  want(kFirstBack);
  round();
  EXPECT_THAT(withdrawn(), ElementsAre(kFirst));
  must(keeper_.end());
  EXPECT_THAT(withdrawn(), IsEmpty());
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
}

TEST_F(NodeKeeperTest, ItsEndIsNoFailureOfWhatIsWanted) {
  want(kAllAway);
  start_plugin();
  rounds();
  want(kFirstBack);
  EXPECT_EQ(round().phase, api::NodePhase::applying);
  must(keeper_.end());
  EXPECT_EQ(state().phase, api::NodePhase::applying);
  EXPECT_THAT(state().error.value_or(api::StatusError()).message, HasSubstr("hostd ended"));
}

TEST_F(NodeKeeperTest, CountsOnAfterARestart) {
  want(kAllAway);
  round();
  const auto before = state().generation;
  NodeKeeper next = make_keeper();
  next.round();
  EXPECT_EQ(state().generation, before + 1);
}

// From any point of a run that was killed the next one gets there, and asks the plugin first.
// Its audio function went to vfio with it, and no policy speaks of that.
TEST_F(NodeKeeperTest, GivesBackWhatAnUnpluggedGpuHasLeftBehind) {
  constexpr const char* kAudio = "0000:05:00.1";
  kernel_.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
  kernel_.add_function(
      {.address = kAudio, .ids = "10de:10f8", .class_code = 0x040300, .group = 5, .driver = "snd_hda_intel"});
  want(kAllAway);
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  ASSERT_EQ(kernel_.driver_of(kAudio), "vfio-pci");
  kernel_.remove("sys/class/mdev_bus/0000:05:00.0");
  kernel_.remove_function(kFirst);
  holders_.held[kAudio] = vm(412);
  EXPECT_EQ(round().phase, api::NodePhase::blocked);
  EXPECT_EQ(kernel_.driver_of(kAudio), "vfio-pci");
  EXPECT_EQ(gpu(kAudio).state, api::GpuState::blocked);
  EXPECT_EQ(gpu(kAudio).desired, policy::Mode::host);
  EXPECT_THAT(gpu(kAudio).reason, HasSubstr("VM tenant (pid 412)"));
  holders_.held.clear();
  EXPECT_EQ(round().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kAudio), "snd_hda_intel");
  EXPECT_THAT(state().accelerators, SizeIs(2)) << "a sound card is none";
}

// Between the plan and what is published of it.
TEST_F(NodeKeeperTest, OutlivesAGpuThatIsUnpluggedWhileItIsRefused) {
  holders_.held[kFirst] = vm(412);
  int looks = 0;
  holders_.before_look = [&] {
    if (++looks == 2) kernel_.remove_function(kFirst);
  };
  want(kAllAway);
  round();
  round();
  EXPECT_THAT(drivers(), ElementsAre("", "vfio-pci", "vfio-pci"));
}

// The file outlives a reboot, and nobody else is asked.
TEST_F(NodeKeeperTest, HandsOnWhetherThePluginShallServe) {
  kernel_.file(kServing, api::serving_file_text("another serves"));
  EXPECT_EQ(round().phase, api::NodePhase::idle);
  EXPECT_EQ(state().standby, "another serves");
  want(kAllAway);
  round();
  EXPECT_EQ(state().phase, api::NodePhase::ready);
  EXPECT_EQ(state().standby, "another serves");
  must(keeper_.end());
  EXPECT_EQ(state().standby, "another serves") << "whether hostd runs changes nothing of it";
  kernel_.remove(kServing);
  round();
  EXPECT_EQ(state().standby, "");
}

// While it waits for the next try of what has failed it says nothing else, for minutes.
TEST_F(NodeKeeperTest, HandsItOnAlsoBetweenTwoTries) {
  want("  - {devices: [1], mode: passthrough}\n");
  round();
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/bind");
  want("  - {devices: [0], mode: passthrough}\n");
  ASSERT_EQ(round().phase, api::NodePhase::failed);
  kernel_.file(kServing, api::serving_file_text("another serves"));
  kernel_.forget_changes();
  round();
  EXPECT_EQ(state().standby, "another serves");
  EXPECT_EQ(state().phase, api::NodePhase::failed);
  EXPECT_THAT(host_writes(), IsEmpty());
}

TEST_F(NodeKeeperTest, KeepsToWhatItWasToldLastWhereThatCannotBeRead) {
  kernel_.file(kServing, api::serving_file_text("another serves"));
  round();
  kernel_.file(kServing, "{");
  round();
  EXPECT_EQ(state().standby, "another serves");
  auto next = make_keeper();
  next.round();
  EXPECT_EQ(state().standby, "another serves") << "also over a restart";
}

TEST_F(NodeKeeperTest, GetsThereAfterDeathAtAnyChange) {
  constexpr const char* kMixed =
      "  - {devices: [0, 2], mode: passthrough}\n"
      "  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n";
  constexpr const char* kOther =
      "  - {devices: [0], mode: vgpu, vgpu-devices: {T4-8Q: 1}}\n"
      "  - {devices: [1, 2], mode: passthrough}\n";
  start_plugin();
  const auto reach = [&](const char* items) {
    want(items);
    NodeKeeper keeper = make_keeper();
    for (int i = 0; i < 6; ++i) {
      if (keeper.round().phase == api::NodePhase::ready && !plugin_follows()) return true;
      plugin_follows();
    }
    return false;
  };
  ASSERT_TRUE(reach(kMixed));
  kernel_.forget_changes();
  ASSERT_TRUE(reach(kOther));
  const std::size_t changes = kernel_.changes().size();
  ASSERT_GT(changes, 12U);
  for (std::size_t n = 1; n <= changes; ++n) {
    SCOPED_TRACE(n);
    ASSERT_TRUE(reach(kMixed));
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      kernel_.die_at_change(n);
      reach(kOther);
      ::_exit(EXIT_FAILURE);  // it should have died
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    ASSERT_TRUE(reach(kOther));
    EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "vfio-pci"));
    EXPECT_THAT(mdev_.devices_on(kFirst), ElementsAre(HasSubstr("T4-8Q")));
    EXPECT_THAT(withdrawn(), IsEmpty());
  }
}

}  // namespace
}  // namespace ferry::host
