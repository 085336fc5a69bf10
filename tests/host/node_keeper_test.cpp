// SPDX-License-Identifier: Apache-2.0
// The rounds of hostd against a fake host and a stand-in for the device plugin that follows its files.
#include "host/node_keeper.h"

#include <algorithm>
#include <functional>
#include <map>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/node_lock.h"
#include "common/presence.h"
#include "host/state_file.h"
#include "tests/support/fake_mdev.h"
#include "tests/support/must.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Clock = NodeKeeper::Clock;
using News = NodeKeeper::News;

/// Free, but for what a test says.
class Holders final : public UseProbe {
 public:
  std::map<std::string, Holder> held;
  std::function<void()> before_look;
  Result<UseReport> look(std::span<const UseQuestion> questions) override {
    if (before_look) before_look();
    UseReport report;
    for (const UseQuestion& question : questions)
      if (const auto holder = held.find(question.device); holder != held.end())
        report.holders[question.device] = {holder->second};
    return report;
  }
};

Holder vm(int pid) {
  return {.kind = Holder::Kind::virtual_machine,
          .name = "tenant",
          .pid = pid,
          .what = "its group",
          .pod_uid = {}};
}

/// Three T4s, each in a group of its own, on the driver that divides them.
class NodeKeeperTest : public testing::Test {
 protected:
  static constexpr const char* kFirst = "0000:05:00.0";
  static constexpr const char* kSecond = "0000:06:00.0";
  static constexpr const char* kThird = "0000:07:00.0";
  static constexpr const char* kWanted = "var/lib/ferry/wanted.json";

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

  NodeHost host(UseProbe& uses) {
    const AcceleratorRules rules{.vendors = {0x10de}, .classes = {PciClass::display_3d}};
    return {.moves = {.host = &kernel_, .writer = &kernel_, .probe = &uses, .rules = rules, .on_step = {}},
            .vgpus = {.host = kernel_, .writer = kernel_, .uses = uses, .rules = rules, .node = "node-a"}};
  }
  NodeKeeper make_keeper() {
    return {kernel_, holders_, [this](UseProbe& uses) { return host(uses); }, settings_};
  }
  /// `items`: of the policy's list.
  void want(const std::string& items, std::uint64_t generation = 1) {
    const WantedFile wanted{
        .generation = generation,
        .policy = "a",
        .config = ConfigText{.file = {}, .text = "version: v2\npolicies:\n  a:\n" + items},
        .asked_by = "a test"};
    kernel_.file(kWanted, wanted_file_text(wanted));
  }
  NodeKeeper::Round round(News news = News::anything) {
    now_ += 1s;
    return keeper_.round(now_, news);
  }
  /// As the loop does it: the plugin is told, answers, and that is news.
  NodeKeeper::Round rounds() {
    auto last = round();
    for (int i = 0; i < 10 && plugin_follows(); ++i) last = round();
    return last;
  }

  NodeState state() const { return must(read_state_file(must(kernel_.read_file("run/ferry/state.json")))); }
  AcceleratorState gpu(const std::string& address) const {
    for (const AcceleratorState& one : state().accelerators)
      if (one.address.text() == address) return one;
    throw std::runtime_error("no " + address + " in state.json");
  }
  std::vector<std::string> withdrawn() const {
    std::vector<std::string> ids;
    for (const Withdrawal& one : state().withdraw) ids.push_back(one.id);
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
    presence_.emplace(must(Presence::announce(kernel_, "run/ferry/plugin.lock")));
    plugin_follows();
  }
  void kill_plugin() { presence_.reset(); }
  /// It has read state.json, and lists what is on vfio, and vGPUs, and is not withdrawn; what is allocated in
  /// any case. Whether its file is another now.
  bool plugin_follows() {
    if (!presence_ || silent_) return false;
    const auto text = kernel_.read_file("run/ferry/state.json");
    const auto withdrawals = text ? must(read_withdrawals(*text)) : Withdrawals();
    auto devices = nlohmann::json::array();
    const auto add = [&](const std::string& id, unsigned group) {
      const bool allocated = allocated_.contains(id);
      if (!allocated && std::ranges::any_of(withdrawals.devices, [&](const Withdrawal& one) {
            return one.id == id || (kata_ && iommu_group_of(kernel_, one.id) == group);
          }))
        return;
      devices.push_back(
          {{"id", kata_ ? std::to_string(group) : id}, {"iommu_group", group}, {"allocated", allocated}});
    };
    for (const char* address : {kFirst, kSecond, kThird}) {
      if (kernel_.driver_of(address) == "vfio-pci") add(address, *iommu_group_of(kernel_, address));
      for (const std::string& vgpu : mdev_.devices_on(address)) add(vgpu.substr(vgpu.find(' ') + 1), 200);
    }
    const nlohmann::json file = {{"version", 1},
                                 {"state_generation", withdrawals.generation + answer_ahead_},
                                 {"resources", {{{"name", "nvidia.com/T4"}, {"devices", devices}}}}};
    const std::string now = file.dump();
    if (now == kernel_.read_file("run/ferry/offered.json").value_or("")) return false;
    kernel_.file("run/ferry/offered.json", now);
    return true;
  }

  test::FakeKernel kernel_;
  test::FakeMdev mdev_{kernel_};
  Holders holders_;
  KeeperSettings settings_{.lock_patience = 1ms, .ends_are_told = true};
  NodeKeeper keeper_ = make_keeper();
  Clock::time_point now_ = Clock::time_point() + 1h;
  std::optional<Presence> presence_;
  std::set<std::string> allocated_;
  bool silent_ = false;
  bool kata_ = false;
  std::uint64_t answer_ahead_ = 0;
};

constexpr const char* kAllAway = "  - {devices: all, mode: passthrough}\n";
constexpr const char* kAllBack = "  - {devices: all, mode: host}\n";
constexpr const char* kFirstBack = "  - {devices: all, mode: passthrough}\n  - {devices: [0], mode: host}\n";
constexpr const char* kDivided = "  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n";

TEST_F(NodeKeeperTest, ChangesNothingWhereNothingIsWanted) {
  EXPECT_EQ(round().phase, NodePhase::nothing_wanted);
  EXPECT_THAT(host_writes(), IsEmpty());
  EXPECT_EQ(state().phase, NodePhase::nothing_wanted);
  EXPECT_FALSE(state().wanted);
  EXPECT_EQ(gpu(kFirst).state, Standing::left_alone);
  EXPECT_EQ(gpu(kFirst).mode, Mode::host);
  EXPECT_EQ(gpu(kFirst).driver, "nvidia");
  EXPECT_EQ(gpu(kFirst).id, "10de:1eb8");
}

TEST_F(NodeKeeperTest, MakesTheNodeAsWantedAndSaysSo) {
  want(kAllAway, 12);
  const auto done = round();
  EXPECT_EQ(done.phase, NodePhase::as_wanted);
  EXPECT_EQ(done.status, ExitStatus::done);
  EXPECT_FALSE(done.again);
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "vfio-pci"));
  const NodeState told = state();
  EXPECT_EQ(told.wanted.value_or(WantedMark()), (WantedMark{12, "a", "a test"}));
  EXPECT_EQ(told.phase, NodePhase::as_wanted);
  EXPECT_EQ(told.boot_id, "b");
  EXPECT_EQ(told.pid, ::getpid());
  EXPECT_EQ(gpu(kSecond).mode, Mode::passthrough);
  EXPECT_EQ(gpu(kSecond).wanted, Mode::passthrough);
  EXPECT_EQ(gpu(kSecond).state, Standing::as_wanted);
}

TEST_F(NodeKeeperTest, WritesNothingWhenNothingHasChanged) {
  start_plugin();
  want(kAllAway);
  rounds();
  kernel_.forget_changes();
  EXPECT_EQ(rounds().phase, NodePhase::as_wanted);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(NodeKeeperTest, TakesUpAnotherWish) {
  want(kAllAway);
  round();
  want(kDivided);
  EXPECT_EQ(round().phase, NodePhase::as_wanted) << "GPUs that no item is for are left as they are";
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "nvidia", "vfio-pci"));
  EXPECT_THAT(gpu(kSecond).vgpus, SizeIs(2));
  EXPECT_EQ(gpu(kSecond).vgpus.at(0).type, "T4-4Q");
  EXPECT_EQ(gpu(kFirst).state, Standing::left_alone);
}

TEST_F(NodeKeeperTest, LeavesTheHostAsItIsWhenItCannotReadWhatIsWanted) {
  want(kAllAway);
  round();
  kernel_.forget_changes();
  kernel_.file(kWanted, "{\"version\": 1,\n \"polcy\": \"a\"}");
  const auto broken = round();
  EXPECT_EQ(broken.phase, NodePhase::failed);
  EXPECT_EQ(broken.status, ExitStatus::usage);
  EXPECT_THAT(host_writes(), IsEmpty());
  const auto error = state().error.value_or(StateError());
  EXPECT_THAT(error.message,
              HasSubstr("/var/lib/ferry/wanted.json:2: polcy: unknown key; did you mean 'policy'?"));
  EXPECT_EQ(gpu(kFirst).mode, Mode::passthrough) << "what is there is told all the same";
  want(kAllBack);
  EXPECT_EQ(round().phase, NodePhase::as_wanted);
  EXPECT_FALSE(state().error);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
}

TEST_F(NodeKeeperTest, FollowsTheFileThatIsNamed) {
  kernel_.file("etc/ferry/policy.yaml", std::string("version: v2\npolicies:\n  a:\n") + kAllAway);
  kernel_.file(kWanted, R"({"version": 1, "policy": "a", "file": "/etc/ferry/policy.yaml"})");
  const auto done = round();
  EXPECT_EQ(done.file.value_or(""), "/etc/ferry/policy.yaml");
  EXPECT_THAT(drivers(), Contains("vfio-pci"));
  kernel_.file("etc/ferry/policy.yaml", std::string("version: v2\npolicies:\n  a:\n") + kAllBack);
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
  EXPECT_EQ(waiting.phase, NodePhase::withdrawing);
  EXPECT_TRUE(waiting.again) << "a plugin that never answers";
  EXPECT_THAT(withdrawn(), ElementsAre(kFirst));
  EXPECT_EQ(gpu(kFirst).state, Standing::waiting);
  EXPECT_EQ(round().phase, NodePhase::withdrawing) << "other news";
  EXPECT_THAT(host_writes(), IsEmpty());

  ASSERT_TRUE(plugin_follows());
  EXPECT_EQ(round().phase, NodePhase::as_wanted);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "vfio-pci"));
  EXPECT_THAT(withdrawn(), IsEmpty()) << "whatever is there now may be offered";
}

TEST_F(NodeKeeperTest, TakesNoAnswerToAnEarlierFile) {
  want(kAllAway);
  start_plugin();
  rounds();
  want(kFirstBack);
  EXPECT_EQ(round().phase, NodePhase::withdrawing) << "it has answered the file before";
  kernel_.forget_changes();
  // It lists nothing, but from before it was asked: it may be about to list the GPU.
  nlohmann::json file = {
      {"version", 1}, {"state_generation", state().generation - 1}, {"resources", nlohmann::json::array()}};
  kernel_.file("run/ferry/offered.json", file.dump());
  EXPECT_EQ(round().phase, NodePhase::withdrawing);
  EXPECT_THAT(host_writes(), IsEmpty());
  file["state_generation"] = state().generation;
  kernel_.file("run/ferry/offered.json", file.dump());
  EXPECT_EQ(round().phase, NodePhase::as_wanted);
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
  EXPECT_EQ(round().phase, NodePhase::withdrawing);
  EXPECT_THAT(withdrawn(), AllOf(SizeIs(2), Contains(id)));
  EXPECT_THAT(host_writes(), IsEmpty());
  EXPECT_EQ(rounds().phase, NodePhase::as_wanted);
  EXPECT_EQ(gpu(kSecond).vgpus.at(0).type, "T4-8Q");
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
  EXPECT_EQ(round().phase, NodePhase::refused);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
  allocated_.clear();
  EXPECT_EQ(rounds().phase, NodePhase::as_wanted);
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
}

TEST_F(NodeKeeperTest, WaitsForNobodyWithoutAPlugin) {
  want(kAllAway);
  start_plugin();
  rounds();
  kill_plugin();
  want(kFirstBack);
  EXPECT_EQ(round().phase, NodePhase::as_wanted) << "what it left in its file is nobody's";
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
}

TEST_F(NodeKeeperTest, DoesNotAskAboutWhatThePluginCannotOffer) {
  start_plugin();
  silent_ = true;
  want(kAllAway);
  EXPECT_EQ(round().phase, NodePhase::as_wanted);
}

TEST_F(NodeKeeperTest, RefusesWhenThePluginDoesNotAnswer) {
  want(kAllAway);
  start_plugin();
  rounds();
  silent_ = true;
  want(kFirstBack);
  EXPECT_EQ(round().phase, NodePhase::withdrawing);
  now_ += 31s;
  kernel_.forget_changes();
  const auto refused = round();
  EXPECT_EQ(refused.phase, NodePhase::refused);
  EXPECT_EQ(refused.status, ExitStatus::refused);
  EXPECT_THAT(host_writes(), IsEmpty());
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("the device plugin"));
  EXPECT_THAT(withdrawn(), IsEmpty()) << "the node is as it was";
  ASSERT_TRUE(refused.again) << "nobody tells when it wakes up";
  EXPECT_EQ(*refused.again, now_ + 10s);
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
  EXPECT_EQ(refused.phase, NodePhase::refused);
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "nvidia", "nvidia")) << "the others do not wait";
  EXPECT_EQ(gpu(kFirst).state, Standing::refused);
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("pod (by the kubelet) holds nvidia.com/T4"));
  ASSERT_THAT(gpu(kFirst).holders, SizeIs(1));
  EXPECT_EQ(gpu(kFirst).holders.at(0).kind, "pod");
  EXPECT_THAT(withdrawn(), ElementsAre(kFirst)) << "no other pod shall get it when this one ends";

  kernel_.forget_changes();
  EXPECT_EQ(rounds().phase, NodePhase::refused);
  EXPECT_THAT(kernel_.changes(), IsEmpty()) << "and nothing is said twice";

  allocated_.clear();
  EXPECT_EQ(rounds().phase, NodePhase::as_wanted);
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
  EXPECT_EQ(refused.phase, NodePhase::refused);
  EXPECT_THAT(refused.processes, ElementsAre(412));
  EXPECT_THAT(gpu(kFirst).reason, HasSubstr("VM tenant (pid 412)"));
  EXPECT_THAT(withdrawn(), ElementsAre(kFirst));
  EXPECT_FALSE(refused.again) << "the plugin tells";
  holders_.held.clear();
  allocated_.clear();
  EXPECT_EQ(rounds().phase, NodePhase::as_wanted);
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
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
  EXPECT_EQ(refused.phase, NodePhase::refused);
  EXPECT_THAT(withdrawn(), ElementsAre(id));
  holders_.held.clear();
  allocated_.clear();
  EXPECT_EQ(rounds().phase, NodePhase::as_wanted);
  EXPECT_EQ(kernel_.driver_of(kSecond), "vfio-pci");
}

// -- other holders --

TEST_F(NodeKeeperTest, SaysOfAVmsGpuOnlyThatTheVmHasIt) {
  want(kAllAway);
  start_plugin();
  rounds();
  holders_.held = {{kSecond, vm(412)}};
  want(kAllBack);
  const auto refused = rounds();
  EXPECT_EQ(refused.phase, NodePhase::refused);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "nvidia"));
  EXPECT_EQ(gpu(kSecond).reason, "0000:06:00.0 is in use: VM tenant (pid 412) holds its group");
  EXPECT_THAT(gpu(kSecond).holders, SizeIs(1));
  EXPECT_FALSE(refused.again);
  EXPECT_THAT(withdrawn(), IsEmpty()) << "the kubelet is offered it as before";
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
  holders_.before_look = [this] {
    if (state().phase == NodePhase::changing) holders_.held.clear();
  };
  EXPECT_EQ(round().phase, NodePhase::refused);
  EXPECT_EQ(kernel_.driver_of(kSecond), "vfio-pci");
}

TEST_F(NodeKeeperTest, RefusesWhatAVmHasAndDoesItWhenTheVmEnds) {
  want(kAllAway);
  round();
  holders_.held = {{kSecond, vm(412)}};
  want(kAllBack);
  const auto refused = round();
  EXPECT_EQ(refused.phase, NodePhase::refused);
  EXPECT_EQ(refused.status, ExitStatus::refused);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "nvidia"));
  EXPECT_THAT(refused.processes, ElementsAre(412));
  EXPECT_FALSE(refused.again) << "the kernel tells of its end";
  ASSERT_THAT(gpu(kSecond).holders, SizeIs(1));
  EXPECT_EQ(gpu(kSecond).holders.at(0), (StateHolder{"virtual_machine", "tenant", 412}));
  EXPECT_THAT(gpu(kSecond).hint, HasSubstr("stop the VM"));
  EXPECT_THAT(withdrawn(), IsEmpty());
  holders_.held.clear();
  EXPECT_EQ(round(News::process_ended).phase, NodePhase::as_wanted);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
}

TEST_F(NodeKeeperTest, WritesNothingForWhatIsStillRefused) {
  want(kAllAway);
  round();
  holders_.held = {{kSecond, vm(412)}};
  want(kAllBack);
  round();
  kernel_.forget_changes();
  EXPECT_EQ(round().phase, NodePhase::refused);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(NodeKeeperTest, ComesBackToHoldersOfWhichNobodyTells) {
  want(kAllAway);
  round();
  Holder configured = vm(0);
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

// -- failures --

TEST_F(NodeKeeperTest, TriesAgainAfterAFailureWhenItIsTimeAndNotBefore) {
  want("  - {devices: [1], mode: passthrough}\n");
  round();
  kernel_.remove("sys/bus/pci/drivers/vfio-pci/bind");
  want("  - {devices: [0], mode: passthrough}\n");
  const auto failed = round();
  EXPECT_EQ(failed.phase, NodePhase::failed);
  EXPECT_EQ(failed.status, ExitStatus::failed);
  EXPECT_EQ(gpu(kFirst).state, Standing::failed);
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
    last = keeper_.round(now_);
    EXPECT_EQ(last.again, now_ + pause);
    EXPECT_THAT(host_writes(), testing::Not(IsEmpty()));
    kernel_.forget_changes();
  }
  // Another wish is another matter.
  want(kAllBack);
  EXPECT_EQ(round().phase, NodePhase::as_wanted);
}

TEST_F(NodeKeeperTest, DoesNothingWhileAnotherChangesTheHost) {
  want(kAllAway);
  std::optional<NodeLock> other = must(NodeLock::take(kernel_, 0ms));
  const auto failed = round();
  EXPECT_EQ(failed.phase, NodePhase::failed);
  EXPECT_THAT(state().error.value_or(StateError()).message, HasSubstr("another ferry is changing this host"));
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "nvidia", "nvidia"));
  other.reset();
  ASSERT_TRUE(failed.again);
  now_ = *failed.again;
  EXPECT_EQ(keeper_.round(now_).phase, NodePhase::as_wanted);
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
  EXPECT_EQ(state().phase, NodePhase::failed);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
}

TEST_F(NodeKeeperTest, CountsOnAfterARestart) {
  want(kAllAway);
  round();
  const auto before = state().generation;
  NodeKeeper next = make_keeper();
  next.round(now_);
  EXPECT_EQ(state().generation, before + 1);
}

// From any point of a run that was killed the next one gets there, and asks the plugin first.
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
      if (keeper.round(now_).phase == NodePhase::as_wanted && !plugin_follows()) return true;
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
}  // namespace ferry
