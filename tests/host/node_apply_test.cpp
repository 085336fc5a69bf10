// SPDX-License-Identifier: Apache-2.0
#include "host/node_apply.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "mdev/vgpu_inventory.h"
#include "tests/host/node_apply_host.h"
#include "vfio/pci/pci_function.h"
#include "vgpu-dm/apply/gpu_run.h"

namespace ferry::host {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Status = vfio::RebindResult::Status;

TEST_F(NodeApplyTest, MakesEachGpuWhatThePolicySays) {
  apply(kMixed);
  EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "nvidia 3", "nvidia 0"));
  apply(kOther);
  EXPECT_THAT(state(), ElementsAre("nvidia 1", "vfio-pci 0", "vfio-pci 0"));
  apply("  - {devices: all, mode: host}\n");
  EXPECT_THAT(state(), ElementsAre("nvidia 0", "nvidia 0", "nvidia 0"));
}

TEST_F(NodeApplyTest, LeavesGpusForDraAsTheyAre) {
  apply(kMixed);
  apply("  - {devices: all, mode: passthrough}\n  - {devices: [0, 1, 2], allocation: dra}\n");
  EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "nvidia 3", "nvidia 0"));
  NodeContext on = context();
  on.dra = {vfio::PciAddress::parse(kFirst).value(), vfio::PciAddress::parse(kSecond).value()};
  EXPECT_TRUE(apply_policy(on, policy("  - {devices: all, mode: passthrough}\n")));
  EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "nvidia 3", "vfio-pci 0")) << "claims have the first two";
  EXPECT_TRUE(apply_policy(on, policy("  - {devices: all, mode: host}\n")));
  EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "nvidia 3", "nvidia 0"));
}

// The file decides, whoever applies it: hostd takes by itself, a command keeps.
TEST_F(NodeApplyTest, KeepsOrTakesWhatFerryHasNotMadeAsThePolicySays) {
  policy::Policy desired = policy("  - {devices: [0], mode: host}\n");
  mdev_.add_device(kFirst, "nvidia-232", "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10");
  for (const bool spares : {false, true}) {
    NodeContext on = context();
    on.vgpu_host.spares_foreign = spares;
    desired.foreign = policy::Foreign::keep;
    const auto kept = apply_policy(on, desired).value();
    EXPECT_EQ(kept.vgpus.gpus.at(0).kind, vgpu::GpuOutcome::Kind::refused);
    EXPECT_THAT(mdev_.devices_on(kFirst), SizeIs(1));
  }
  NodeContext on = context();
  on.vgpu_host.spares_foreign = true;
  desired.foreign = policy::Foreign::take;
  EXPECT_EQ(apply_policy(on, desired).value().vgpus.gpus.at(0).kind, vgpu::GpuOutcome::Kind::changed);
  EXPECT_THAT(mdev_.devices_on(kFirst), IsEmpty());
}

// A driver that has just come back lists a GPU's types only after a while, and a T4 shows the files of
// virtual functions meanwhile.
TEST_F(NodeApplyTest, WaitsForTheTypesOfAGpuThatComesBack) {
  constexpr const char* kSilent = "0000:08:00.0";
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function(test::kinds::kTeslaT4Board, kSilent, 8, "vfio-pci", 16);
  kernel_.file(mdev::host_driver_sign(vfio::PciAddress::parse(kSilent).value()), "0\n");
  NodeContext on = context();
  on.vgpu_host.rules.never_has_virtual_functions = [](const vfio::PciFunction& function) {
    return function.device == 0x1eb8;
  };
  on.rebind_context.rules = on.vgpu_host.rules;
  int pauses = 0;
  on.vgpu_host.pause = [&](auto) {
    if (++pauses == 3) mdev_.add_parent(kSilent);
  };
  const auto outcome =
      apply_policy(on, policy("  - {devices: [3], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n")).value();
  EXPECT_EQ(outcome.vgpus.gpus.at(3).kind, vgpu::GpuOutcome::Kind::changed);
  EXPECT_EQ(pauses, 3);
  EXPECT_THAT(mdev_.devices_on(kSilent), SizeIs(2));
}

// If only the last stage has anything to do, the scan before the stages serves it too. The second GPU goes
// after that scan, and the fourth, which is in its group, stays.
TEST_F(NodeApplyTest, LeavesOutAGpuThatIsUnpluggedAfterTheScan) {
  constexpr const char* kFourth = "0000:08:00.0";
  add_t4(kFourth, 6);
  NodeContext on = context();
  int asked = 0;
  on.models = [&](const vfio::PciFunction& /*gpu*/) -> std::string {
    // Each look at the policy asks for the models of four GPUs; the second look is that of the last stage.
    if (++asked == 5) {
      kernel_.remove(std::string("sys/class/mdev_bus/") + kSecond);
      kernel_.remove_function(kSecond);
    }
    return "Tesla T4";
  };
  const auto outcome = apply_policy(on, policy("  - {model: \"*\", mode: passthrough}\n")).value();
  EXPECT_EQ(asked, 8);
  EXPECT_FALSE(outcome.error);
  std::vector<std::string> bound;
  for (const vfio::RebindResult& result : outcome.bound.results) {
    EXPECT_EQ(result.status, Status::done);
    bound.push_back(result.devices.at(0).text());
  }
  EXPECT_THAT(bound, testing::UnorderedElementsAre(kFirst, kThird, kFourth));
  EXPECT_EQ(kernel_.driver_of(kFourth), "vfio-pci");
}

// A plan stops and starts nothing.
class NoService final : public vfio::ServiceManager {
 public:
  Result<> stop(const std::string& unit) override { return fail(Errc::failed, "stop " + unit); }
  Result<> start(const std::string& unit) override { return fail(Errc::failed, "start " + unit); }
};

TEST_F(NodeApplyTest, ReleasesWhatIsReleasedUnasked) {
  probe_.held_by_service = kFirst;
  NoService services;
  NodeContext with_services = context();
  with_services.rebind_context.service_manager = &services;
  const auto preview = preview_policy(with_services, policy(kMixed)).value();
  ASSERT_THAT(preview.bound.plan.rebinds, SizeIs(1));
  EXPECT_EQ(preview.bound.plan.rebinds[0].steps.front().text(), "stop nvidia-persistenced.service");
}

TEST_F(NodeApplyTest, ReleasesWhatThePolicySays) {
  probe_.held_by_service = kFirst;
  NoService services;
  NodeContext with_services = context();
  with_services.rebind_context.service_manager = &services;
  policy::Policy strict = policy(kMixed);
  strict.release = {};
  const auto preview = preview_policy(with_services, strict).value();
  ASSERT_THAT(preview.bound.plan.refusals, SizeIs(1));
  EXPECT_THAT(preview.bound.plan.refusals[0].hint,
              HasSubstr("in a policy: release: [nvidia-persistenced.service]"));
}

/// Takes every order and keeps it.
class Orders final : public vfio::ServiceManager {
 public:
  std::vector<std::string> reported;
  Result<> stop(const std::string& unit) override {
    reported.push_back("stop " + unit);
    return {};
  }
  Result<> start(const std::string& unit) override {
    reported.push_back("start " + unit);
    return {};
  }
};

TEST_F(NodeApplyTest, StartsWhatAKilledRunLeftThoughNothingIsToRebind) {
  for (const char* items : {"  - {devices: all, mode: host}\n", kMixed}) {
    kernel_.file("proc/sys/kernel/random/boot_id", "b\n");
    kernel_.file("run/ferry/hostd/stopped-services.json",
                 R"({"version":1,"boot_id":"b","services":{"nvidia-dcgm.service":"to start"}})");
    Orders services;
    NodeContext with_services = context();
    with_services.rebind_context.service_manager = &services;
    const auto preview = preview_policy(with_services, policy(items)).value();
    EXPECT_THAT(preview.bound.notes, testing::Contains(HasSubstr("nvidia-dcgm.service was stopped")));
    EXPECT_THAT(services.reported, IsEmpty());

    const auto outcome = apply_policy(with_services, policy(items)).value();
    EXPECT_FALSE(outcome.error);
    EXPECT_THAT(outcome.bound.notes, testing::Contains(HasSubstr("is started again")));
    EXPECT_THAT(services.reported, ElementsAre("start nvidia-dcgm.service"));
    EXPECT_FALSE(kernel_.exists("run/ferry/hostd/stopped-services.json"));

    kernel_.forget_changes();
    EXPECT_THAT(apply_policy(with_services, policy(items)).value().bound.notes, IsEmpty());
    EXPECT_THAT(kernel_.changes(), IsEmpty());
    EXPECT_THAT(services.reported, SizeIs(1));
  }
}

TEST_F(NodeApplyTest, StartsWhatAKilledRunLeftThoughThePolicyIsRefused) {
  kernel_.add_function(test::kinds::kTeslaT4, "0000:08:00.0", 5, "nvidia");
  kernel_.file("proc/sys/kernel/random/boot_id", "b\n");
  kernel_.file("run/ferry/hostd/stopped-services.json",
               R"({"version":1,"boot_id":"b","services":{"nvidia-dcgm.service":"to start"}})");
  Orders services;
  NodeContext with_services = context();
  with_services.rebind_context.service_manager = &services;
  EXPECT_FALSE(apply_policy(with_services, policy("  - {devices: all, mode: passthrough}\n"
                                                  "  - {devices: [3], mode: host}\n")));
  EXPECT_THAT(services.reported, ElementsAre("start nvidia-dcgm.service"));
}

TEST_F(NodeApplyTest, WritesNothingTheSecondTime) {
  apply(kMixed);
  kernel_.forget_changes();
  const NodeOutcome again = apply(kMixed);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  ASSERT_THAT(again.bound.results, SizeIs(1));
  EXPECT_EQ(again.bound.results[0].status, Status::already);
  EXPECT_THAT(again.unbound.results, IsEmpty());
}

TEST_F(NodeApplyTest, LeavesAGpuThatNoItemIsFor) {
  apply(kMixed);
  apply("  - {devices: [2], mode: passthrough}\n");
  EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "nvidia 3", "vfio-pci 0"));
}

TEST_F(NodeApplyTest, RefusesAGpuWhoseVgpuAVmHasAndDoesTheOthers) {
  apply(kMixed);
  probe_.held = mdev_.devices_on(kSecond).front().substr(6);  // "T4-4Q UUID"
  const NodeOutcome outcome = apply(kOther);
  EXPECT_THAT(state(), ElementsAre("nvidia 1", "nvidia 3", "vfio-pci 0"));
  EXPECT_EQ(outcome.vgpus.status(), ExitStatus::refused);
  ASSERT_THAT(outcome.bound.results, SizeIs(2));
  EXPECT_EQ(outcome.bound.results[0].status, Status::refused);
  EXPECT_THAT(outcome.bound.results[0].refusal.reasons, ElementsAre(HasSubstr("carries 3 vGPUs")));
}

TEST_F(NodeApplyTest, RefusesToTakeAGpuFromAVm) {
  apply(kMixed);
  probe_.held = kFirst;
  const NodeOutcome outcome = apply(kOther);
  EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "vfio-pci 0", "vfio-pci 0"));
  ASSERT_THAT(outcome.unbound.results, SizeIs(1));
  EXPECT_EQ(outcome.unbound.results[0].status, Status::refused);
}

TEST_F(NodeApplyTest, RefusesTwoPlacesForOneGroupAndWritesNothing) {
  kernel_.add_function(test::kinds::kTeslaT4, "0000:08:00.0", 5, "nvidia");
  const auto outcome = apply_policy(context(), policy("  - {devices: all, mode: passthrough}\n"
                                                      "  - {devices: [3], mode: host}\n"));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Errc::refused);
  EXPECT_THAT(outcome.error().message,
              HasSubstr("0000:05:00.0 is to be passed through and 0000:08:00.0 is not"));
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(NodeApplyTest, RemovesNoVgpuWhereNothingCanBeBoundToVfio) {
  apply("  - {devices: [0], mode: vgpu, vgpu-devices: {T4-4Q: 1}}\n");
  kernel_.remove("sys/kernel/iommu_groups");
  for (const char* address : kGpus) {
    kernel_.remove(std::string("sys/devices/pci0000:00/") + address + "/iommu_group");
  }
  kernel_.forget_changes();
  const auto outcome = apply_policy(context(), policy("  - {devices: all, mode: passthrough}\n")).value();
  EXPECT_FALSE(outcome.bound.results.empty());
  for (const vfio::RebindResult& result : outcome.bound.results) {
    EXPECT_EQ(result.status, vfio::RebindResult::Status::refused);
    EXPECT_THAT(result.refusal.reasons, testing::Contains(HasSubstr("no active IOMMU")));
  }
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(NodeApplyTest, SaysBeforehandWhatItWouldDoAndWritesNothing) {
  apply(kMixed);
  kernel_.forget_changes();
  const auto preview = preview_policy(context(), policy(kOther)).value();
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  EXPECT_THAT(preview.unbound.plan.rebinds, SizeIs(1));
  EXPECT_THAT(preview.bound.plan.rebinds, SizeIs(2)) << "the vGPUs are gone by then";
  ASSERT_THAT(preview.vgpus.gpus, SizeIs(3));
  EXPECT_FALSE(preview.vgpus.gpus[0].refusal);
  EXPECT_THAT(preview.vgpus.gpus[0].notes, ElementsAre(HasSubstr("once it is back")));
  EXPECT_THAT(preview.vgpus.gpus[1].steps, SizeIs(3));
}

test::HostChange change_of(const vfio::Step& step) {
  const std::string address = step.address.text();
  const std::string driver = "sys/bus/pci/drivers/" + step.value;
  switch (step.kind) {
    case vfio::Step::Kind::load_module:
      return {.path = "module", .value = step.value};
    case vfio::Step::Kind::set_override:
      return {.path = (vfio::sysfs_path(step.address) / "driver_override").string(),
              .value = step.value.empty() ? "\n" : step.value};
    case vfio::Step::Kind::unbind:
      return {.path = driver + "/unbind", .value = address};
    case vfio::Step::Kind::bind:
      return {.path = driver + "/bind", .value = address};
    case vfio::Step::Kind::probe:
      return {.path = "sys/bus/pci/drivers_probe", .value = address};
    case vfio::Step::Kind::quiesce:
    case vfio::Step::Kind::resume:
      break;
  }
  throw std::logic_error("no write: " + step.text());
}

// README: `--dry-run` shows each change before it is made.
TEST_F(NodeApplyTest, WritesTheStepsThatItHasSaidBeforehandAndNoOthers) {
  for (const char* const items : {kMixed, "  - {devices: all, mode: host}\n"}) {
    SCOPED_TRACE(items);
    const auto preview = preview_policy(context(), policy(items)).value();
    std::vector<test::HostChange> said;
    for (const vfio::RebindPlan* const plan : {&preview.unbound.plan, &preview.bound.plan})
      for (const vfio::Rebind& rebind : plan->rebinds)
        for (const vfio::Step& step : rebind.steps) said.push_back(change_of(step));
    for (const vgpu::GpuPlan& gpu : preview.vgpus.gpus)
      for (const vgpu::VgpuStep& step : gpu.steps) {
        const std::vector<AttributeWrite> writes = vgpu::writes_of(kernel_, step).value();
        for (const AttributeWrite& write : writes)
          said.push_back({.path = write.path.string(), .value = write.value});
      }
    kernel_.forget_changes();
    apply(items);
    std::vector<test::HostChange> made;
    std::ranges::copy_if(kernel_.changes(), std::back_inserter(made), [](const test::HostChange& change) {
      return change.path.find("run/ferry/") == std::string::npos;
    });
    EXPECT_GT(made.size(), 3U);
    EXPECT_THAT(made, testing::UnorderedElementsAreArray(said));
  }
}

// From any point of a run that was killed the next one gets there.
TEST_F(NodeApplyTest, GetsThereAfterDeathAtAnyChange) {
  std::size_t changes = 0;
  {
    apply(kMixed);
    kernel_.forget_changes();
    apply(kOther);
    changes = kernel_.changes().size();
    apply(kMixed);
  }
  ASSERT_GT(changes, 10U);
  for (std::size_t n = 1; n <= changes; ++n) {
    SCOPED_TRACE(n);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      kernel_.die_at_change(n);
      (void)apply_policy(context(), policy(kOther));
      ::_exit(EXIT_FAILURE);  // it should have died
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    apply(kOther);
    EXPECT_THAT(state(), ElementsAre("nvidia 1", "vfio-pci 0", "vfio-pci 0"));
    apply(kMixed);
    EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "nvidia 3", "nvidia 0"));
  }
}

}  // namespace
}  // namespace ferry::host
