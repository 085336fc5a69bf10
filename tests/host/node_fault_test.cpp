// SPDX-License-Identifier: Apache-2.0
// Every single change of a policy that turns several GPUs at once fails, hangs and is the last one before
// death, alone or on the way back from a failure; then the same policy runs again. What one GPU meets keeps
// no other from being as it shall be, and none is left between what it was and what it shall be.
//
// Hundreds of whole runs: with FERRY_FAULTS=N every Nth, as in the unit suite; the soak has all.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "host/node_apply.h"
#include "hostfs/stuck_writes.h"
#include "policy/policy_yaml.h"
#include "tests/support/fake_mdev.h"
#include "tests/support/fake_vendor_vfio.h"
#include "tests/support/must.h"
#include "tests/vfio/rebinds.h"

namespace ferry::host {
namespace {

using test::FakeKernel;
using test::HostChange;
using test::must;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// The first three GPUs are given away and divided the other way round, or left to the host; the fourth makes
// its vGPUs on virtual functions without mdev, the fifth with it; the sixth is divided otherwise; the last
// two share an IOMMU group.
constexpr const char* kFrom =
    "  - {devices: [0], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n"
    "  - {devices: [1, 2, 4, 6, 7], mode: passthrough}\n"
    "  - {devices: [3], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n"
    "  - {devices: [5], mode: vgpu, vgpu-devices: {T4-8Q: 1}}\n";
constexpr const char* kTo =
    "  - {devices: [0, 3], mode: passthrough}\n"
    "  - {devices: [1], mode: vgpu, vgpu-devices: {T4-8Q: 2}}\n"
    "  - {devices: [2], mode: host}\n"
    "  - {devices: [4, 5], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n"
    "  - {devices: [6, 7], mode: vgpu, vgpu-devices: {T4-4Q: 1}}\n";

std::size_t stride() {
  const char* const status = std::getenv("FERRY_FAULTS");  // NOLINT(concurrency-mt-unsafe): one thread
  return status == nullptr ? 1 : std::max<std::size_t>(1, std::stoul(status));
}

class Nobody final : public vfio::UseProbe {
 public:
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> /*questions*/) override {
    return vfio::UseReport{};
  }
};

class Node {
 public:
  Node() {
    kernel.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}, .sriov = true});
    kernel.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
    kernel.file("proc/sys/kernel/random/boot_id", "b\n");
    const std::set<std::string> with_audio = {"05", "06"};
    const std::set<std::string> with_functions = {"08", "09"};
    unsigned group = 5;
    for (const char* bus : {"05", "06", "07", "08", "09", "0a", "0b", "0c"}) {
      const std::string address = gpu(bus);
      const bool divides_functions = with_functions.contains(bus);
      kernel.add_function(test::kinds::kTeslaT4Board, address, group, "nvidia",
                          divides_functions ? std::optional(4U) : std::nullopt);
      if (with_audio.contains(bus)) {
        kernel.add_function({"10de:10f8", 0x040300}, audio(bus), group, "snd_hda_intel");
      }
      if (!divides_functions) mdev.add_parent(address);
      if (std::string(bus) != "0b") ++group;
    }
    kernel.enable_vfs(gpu("08"), 4);
    vendor.add_gpu(gpu("08"), test::t4_types());
    mdev.add_vf_parents(gpu("09"), test::t4_types());
    must(apply(kFrom));
    kernel.forget_changes();
  }
  static std::string gpu(const std::string& bus) { return "0000:" + bus + ":00.0"; }
  static std::string audio(const std::string& bus) { return "0000:" + bus + ":00.1"; }

  Result<NodeOutcome> apply(const std::string& items = kTo) {
    const vfio::AcceleratorRules rules{.vendors = {0x10de}, .classes = {vfio::PciClass::display_3d}};
    const NodeContext context{.rebind_context = {.host = &kernel,
                                                 .writer = &kernel,
                                                 .probe = &nobody,
                                                 .rules = rules,
                                                 .on_step = {}},
                              .vgpu_host = {.host = kernel,
                                            .writer = kernel,
                                            .uses = nobody,
                                            .rules = rules,
                                            .node = "node-a",
                                            .pause = [](auto) {}}};
    const auto file = must(policy::read_policies({.file = "p.yaml",
                                                  .text = "version: v2\npolicies:\n  a:\n" + items,
                                                  .first_line = 1,
                                                  .one_line = false}));
    return apply_policy(context, must(policy::select_policy(file, {})));
  }

  /// By the buses of its GPUs, of each IOMMU group: drivers, overrides, virtual functions, vGPUs.
  std::map<std::string, std::string> state() const {
    std::map<std::string, std::string> out;
    for (const char* bus : {"05", "06", "07", "08", "09", "0a", "0b", "0c"}) {
      std::string& text = out[std::string(bus) == "0c" ? "0b" : bus];
      for (const std::string& function : {gpu(bus), audio(bus)})
        text += " " + kernel.driver_of(function) + "(" + kernel.override_of(function) + ")";
      text += " " + std::to_string(kernel.vfs_of(gpu(bus)).size()) + ":";
      for (const std::string& vgpu :
           bus == std::string("08") ? vendor.devices_on(gpu(bus)) : mdev.devices_on(gpu(bus)))
        text += " " + vgpu;
    }
    return out;
  }
  std::vector<std::string> records() const {
    return kernel.list("run/ferry/hostd/moves").value_or(std::vector<std::string>());
  }
  void adopt_functions() {
    kernel.adopt_vfs(gpu("08"));
    kernel.adopt_vfs(gpu("09"));
  }

  FakeKernel kernel;
  test::FakeMdev mdev{kernel};
  test::FakeVendorVfio vendor{kernel};
  Nobody nobody;
};

/// Of the GPUs that something has failed on, the errors, by the bus of the group.
std::map<std::string, std::vector<Error>> errors_of(const NodeOutcome& outcome) {
  std::map<std::string, std::vector<Error>> out;
  const auto add = [&](const vfio::PciAddress& gpu, const Error& error) {
    const std::string bus = gpu.text().substr(5, 2);
    out[bus == "0c" ? "0b" : bus].push_back(error);
  };
  for (const auto* rebinds : {&outcome.unbound, &outcome.bound}) {
    for (const vfio::RebindResult& result : rebinds->results) {
      if (result.error) add(result.devices.front(), *result.error);
      if (result.status == vfio::RebindResult::Status::refused)
        add(result.devices.front(),
            {.code = make_error_code(Errc::refused), .message = result.refusal.reasons.front(), .hint = {}});
    }
  }
  for (const vgpu::GpuOutcome& gpu : outcome.vgpus.gpus) {
    if (gpu.error) add(gpu.gpu, *gpu.error);
    for (const Error& error : gpu.undo_errors) add(gpu.gpu, error);
  }
  return out;
}

class EveryChangeOfAPolicy : public testing::Test {
 protected:
  EveryChangeOfAPolicy() {
    before_ = model_.state();
    const auto outcome = must(model_.apply());
    EXPECT_FALSE(outcome.error);
    EXPECT_THAT(errors_of(outcome), IsEmpty());
    after_ = model_.state();
    for (const auto& [group, state] : after_) EXPECT_NE(state, before_.at(group)) << group;
  }
  const std::vector<HostChange>& changes() const { return model_.kernel.changes(); }

  /// Of which a write has not returned, to one of its functions or vGPUs.
  std::set<std::string> that_hang(const Node& node) const {
    std::set<std::string> out;
    for (const StuckWrite& write : must(stuck_writes(node.kernel))) {
      const std::string act = write.act + " " + write.value;
      for (const auto& [group, state] : before_) {
        std::istringstream words(state + after_.at(group));
        bool names_it = act.find("0000:" + group) != std::string::npos;
        constexpr std::size_t kUuid = 36;  // in letters
        for (std::string word; words >> word;)
          names_it = names_it || (word.size() == kUuid && act.find(word) != std::string::npos);
        if (group == "0b") names_it = names_it || act.find("0000:0c") != std::string::npos;
        if (names_it) out.insert(group);
      }
    }
    return out;
  }
  /// But for the groups that hang.
  void each_group_is_whole(const Node& node, const NodeOutcome& outcome) const {
    const auto errors = errors_of(outcome);
    const auto hanging = that_hang(node);
    for (const auto& [group, state] : node.state()) {
      if (hanging.contains(group)) continue;
      const auto of_it = errors.find(group);
      if (of_it == errors.end()) {
        EXPECT_EQ(state, after_.at(group)) << "something kept " << group << " that it has nothing to do with";
      } else {
        EXPECT_THAT(state, AnyOf(before_.at(group), after_.at(group)))
            << group << ": " << of_it->second.front().message;
      }
    }
  }
  void gets_there(Node& node) const {
    const auto again = must(node.apply());
    EXPECT_FALSE(again.error);
    EXPECT_THAT(errors_of(again), IsEmpty());
    EXPECT_EQ(node.state(), after_);
    EXPECT_EQ(node.records(), model_.records());
    node.kernel.forget_changes();
    EXPECT_THAT(errors_of(must(node.apply())), IsEmpty());
    EXPECT_THAT(node.kernel.changes(), IsEmpty());
  }
  /// Behind what hangs nothing more is written to its group in the same run. (GPUs that share one are divided
  /// side by side.)
  void stops_at_what_hangs(const Node& node) const {
    for (const std::string& group : that_hang(node)) {
      if (group == "0b") continue;
      for (const HostChange& change : node.kernel.changes_since_hang()) {
        if (!change.path.starts_with("sys/")) continue;
        EXPECT_THAT(change.path + " " + change.value, Not(HasSubstr("0000:" + group)));
      }
    }
  }
  /// Nor by the next one.
  void leaves_alone_what_hangs(Node& node) const {
    const auto hanging = that_hang(node);
    node.kernel.forget_changes();
    must(node.apply());
    for (const std::string& group : hanging) {
      for (const HostChange& change : node.kernel.changes()) {
        if (!change.path.starts_with("sys/")) continue;
        EXPECT_THAT(change.path + " " + change.value, Not(HasSubstr("0000:" + group)));
      }
    }
  }
  /// The number, counted from 1, of the first change after this one, which fails; about, where changes are
  /// made side by side.
  static std::size_t first_after(const HostChange& failing) {
    Node node;
    must(node.apply());
    const auto& changes = node.kernel.changes();
    const auto found = std::ranges::find(changes, failing);
    if (found == changes.end()) throw std::logic_error(failing.path + " gets no " + failing.value);
    return static_cast<std::size_t>(found - changes.begin()) + 2;
  }
  void die_on_the_way_back(const HostChange& failing) const {
    std::size_t rounds = 0;
    for (std::size_t n = first_after(failing);; n += stride(), ++rounds) {
      Node node;
      const bool died = test::dies([&] {
        node.kernel.fail_for_good(failing, EIO);
        node.kernel.die_at_change(n);
        (void)node.apply();
      });
      if (!died) break;
      SCOPED_TRACE(n);
      node.adopt_functions();
      gets_there(node);
    }
    EXPECT_GT(rounds, 0U);
  }
  void hang_on_the_way_back(const HostChange& failing) const {
    std::size_t rounds = 0;
    for (std::size_t n = first_after(failing);; n += stride(), ++rounds) {
      Node node;
      node.kernel.fail_for_good(failing, EIO);
      node.kernel.hang_change(n);
      const auto outcome = must(node.apply());
      if (node.kernel.fault_waits()) break;
      SCOPED_TRACE(n);
      stops_at_what_hangs(node);
      each_group_is_whole(node, outcome);
      leaves_alone_what_hangs(node);
      node.kernel.mend();
      node.kernel.release_stuck();
      gets_there(node);
    }
    EXPECT_GT(rounds, 0U);
  }

  Node model_;
  std::map<std::string, std::string> before_;
  std::map<std::string, std::string> after_;
};

TEST_F(EveryChangeOfAPolicy, ThatFailsLeavesEachGroupAsItWasOrAsItShallBe) {
  for (const int error : {EIO, EBUSY}) {
    for (std::size_t n = 1; n <= changes().size(); n += stride()) {
      SCOPED_TRACE(testing::Message() << "change " << n << ", errno " << error);
      Node node;
      node.kernel.fail_change(n, error);
      const auto outcome = must(node.apply());
      EXPECT_FALSE(outcome.error);
      each_group_is_whole(node, outcome);
      gets_there(node);
    }
  }
}

TEST_F(EveryChangeOfAPolicy, ThatFailsForGoodLeavesEachGroupAsItWasOrAsItShallBe) {
  for (std::size_t n = 0; n < changes().size(); n += stride()) {
    const HostChange& change = changes()[n];
    SCOPED_TRACE(testing::Message() << change.value << " > " << change.path);
    Node node;
    node.kernel.fail_for_good(change, EIO);
    for (int run = 0; run < 2; ++run) each_group_is_whole(node, must(node.apply()));
    node.kernel.mend();
    gets_there(node);
  }
}

TEST_F(EveryChangeOfAPolicy, ThatHangsIsLeftAloneAndTheOthersGoOn) {
  for (const auto ending : {FakeKernel::Ending::without_effect, FakeKernel::Ending::with_effect}) {
    for (std::size_t n = 1; n <= changes().size(); n += stride()) {
      SCOPED_TRACE(n);
      Node node;
      node.kernel.hang_change(n);
      const auto outcome = must(node.apply());
      stops_at_what_hangs(node);
      each_group_is_whole(node, outcome);
      leaves_alone_what_hangs(node);
      node.kernel.release_stuck(ending);
      gets_there(node);
    }
  }
}

TEST_F(EveryChangeOfAPolicy, ThatIsTheLastBeforeDeathIsRepairedByTheNextRun) {
  for (std::size_t n = 1; n <= changes().size(); n += stride()) {
    SCOPED_TRACE(n);
    Node node;
    ASSERT_TRUE(test::dies([&] {
      node.kernel.die_at_change(n);
      (void)node.apply();
    }));
    node.adopt_functions();
    gets_there(node);
  }
}

// Of each way across the stages one: what was emptied cannot be bound, what came back cannot be divided.
const HostChange kNotBound{.path = "sys/bus/pci/drivers/vfio-pci/bind", .value = "0000:05:00.0"};
HostChange not_divided(const std::vector<HostChange>& changes) {
  for (const HostChange& change : changes)
    if (change.path.find("0000:06:00.0/mdev_supported_types") != std::string::npos) return change;
  throw std::logic_error("nothing is made on 0000:06:00.0");
}

TEST_F(EveryChangeOfAPolicy, AndADeathInTheRollBackOfAnEmptiedOneAreRepairedByTheNextRun) {
  die_on_the_way_back(kNotBound);
}
TEST_F(EveryChangeOfAPolicy, AndADeathInTheRollBackToVfioAreRepairedByTheNextRun) {
  die_on_the_way_back(not_divided(changes()));
}
TEST_F(EveryChangeOfAPolicy, AndAHangInTheRollBackOfAnEmptiedOneIsLeftAlone) {
  hang_on_the_way_back(kNotBound);
}
TEST_F(EveryChangeOfAPolicy, AndAHangInTheRollBackToVfioIsLeftAlone) {
  hang_on_the_way_back(not_divided(changes()));
}

}  // namespace
}  // namespace ferry::host
