// SPDX-License-Identifier: Apache-2.0
#include "host/node_apply.h"

#include <cerrno>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "host/gpu_conditions.h"
#include "mdev/vgpu_inventory.h"
#include "policy/policy_yaml.h"
#include "tests/host/three_t4s.h"
#include "tests/support/fake_vendor_vfio.h"

namespace ferry::host {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Status = vfio::RebindResult::Status;

policy::Policy policy(const std::string& items) {
  const auto file = policy::read_policies({.file = "p.yaml",
                                           .text = "version: v2\npolicies:\n  a:\n" + items,
                                           .first_line = 1,
                                           .one_line = false});
  if (!file) throw std::logic_error(file.error().message);
  return policy::select_policy(*file, {}).value();
}

/// Free, unless a device is named.
class SomeUser final : public vfio::UseProbe {
 public:
  std::string held;
  std::string held_by_service;
  std::function<void()> before_look;  ///< what happens on the host meanwhile
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override {
    if (before_look) before_look();
    vfio::UseReport report;
    for (const vfio::UseQuestion& question : questions) {
      if (question.device == held_by_service) {
        report.users[held_by_service] = {{.name = "nvidia-persiste",
                                          .pid = 77,
                                          .what = "/dev/nvidia0",
                                          .pod_uid = {},
                                          .service = "nvidia-persistenced.service"}};
      }
      if (question.device != held) continue;
      report.users[held] = {{.kind = vfio::DeviceUser::Kind::virtual_machine,
                             .name = "tenant",
                             .pid = 412,
                             .what = "its group",
                             .pod_uid = {}}};
    }
    return report;
  }
};

class NodeApplyTest : public ThreeT4s {
 protected:
  NodeHost host() {
    const vfio::AcceleratorRules rules{.vendors = {0x10de}, .classes = {vfio::PciClass::display_3d}};
    return {
        .rebinds = {.host = &kernel_, .writer = &kernel_, .probe = &probe_, .rules = rules, .on_step = {}},
        .vgpus = {.host = kernel_,
                  .writer = kernel_,
                  .uses = probe_,
                  .rules = rules,
                  .node = "node-a",
                  .pause = [](auto) {}}};
  }
  NodeOutcome apply(const std::string& items) { return apply_policy(host(), policy(items)).value(); }
  /// "nvidia" or "vfio-pci", and how many vGPUs.
  std::vector<std::string> state() const {
    std::vector<std::string> out;
    for (const char* address : kGpus)
      out.push_back(kernel_.driver_of(address) + " " + std::to_string(mdev_.devices_on(address).size()));
    return out;
  }

  SomeUser probe_;
};

constexpr const char* kMixed =
    "  - {devices: all, mode: passthrough}\n"
    "  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 3}}\n"
    "  - {devices: [2], mode: host}\n";
constexpr const char* kOther =
    "  - {devices: [0], mode: vgpu, vgpu-devices: {T4-8Q: 1}}\n"
    "  - {devices: [1, 2], mode: passthrough}\n";

TEST_F(NodeApplyTest, MakesEachGpuWhatThePolicySays) {
  apply(kMixed);
  EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "nvidia 3", "nvidia 0"));
  apply(kOther);
  EXPECT_THAT(state(), ElementsAre("nvidia 1", "vfio-pci 0", "vfio-pci 0"));
  apply("  - {devices: all, mode: host}\n");
  EXPECT_THAT(state(), ElementsAre("nvidia 0", "nvidia 0", "nvidia 0"));
}

// The file decides, whoever applies it: hostd takes by itself, a command keeps.
TEST_F(NodeApplyTest, KeepsOrTakesWhatFerryHasNotMadeAsThePolicySays) {
  policy::Policy desired = policy("  - {devices: [0], mode: host}\n");
  mdev_.add_device(kFirst, "nvidia-232", "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10");
  for (const bool spares : {false, true}) {
    NodeHost on = host();
    on.vgpus.spares_foreign = spares;
    desired.foreign = policy::Foreign::keep;
    const auto kept = apply_policy(on, desired).value();
    EXPECT_EQ(kept.vgpus.gpus.at(0).kind, vgpu::GpuOutcome::Kind::refused);
    EXPECT_THAT(mdev_.devices_on(kFirst), SizeIs(1));
  }
  NodeHost on = host();
  on.vgpus.spares_foreign = true;
  desired.foreign = policy::Foreign::take;
  EXPECT_EQ(apply_policy(on, desired).value().vgpus.gpus.at(0).kind, vgpu::GpuOutcome::Kind::changed);
  EXPECT_THAT(mdev_.devices_on(kFirst), IsEmpty());
}

// A driver that has just come back lists a GPU's types only after a while, and a T4 shows the files of
// virtual functions meanwhile.
TEST_F(NodeApplyTest, WaitsForTheTypesOfAGpuThatComesBack) {
  constexpr const char* kSilent = "0000:08:00.0";
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function({.address = kSilent,
                        .ids = "10de:1eb8",
                        .subsystem_ids = "10de:12a2",
                        .class_code = 0x030200,
                        .group = 8,
                        .driver = "vfio-pci",
                        .totalvfs = 16});
  kernel_.file(mdev::host_driver_sign(vfio::PciAddress::parse(kSilent).value()), "0\n");
  NodeHost on = host();
  on.vgpus.rules.never_has_virtual_functions = [](const vfio::PciFunction& function) {
    return function.device == 0x1eb8;
  };
  on.rebinds.rules = on.vgpus.rules;
  int pauses = 0;
  on.vgpus.pause = [&](auto) {
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
  NodeHost on = host();
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
  std::vector<std::string> given_away;
  for (const vfio::RebindResult& result : outcome.given_away.results) {
    EXPECT_EQ(result.status, Status::done);
    given_away.push_back(result.devices.at(0).text());
  }
  EXPECT_THAT(given_away, testing::UnorderedElementsAre(kFirst, kThird, kFourth));
  EXPECT_EQ(kernel_.driver_of(kFourth), "vfio-pci");
}

// A plan stops and starts nothing.
class NoService final : public vfio::Releaser {
 public:
  Result<> stop(const std::string& unit) override { return fail(Errc::failed, "stop " + unit); }
  Result<> start(const std::string& unit) override { return fail(Errc::failed, "start " + unit); }
};

TEST_F(NodeApplyTest, ReleasesWhatIsReleasedUnasked) {
  probe_.held_by_service = kFirst;
  NoService services;
  NodeHost with_services = host();
  with_services.rebinds.releaser = &services;
  const auto preview = preview_policy(with_services, policy(kMixed)).value();
  ASSERT_THAT(preview.given_away.plan.rebinds, SizeIs(1));
  EXPECT_EQ(preview.given_away.plan.rebinds[0].steps.front().text(), "stop nvidia-persistenced.service");
}

TEST_F(NodeApplyTest, ReleasesWhatThePolicySays) {
  probe_.held_by_service = kFirst;
  NoService services;
  NodeHost with_services = host();
  with_services.rebinds.releaser = &services;
  policy::Policy strict = policy(kMixed);
  strict.release = {};
  const auto preview = preview_policy(with_services, strict).value();
  ASSERT_THAT(preview.given_away.plan.refusals, SizeIs(1));
  EXPECT_THAT(preview.given_away.plan.refusals[0].hint,
              HasSubstr("in a policy: release: [nvidia-persistenced.service]"));
}

/// Takes every order and keeps it.
class Orders final : public vfio::Releaser {
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
    NodeHost with_services = host();
    with_services.rebinds.releaser = &services;
    const auto preview = preview_policy(with_services, policy(items)).value();
    EXPECT_THAT(preview.given_away.notes, testing::Contains(HasSubstr("nvidia-dcgm.service was stopped")));
    EXPECT_THAT(services.reported, IsEmpty());

    const auto outcome = apply_policy(with_services, policy(items)).value();
    EXPECT_FALSE(outcome.error);
    EXPECT_THAT(outcome.given_away.notes, testing::Contains(HasSubstr("is started again")));
    EXPECT_THAT(services.reported, ElementsAre("start nvidia-dcgm.service"));
    EXPECT_FALSE(kernel_.exists("run/ferry/hostd/stopped-services.json"));

    kernel_.forget_changes();
    EXPECT_THAT(apply_policy(with_services, policy(items)).value().given_away.notes, IsEmpty());
    EXPECT_THAT(kernel_.changes(), IsEmpty());
    EXPECT_THAT(services.reported, SizeIs(1));
  }
}

TEST_F(NodeApplyTest, StartsWhatAKilledRunLeftThoughThePolicyIsRefused) {
  kernel_.add_function({.address = "0000:08:00.0",
                        .ids = "10de:1eb8",
                        .class_code = 0x030200,
                        .group = 5,
                        .driver = "nvidia"});
  kernel_.file("proc/sys/kernel/random/boot_id", "b\n");
  kernel_.file("run/ferry/hostd/stopped-services.json",
               R"({"version":1,"boot_id":"b","services":{"nvidia-dcgm.service":"to start"}})");
  Orders services;
  NodeHost with_services = host();
  with_services.rebinds.releaser = &services;
  EXPECT_FALSE(apply_policy(with_services, policy("  - {devices: all, mode: passthrough}\n"
                                                  "  - {devices: [3], mode: host}\n")));
  EXPECT_THAT(services.reported, ElementsAre("start nvidia-dcgm.service"));
}

TEST_F(NodeApplyTest, WritesNothingTheSecondTime) {
  apply(kMixed);
  kernel_.forget_changes();
  const NodeOutcome again = apply(kMixed);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  ASSERT_THAT(again.given_away.results, SizeIs(1));
  EXPECT_EQ(again.given_away.results[0].status, Status::already);
  EXPECT_THAT(again.given_back.results, IsEmpty());
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
  ASSERT_THAT(outcome.given_away.results, SizeIs(2));
  EXPECT_EQ(outcome.given_away.results[0].status, Status::refused);
  EXPECT_THAT(outcome.given_away.results[0].refusal.reasons, ElementsAre(HasSubstr("carries 3 vGPUs")));
}

TEST_F(NodeApplyTest, RefusesToTakeAGpuFromAVm) {
  apply(kMixed);
  probe_.held = kFirst;
  const NodeOutcome outcome = apply(kOther);
  EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "vfio-pci 0", "vfio-pci 0"));
  ASSERT_THAT(outcome.given_back.results, SizeIs(1));
  EXPECT_EQ(outcome.given_back.results[0].status, Status::refused);
}

TEST_F(NodeApplyTest, RefusesTwoPlacesForOneGroupAndWritesNothing) {
  kernel_.add_function({.address = "0000:08:00.0",
                        .ids = "10de:1eb8",
                        .class_code = 0x030200,
                        .group = 5,
                        .driver = "nvidia"});
  const auto outcome = apply_policy(host(), policy("  - {devices: all, mode: passthrough}\n"
                                                   "  - {devices: [3], mode: host}\n"));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Errc::refused);
  EXPECT_THAT(outcome.error().message,
              HasSubstr("0000:05:00.0 is to be passed through and 0000:08:00.0 is not"));
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

/// Beside the T4s one that makes its vGPUs on virtual functions, and has them on.
class NodeWithFunctions : public NodeApplyTest {
 protected:
  static constexpr const char* kFourth = "0000:08:00.0";
  static constexpr const char* kAway = "  - {devices: all, mode: passthrough}\n";

  NodeWithFunctions() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}, .sriov = true});
    kernel_.add_function({.address = kFourth,
                          .ids = "10de:1eb8",
                          .subsystem_ids = "10de:12a2",
                          .class_code = 0x030200,
                          .group = 8,
                          .driver = "nvidia",
                          .totalvfs = 4});
    kernel_.enable_vfs(kFourth, 4);
    vendor_.add_gpu(kFourth, test::t4_types());
    apply("  - {devices: [3], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
    kernel_.forget_changes();
  }
  /// Its driver, virtual functions and vGPUs.
  std::string fourth() const {
    return kernel_.driver_of(kFourth) + " " + std::to_string(kernel_.vfs_of(kFourth).size()) + " " +
           std::to_string(vendor_.devices_on(kFourth).size());
  }
  std::vector<std::string> texts(const vgpu::VgpuPlan& plan) const {
    std::vector<std::string> out;
    for (const vgpu::VgpuStep& step : plan.gpus.at(3).steps) out.push_back(step.text());
    return out;
  }
  static std::string refusal_of(const NodeOutcome& outcome) {
    const auto& error = outcome.vgpus.gpus.at(3).error;
    return error ? error->message : "(none)";
  }

  test::FakeVendorVfio vendor_{kernel_};
};

TEST_F(NodeWithFunctions, GivesAwayOneWhoseFunctionsNobodyUses) {
  const auto preview = preview_policy(host(), policy(kAway)).value();
  EXPECT_THAT(texts(preview.vgpus),
              ElementsAre("remove T4-4Q from 0000:08:00.4", "remove T4-4Q from 0000:08:00.5",
                          "disable 4 virtual functions of 0000:08:00.0"));
  EXPECT_EQ(preview.vgpus.gpus[3].steps[2].why, "p.yaml:4 gives it away whole");
  EXPECT_THAT(preview.given_away.plan.refusals, IsEmpty());
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  const NodeOutcome outcome = apply(kAway);
  EXPECT_FALSE(outcome.error);
  EXPECT_EQ(fourth(), "vfio-pci 0 0");
  kernel_.forget_changes();
  apply(kAway);
  EXPECT_THAT(kernel_.writes(), IsEmpty());
  apply("  - {devices: [3], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
  EXPECT_EQ(fourth(), "nvidia 4 2");
}

TEST_F(NodeWithFunctions, LeavesThemWithTheHost) {
  apply("  - {devices: all, mode: host}\n");
  EXPECT_EQ(fourth(), "nvidia 4 0");
}

TEST_F(NodeWithFunctions, KeepsOneOfWhoseFunctionsOneIsInUse) {
  probe_.held = "0000:08:00.6";  // without a vGPU
  const NodeOutcome outcome = apply(kAway);
  EXPECT_EQ(
      refusal_of(outcome),
      "GPU 3 (0000:08:00.0): its virtual functions would have to be removed, and 0000:08:00.6 is in use: VM "
      "tenant (pid 412) holds its group");
  EXPECT_EQ(fourth(), "nvidia 4 2");
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci") << "the others go";
}

TEST_F(NodeWithFunctions, KeepsOneOfWhoseFunctionsOneIsGivenAway) {
  kernel_.remove("sys/devices/pci0000:00/0000:08:00.7/nvidia/current_vgpu_type");
  kernel_.link("sys/devices/pci0000:00/0000:08:00.7/driver", "../../../bus/pci/drivers/vfio-pci");
  EXPECT_THAT(refusal_of(apply(kAway)), HasSubstr("0000:08:00.7 is bound to a VFIO driver for passthrough"));
  EXPECT_EQ(fourth(), "nvidia 4 2");
}

// Its vGPUs and functions would go for nothing.
TEST_F(NodeWithFunctions, KeepsOneThatCannotGoAllTheSame) {
  probe_.held = kFourth;
  const auto preview = preview_policy(host(), policy(kAway)).value();
  EXPECT_THAT(texts(preview.vgpus), IsEmpty());
  ASSERT_THAT(preview.given_away.plan.refusals, SizeIs(1));
  EXPECT_THAT(preview.given_away.plan.refusals[0].reasons, ElementsAre(HasSubstr("0000:08:00.0 is in use")))
      << "what would go with it is no reason";
  const NodeOutcome outcome = apply(kAway);
  EXPECT_EQ(outcome.vgpus.gpus.at(3).kind, vgpu::GpuOutcome::Kind::unmanaged);
  std::vector<std::string> refused;
  for (const vfio::RebindResult& result : outcome.given_away.results) {
    if (result.status == Status::refused) refused.push_back(result.devices.front().text());
  }
  EXPECT_THAT(refused, ElementsAre(kFourth));
  EXPECT_EQ(fourth(), "nvidia 4 2");
}

// Who uses it, or a vGPU on it, would else let go for nothing.
TEST_F(NodeWithFunctions, SaysBesideWhoUsesItWhatLasts) {
  kernel_.remove("sys/devices/pci0000:00/0000:08:00.7/nvidia/current_vgpu_type");
  kernel_.link("sys/devices/pci0000:00/0000:08:00.7/driver", "../../../bus/pci/drivers/vfio-pci");
  const vfio::PciAddress fourth = vfio::PciAddress::parse(kFourth).value();
  const auto away_itself = HasSubstr("0000:08:00.7 is bound to a VFIO driver for passthrough");
  for (const char* held : {kFourth, "0000:08:00.4"}) {
    SCOPED_TRACE(held);
    probe_.held = held;
    const auto in_use = HasSubstr("VM tenant (pid 412)");
    GpuCondition before = conditions_of(preview_policy(host(), policy(kAway)).value()).at(fourth);
    EXPECT_THAT(before.reasons, testing::UnorderedElementsAre(in_use, away_itself));
    before.users = probe_.look({{{.device = held, .nodes = {}}}}).value().users.at(held);
    EXPECT_FALSE(before.only_in_use());
    EXPECT_THAT(conditions_of(apply(kAway)).at(fourth).reasons,
                testing::UnorderedElementsAre(in_use, away_itself));
  }
  EXPECT_EQ(kernel_.driver_of(kFourth), "nvidia");
}

TEST_F(NodeWithFunctions, PutsVgpusBackWhereFunctionsStay) {
  // The two vGPUs, then the functions; whatever the driver says of it.
  kernel_.fail_change(3, EBUSY);
  const NodeOutcome outcome = apply_policy(host(), policy("  - {devices: [3], mode: passthrough}\n")).value();
  EXPECT_EQ(outcome.vgpus.gpus.at(3).kind, vgpu::GpuOutcome::Kind::failed);
  EXPECT_THAT(outcome.vgpus.gpus.at(3).undo_errors, IsEmpty());
  EXPECT_EQ(fourth(), "nvidia 4 2");
}

TEST_F(NodeApplyTest, TakesNoVgpuAwayWhereNothingCanBeGivenAway) {
  apply("  - {devices: [0], mode: vgpu, vgpu-devices: {T4-4Q: 1}}\n");
  kernel_.remove("sys/kernel/iommu_groups");
  for (const char* address : kGpus) {
    kernel_.remove(std::string("sys/devices/pci0000:00/") + address + "/iommu_group");
  }
  kernel_.forget_changes();
  const auto outcome = apply_policy(host(), policy("  - {devices: all, mode: passthrough}\n"));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Errc::unsupported);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(NodeApplyTest, SaysBeforehandWhatItWouldDoAndWritesNothing) {
  apply(kMixed);
  kernel_.forget_changes();
  const auto preview = preview_policy(host(), policy(kOther)).value();
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  EXPECT_THAT(preview.given_back.plan.rebinds, SizeIs(1));
  EXPECT_THAT(preview.given_away.plan.rebinds, SizeIs(2)) << "the vGPUs are gone by then";
  ASSERT_THAT(preview.vgpus.gpus, SizeIs(3));
  EXPECT_FALSE(preview.vgpus.gpus[0].refusal);
  EXPECT_THAT(preview.vgpus.gpus[0].notes, ElementsAre(HasSubstr("once it is back")));
  EXPECT_THAT(preview.vgpus.gpus[1].steps, SizeIs(3));
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
      (void)apply_policy(host(), policy(kOther));
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

/// The later of two stages fails on a GPU.
class NodeApplyUndo : public NodeApplyTest {
 protected:
  static constexpr const char* kDivided =
      "  - {devices: [0], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n"
      "  - {devices: [2], mode: passthrough}\n";
  static constexpr const char* kAway =
      "  - {devices: [0, 1], mode: passthrough}\n"
      "  - {devices: [2], mode: vgpu, vgpu-devices: {T4-8Q: 1}}\n";
  static constexpr const char* kRecords = "run/ferry/hostd/moves";

  void no_bind_to_vfio(const std::string& address) {
    kernel_.fail_for_good({.path = "sys/bus/pci/drivers/vfio-pci/bind", .value = address}, EIO);
  }
  const GpuCondition& condition(const NodeOutcome& outcome, const char* address) {
    standings_ = conditions_of(outcome);
    return standings_.at(vfio::PciAddress::parse(address).value());
  }
  GpuConditions standings_;
};

TEST_F(NodeApplyUndo, MakesVgpusAgainUnderTheirUuidsWhereTheGpuCannotBeGivenAway) {
  apply(kDivided);
  const auto vgpus = mdev_.devices_on(kFirst);
  no_bind_to_vfio(kFirst);
  const NodeOutcome outcome = apply(kAway);
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
  EXPECT_EQ(mdev_.devices_on(kFirst), vgpus);
  const vgpu::GpuOutcome& gpu = outcome.vgpus.gpus.at(0);
  EXPECT_EQ(gpu.kind, vgpu::GpuOutcome::Kind::failed);
  ASSERT_TRUE(gpu.error);
  EXPECT_THAT(gpu.error->message,
              HasSubstr("it could not be bound for passthrough: bind 0000:05:00.0 to vfio-pci"));
  EXPECT_THAT(gpu.undo_errors, IsEmpty());
  EXPECT_EQ(condition(outcome, kFirst).state, api::GpuState::failed);
  EXPECT_THAT(state(), ElementsAre("nvidia 2", "vfio-pci 0", "nvidia 1")) << "the others go on";

  kernel_.mend();
  apply(kAway);
  EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "vfio-pci 0", "nvidia 1"));
}

TEST_F(NodeApplyUndo, SaysBothErrorsWhereVgpusDoNotComeAgain) {
  apply(kDivided);
  no_bind_to_vfio(kFirst);
  mdev_.swallow_creates = true;
  const NodeOutcome outcome = apply("  - {devices: [0], mode: passthrough}\n");
  EXPECT_THAT(state(), ElementsAre("nvidia 0", "nvidia 0", "vfio-pci 0"));
  EXPECT_THAT(condition(outcome, kFirst).reasons,
              ElementsAre(HasSubstr("it could not be bound for passthrough: bind"),
                          HasSubstr("still to do: create")));
}

TEST_F(NodeApplyUndo, RefusesAsTheLaterStageDidWhereThatWroteNothing) {
  apply(kDivided);
  const auto vgpus = mdev_.devices_on(kFirst);
  // A VM takes the GPU once its vGPUs have gone: there is no other moment for it.
  probe_.before_look = [&] {
    if (mdev_.devices_on(kFirst).empty()) probe_.held = kFirst;
  };
  const NodeOutcome outcome = apply("  - {devices: [0], mode: passthrough}\n");
  EXPECT_EQ(mdev_.devices_on(kFirst), vgpus);
  EXPECT_EQ(outcome.vgpus.gpus.at(0).kind, vgpu::GpuOutcome::Kind::refused);
  const GpuCondition& refused = condition(outcome, kFirst);
  EXPECT_EQ(refused.state, api::GpuState::blocked);
  EXPECT_THAT(refused.reasons, ElementsAre(HasSubstr("VM tenant (pid 412)")));
}

TEST_F(NodeApplyUndo, TakesAGpuToVfioAgainThatGetsNoVgpus) {
  apply(kAway);
  const auto record = kernel_.read_file(std::string(kRecords) + "/5.json").value();
  mdev_.swallow_creates = true;
  const NodeOutcome outcome = apply(kDivided);
  EXPECT_THAT(state(), ElementsAre("vfio-pci 0", "vfio-pci 0", "vfio-pci 0")) << "the others go on";
  EXPECT_EQ(kernel_.override_of(kFirst), "vfio-pci");
  EXPECT_EQ(kernel_.read_file(std::string(kRecords) + "/5.json").value(), record);
  ASSERT_THAT(outcome.given_back.results, SizeIs(1));
  ASSERT_EQ(outcome.given_back.results[0].status, Status::failed);
  EXPECT_THAT(outcome.given_back.results[0].error->message,
              testing::AllOf(HasSubstr("0000:05:00.0 could not be given its vGPUs: "),
                             HasSubstr("; all of it is on vfio as before")));
  EXPECT_THAT(condition(outcome, kFirst).reasons, SizeIs(1));

  mdev_.swallow_creates = false;
  apply(kDivided);
  EXPECT_THAT(state(), ElementsAre("nvidia 2", "vfio-pci 0", "vfio-pci 0"));
}

// What a GPU on vfio can carry is known only once it is back.
TEST_F(NodeApplyUndo, TakesAGpuToVfioAgainThatOffersNoSuchType) {
  apply(kAway);
  const NodeOutcome outcome = apply("  - {devices: [0], mode: vgpu, vgpu-devices: {L40S-12Q: 1}}\n");
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
  ASSERT_THAT(outcome.given_back.results, SizeIs(1));
  ASSERT_EQ(outcome.given_back.results[0].status, Status::refused);
  EXPECT_THAT(outcome.given_back.results[0].refusal.reasons, ElementsAre(HasSubstr("L40S-12Q")));
}

// Nobody knows what it had before; what it has is all that can be put back.
TEST_F(NodeApplyUndo, LeavesNoTraceOnAGpuThatSomebodyElseHadPutOnVfio) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function({.address = "0000:08:00.0",
                        .ids = "10de:1eb8",
                        .subsystem_ids = "10de:12a2",
                        .class_code = 0x030200,
                        .group = 8,
                        .driver = "vfio-pci"});
  mdev_.add_parent("0000:08:00.0");
  mdev_.swallow_creates = true;
  const NodeOutcome outcome = apply("  - {devices: [3], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
  EXPECT_EQ(outcome.vgpus.gpus.at(3).kind, vgpu::GpuOutcome::Kind::failed);
  EXPECT_EQ(kernel_.driver_of("0000:08:00.0"), "vfio-pci");
  EXPECT_EQ(kernel_.override_of("0000:08:00.0"), "");
  EXPECT_THAT(kernel_.list(kRecords).value_or(std::vector<std::string>()), IsEmpty());
}

TEST_F(NodeApplyUndo, TakesNoGpuFromWhoHasTakenItMeanwhile) {
  apply(kAway);
  mdev_.swallow_creates = true;
  probe_.before_look = [&] {
    if (kernel_.driver_of(kFirst) == "nvidia") probe_.held = kFirst;
  };
  const NodeOutcome outcome = apply("  - {devices: [0], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
  ASSERT_TRUE(outcome.given_back.results.at(0).error);
  EXPECT_THAT(outcome.given_back.results[0].error->message,
              testing::ContainsRegex("could not be given its vGPUs: .*; taking it to vfio again failed too: "
                                     ".*in use: VM tenant"));
  EXPECT_THAT(outcome.vgpus.gpus.at(0).undo_errors, SizeIs(1));
}

/// The first GPU has another one in its IOMMU group, and both are away.
class NodeApplyUndoOfTwo : public NodeApplyUndo {
 protected:
  static constexpr const char* kOther = "0000:08:00.0";
  static constexpr const char* kBothDivided = "  - {devices: [0, 3], mode: vgpu, vgpu-devices: {T4-4Q: 1}}\n";
  NodeApplyUndoOfTwo() {
    kernel_.add_function({.address = kOther,
                          .ids = "10de:1eb8",
                          .subsystem_ids = "10de:12a2",
                          .class_code = 0x030200,
                          .group = 5,
                          .driver = "nvidia"});
    mdev_.add_parent(kOther);
    apply("  - {devices: [0, 3], mode: passthrough}\n");
    kernel_.fail_for_good(made_on_other(), EIO);
  }
  // What an undisturbed run writes to make the other one's vGPU.
  test::HostChange made_on_other() {
    kernel_.forget_changes();
    apply(kBothDivided);
    test::HostChange made;
    for (const test::HostChange& change : kernel_.changes())
      if (change.path.find(std::string(kOther) + "/mdev_supported_types") != std::string::npos) made = change;
    apply("  - {devices: [0, 3], mode: passthrough}\n");
    return made;
  }
};

TEST_F(NodeApplyUndoOfTwo, TakesBothToVfioAgain) {
  const NodeOutcome outcome = apply(kBothDivided);
  for (const char* gpu : {kFirst, kOther}) {
    EXPECT_EQ(kernel_.driver_of(gpu), "vfio-pci");
    EXPECT_EQ(condition(outcome, gpu).state, api::GpuState::failed);
    EXPECT_THAT(condition(outcome, gpu).reasons.front(),
                HasSubstr("0000:08:00.0 could not be given its vGPUs"));
  }
  EXPECT_THAT(mdev_.devices_on(kFirst), IsEmpty());
}

TEST_F(NodeApplyUndoOfTwo, TakesNoVgpuFromAVm) {
  probe_.before_look = [&] {
    if (const auto vgpus = mdev_.devices_on(kFirst); !vgpus.empty()) probe_.held = vgpus.front().substr(6);
  };
  const NodeOutcome outcome = apply(kBothDivided);
  EXPECT_THAT(mdev_.devices_on(kFirst), SizeIs(1));
  EXPECT_EQ(kernel_.driver_of(kFirst), "nvidia");
  EXPECT_THAT(condition(outcome, kFirst).reasons.front(),
              testing::ContainsRegex("0000:08:00.0 could not be given its vGPUs: .*; taking it to vfio again "
                                     "failed too: 0000:05:00.0 carries 1 vGPU"));
}

/// The first GPU has a function for audio, which went to vfio with it, and one that somebody else has put
/// there.
class NodeApplyUnplugged : public NodeApplyTest {
 protected:
  static constexpr const char* kAudio = "0000:05:00.1";
  static constexpr const char* kForeign = "0000:05:00.2";
  static constexpr const char* kAllAway = "  - {devices: all, mode: passthrough}\n";
  NodeApplyUnplugged() {
    kernel_.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_function({.address = kAudio,
                          .ids = "10de:10f8",
                          .class_code = 0x040300,
                          .group = 5,
                          .driver = "snd_hda_intel"});
    kernel_.add_function({.address = kForeign,
                          .ids = "10de:1ad8",
                          .class_code = 0x0c0330,
                          .group = 5,
                          .driver = "vfio-pci",
                          .driver_override = "vfio-pci"});
    apply(kAllAway);
    unplug(kFirst);
  }
  void unplug(const std::string& address) {
    kernel_.remove("sys/class/mdev_bus/" + address);
    kernel_.remove_function(address);
  }
  std::vector<std::string> drivers() const {
    return {kernel_.driver_of(kAudio), kernel_.driver_of(kForeign), kernel_.driver_of(kSecond)};
  }
};

TEST_F(NodeApplyUnplugged, GivesBackWhatWentAlongAndNothingElse) {
  ASSERT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "vfio-pci"));
  kernel_.forget_changes();
  const auto preview = preview_policy(host(), policy(kAllAway)).value();
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  ASSERT_THAT(preview.given_back.plan.rebinds, SizeIs(1));
  EXPECT_THAT(preview.given_back.plan.rebinds[0].steps, SizeIs(3));
  const auto outcome = apply(kAllAway);
  EXPECT_THAT(drivers(), ElementsAre("snd_hda_intel", "vfio-pci", "vfio-pci"));
  EXPECT_EQ(kernel_.override_of(kAudio), "");
  ASSERT_THAT(outcome.given_back.results, SizeIs(1));
  EXPECT_EQ(outcome.given_back.results[0].status, Status::done);
  kernel_.forget_changes();
  apply(kAllAway);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(NodeApplyUnplugged, LeavesItToAVmThatHasItAndDoesTheRest) {
  probe_.held = kAudio;
  const auto outcome = apply("  - {devices: all, mode: host}\n");
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "nvidia"));
  ASSERT_THAT(outcome.given_back.results, SizeIs(3));
  EXPECT_EQ(outcome.given_back.results[2].status, Status::refused);
  EXPECT_THAT(outcome.given_back.results[2].refusal.reasons,
              ElementsAre(HasSubstr("0000:05:00.1 is in use")));
}

TEST_F(NodeApplyUnplugged, GivesItBackThoughNoGpuIsLeft) {
  unplug(kSecond);
  unplug(kThird);
  apply(kAllAway);
  EXPECT_THAT(drivers(), ElementsAre("snd_hda_intel", "vfio-pci", ""));
}

}  // namespace
}  // namespace ferry::host
