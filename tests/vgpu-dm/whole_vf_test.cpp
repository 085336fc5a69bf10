// SPDX-License-Identifier: Apache-2.0
// Virtual functions that VMs get whole, by profile: made, bound, counted anew, removed and undone.
#include <algorithm>
#include <array>
#include <cerrno>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "mdev/framework.h"
#include "tests/support/must.h"
#include "tests/vgpu-dm/fault_test.h"
#include "tests/vgpu-dm/gpu_node.h"
#include "vfio/bind/undo_journal.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/plan/comparison.h"
#include "vgpu-dm/plan/export.h"

namespace ferry::vgpu {
namespace {

using Kind = GpuOutcome::Kind;
using test::code_of;
using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

constexpr const char* kGpu = "0000:05:00.0";
constexpr const char* kFirst = "0000:05:00.4";
constexpr const char* kSecond = "0000:05:00.5";
constexpr unsigned kVfs = 8;

vfio::AcceleratorRules rules() {
  return {.vendors = {0x10de},
          .classes = {vfio::PciClass::display_3d},
          .of_other_vendors = {vfio::PciClass::processing_accelerator}};
}

/// `vgpus` on each MI355X.
Profile profile(const std::string& vgpus) {
  return test::profile("  - device-filter: \"0x75A31002\"\n    devices: all\n    vgpu-devices: " + vgpus +
                       "\n");
}
Profile functions(unsigned count) {
  return profile(count == 0 ? std::string("{}") : fmt::format("{{\"1002:75b3\": {}}}", count));
}
Profile provisioned(unsigned count, const std::string& params) {
  Profile out = functions(count);
  out.items.front().vgpus.front().params = VgpuParams::parse(params).value();
  return out;
}

/// An MI355X under gim.
class WholeNode {
 public:
  WholeNode() {
    kernel.add_driver({.name = "gim", .ids = {"1002:75a3", "1002:75b3"}, .sriov = true});
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.add_function({.address = kGpu,
                         .ids = "1002:75a3",
                         .class_code = 0x120000,
                         .group = 5,
                         .driver = "gim",
                         .totalvfs = kVfs,
                         .vf_ids = "1002:75b3"});
  }
  VgpuHost host() {
    return {.host = kernel,
            .writer = kernel,
            .uses = probe,
            .rules = rules_for(functions(1), rules()),
            .node = "node-a",
            .pause = [](auto) {}};
  }
  VgpuSnapshot snapshot() { return look(host()).value(); }
  GpuOutcome apply(const Profile& desired) { return apply_profile(host(), desired).value().gpus.at(0); }
  GpuPlan plan(const Profile& desired) {
    return plan_profile(desired, look(host(), {&desired, 1}).value()).gpus.at(0);
  }
  void make(unsigned count) {
    const GpuOutcome made = apply(functions(count));
    if (made.error) throw std::logic_error(made.error->message);
    kernel.forget_changes();
  }
  /// Files that the driver xe has for each function.
  void add_provisioning() {
    for (unsigned number = 1; number <= kVfs; ++number) {
      const std::string folder =
          fmt::format("sys/devices/pci0000:00/{}/sriov_admin/vf{}/profile/", kGpu, number);
      kernel.file(folder + "exec_quantum_ms", "0\n");
      kernel.file(folder + "preempt_timeout_us", "0\n");
      kernel.file(folder + "sched_priority", "[low] normal high\n");
    }
  }
  std::string provisioning(unsigned number, const std::string& name) const {
    return kernel
        .read_attribute(fmt::format("sys/bus/pci/devices/{}/sriov_admin/vf{}/profile/{}", kGpu, number, name))
        .value();
  }
  /// Another program binds a function, without a record of Ferry.
  void bind_by_hand(const std::string& function) {
    kernel.file(fmt::format("sys/devices/pci0000:00/{}/driver_override", function), "vfio-pci\n");
    const std::string drivers = "sys/bus/pci/drivers/";
    if (const std::string driver = kernel.driver_of(function); !driver.empty())
      test::must(kernel.write(drivers + driver + "/unbind", function));
    test::must(kernel.write(drivers + "vfio-pci/bind", function));
    kernel.forget_changes();
  }
  /// The drivers of the functions, in order.
  std::vector<std::string> drivers() const {
    std::vector<std::string> out;
    for (const std::string& function : kernel.vfs_of(kGpu)) out.push_back(kernel.driver_of(function));
    return out;
  }
  std::string autoprobe() const {
    return kernel.read_attribute(fmt::format("sys/bus/pci/devices/{}/sriov_drivers_autoprobe", kGpu)).value();
  }
  /// The functions with their drivers and overrides.
  std::string state() const {
    std::string out = kernel.driver_of(kGpu) + ":";
    for (const std::string& function : kernel.vfs_of(kGpu))
      out += fmt::format(" {} {} {}", function, kernel.driver_of(function), kernel.override_of(function));
    return out;
  }
  /// The functions that the undo journal has and the host does not.
  std::vector<std::string> recorded_and_gone() const {
    const std::vector<std::string> functions = kernel.vfs_of(kGpu);
    const vfio::UndoJournal journal = test::must(vfio::read_undo_journal(kernel));
    std::vector<std::string> out;
    for (const auto& [address, prior] : journal.members)
      if (std::ranges::find(functions, address.text()) == functions.end()) out.push_back(address.text());
    return out;
  }
  /// The attribute writes, without the folder of PCI devices.
  std::vector<std::string> writes() const {
    std::vector<std::string> out;
    const std::string folder = "sys/bus/pci/";
    for (std::string write : kernel.writes()) out.push_back(write.erase(write.find(folder), folder.size()));
    return out;
  }

  test::FakeKernel kernel;
  test::TableProbe probe;
};

class WholeFunctions : public testing::Test {
 protected:
  WholeNode node;
};

TEST_F(WholeFunctions, ComeWithoutADriverAndAreBound) {
  const Profile desired = functions(1);
  EXPECT_EQ(node.apply(desired).kind, Kind::changed);
  EXPECT_THAT(
      node.writes(),
      ElementsAre("0 > devices/0000:05:00.0/sriov_drivers_autoprobe", "1 > devices/0000:05:00.0/sriov_numvfs",
                  "1 > devices/0000:05:00.0/sriov_drivers_autoprobe",
                  "vfio-pci > devices/0000:05:00.4/driver_override", "0000:05:00.4 > drivers/vfio-pci/bind"));
  EXPECT_EQ(node.kernel.driver_of(kGpu), "gim");
  EXPECT_TRUE(assert_profile(desired, node.snapshot().inventory));
}

TEST_F(WholeFunctions, AreNotMadeTwice) {
  for (const unsigned count : {3U, 1U, 8U, 0U}) {
    node.make(count);
    EXPECT_EQ(node.apply(functions(count)).kind, Kind::already_so) << count;
    EXPECT_TRUE(assert_profile(functions(count), node.snapshot().inventory)) << count;
    EXPECT_THAT(node.kernel.changes(), IsEmpty()) << count;
  }
}

TEST_F(WholeFunctions, AreAsManyAsAreAsked) {
  node.make(4);
  const GpuPlan plan = node.plan(functions(2));
  std::vector<std::string> steps;
  for (const VgpuStep& step : plan.steps) steps.push_back(step.text());
  EXPECT_THAT(steps, ElementsAre("remove 1002:75b3 from 0000:05:00.4", "remove 1002:75b3 from 0000:05:00.5",
                                 "remove 1002:75b3 from 0000:05:00.6", "remove 1002:75b3 from 0000:05:00.7",
                                 "disable 4 virtual functions of 0000:05:00.0"));
  ASSERT_THAT(plan.later, SizeIs(1));
  EXPECT_EQ(plan.later[0].text(), "enable 2 virtual functions of 0000:05:00.0");
  EXPECT_EQ(text(plan.then), "2 x 1002:75b3");
  EXPECT_EQ(node.apply(functions(2)).kind, Kind::changed);
  EXPECT_THAT(node.drivers(), ElementsAre("vfio-pci", "vfio-pci"));
}

TEST_F(WholeFunctions, StayOnTheHostWhereNoneIsAsked) {
  node.make(2);
  EXPECT_EQ(node.apply(functions(0)).kind, Kind::changed);
  EXPECT_THAT(node.drivers(), ElementsAre("", ""));
  node.kernel.enable_vfs(kGpu, 0);
  node.kernel.enable_vfs(kGpu, 3);
  node.kernel.forget_changes();
  EXPECT_EQ(node.apply(functions(0)).kind, Kind::already_so);
  EXPECT_THAT(node.drivers(), ElementsAre("gim", "gim", "gim"));
}

TEST_F(WholeFunctions, AreTakenFromTheHostsDriver) {
  node.kernel.enable_vfs(kGpu, 2);
  EXPECT_EQ(node.apply(functions(2)).kind, Kind::changed);
  EXPECT_THAT(node.drivers(), ElementsAre("vfio-pci", "vfio-pci"));
  EXPECT_EQ(node.apply(functions(0)).kind, Kind::changed);
  EXPECT_THAT(node.drivers(), ElementsAre("gim", "gim")) << "each goes back to the driver that it had";
}

TEST_F(WholeFunctions, AreRefusedWhileAVmHasOne) {
  node.make(2);
  node.probe.hold(kSecond);
  for (const unsigned count : {3U, 0U}) {
    const auto outcome = apply_profile(node.host(), functions(count)).value();
    EXPECT_EQ(outcome.status(), ExitStatus::refused) << count;
    EXPECT_EQ(code_of(outcome.gpus.at(0).error), Errc::refused) << count;
    EXPECT_THAT(message_of(outcome.gpus.at(0).error),
                HasSubstr("0000:05:00.5 (1002:75b3) would have to be removed: VM render (pid 412)"))
        << count;
  }
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST_F(WholeFunctions, AreRefusedWhileTheHostUsesOne) {
  node.kernel.enable_vfs(kGpu, 2);
  node.probe.users[kFirst] = {{.kind = vfio::DeviceUser::Kind::process,
                               .name = "rocm",
                               .pid = 77,
                               .what = "/dev/dri/renderD129",
                               .pod_uid = {}}};
  for (const unsigned count : {2U, 4U}) {
    EXPECT_EQ(code_of(node.plan(functions(count)).refusal), Errc::refused) << count;
    const auto outcome = apply_profile(node.host(), functions(count)).value();
    EXPECT_EQ(outcome.status(), ExitStatus::refused) << count;
    EXPECT_THAT(message_of(outcome.gpus.at(0).error), HasSubstr("rocm")) << count;
  }
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST_F(WholeFunctions, HaveToFitOnTheGpu) {
  const auto refusal = [&](const char* vgpus) {
    const GpuOutcome outcome = node.apply(profile(vgpus));
    EXPECT_EQ(outcome.kind, Kind::refused);
    EXPECT_EQ(code_of(outcome.error), Errc::invalid_config);
    return message_of(outcome.error);
  };
  EXPECT_EQ(refusal("{\"1002:75b3\": 9}"),
            "p.yaml:6: GPU 0 (0000:05:00.0): no room for 9 x 1002:75b3: 8 fit");
  EXPECT_THAT(refusal("{\"1002:744c\": 1}"),
              StartsWith("p.yaml:6: GPU 0 (0000:05:00.0): offers no type 1002:744c"));
  EXPECT_THAT(refusal("{L40S-12Q: 1}"),
              StartsWith("p.yaml:6: GPU 0 (0000:05:00.0): offers no type L40S-12Q"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST_F(WholeFunctions, NeedAnIommu) {
  WholeNode bare;
  bare.kernel.add_function({.address = "0000:06:00.0",
                            .ids = "1002:75a3",
                            .class_code = 0x120000,
                            .driver = "gim",
                            .totalvfs = kVfs,
                            .vf_ids = "1002:75b3"});
  const auto outcome = apply_profile(bare.host(), functions(1)).value();
  EXPECT_EQ(outcome.gpus.at(0).kind, Kind::changed);
  EXPECT_EQ(outcome.gpus.at(1).kind, Kind::refused);
  EXPECT_EQ(code_of(outcome.gpus.at(1).error), Errc::unsupported);
}

TEST_F(WholeFunctions, OfAnotherVendorNeedAFilter) {
  const Profile all = test::on("all", "{\"1002:75b3\": 1}");
  EXPECT_THAT(look(VgpuHost{.host = node.kernel,
                            .writer = node.kernel,
                            .uses = node.probe,
                            .rules = rules_for(all, rules()),
                            .node = "node-a"})
                  .value()
                  .inventory.gpus,
              IsEmpty());
  EXPECT_EQ(node.apply(all).kind, Kind::unmanaged) << "`devices: all` names no GPU of another vendor";
  EXPECT_TRUE(assert_profile(all, node.snapshot().inventory));
}

TEST_F(WholeFunctions, AreDeletedOnRequest) {
  node.make(2);
  const GpuOutcome gone = remove_vgpus(node.host(), {}).value().gpus.at(0);
  EXPECT_EQ(gone.kind, Kind::changed) << message_of(gone.error);
  EXPECT_THAT(gone.notes, IsEmpty());
  EXPECT_THAT(node.drivers(), ElementsAre("", ""));
  node.bind_by_hand(kFirst);
  const GpuOutcome left = remove_vgpus(node.host(), {}).value().gpus.at(0);
  EXPECT_EQ(left.kind, Kind::already_so) << "Ferry did not bind it";
  EXPECT_THAT(left.notes, ElementsAre("GPU 0 (0000:05:00.0): vGPU 0000:05:00.4 (1002:75b3) was not made by "
                                      "Ferry: left; --foreign takes it too"));
  EXPECT_EQ(remove_vgpus(node.host(), {.gpus = {}, .foreign = true}).value().gpus.at(0).kind, Kind::changed);
  EXPECT_THAT(node.drivers(), ElementsAre("gim", "")) << "without a record the kernel chooses";
}

TEST_F(WholeFunctions, ThatAnotherProgramBoundAreTakenWithANote) {
  node.kernel.enable_vfs(kGpu, 2);
  node.bind_by_hand(kFirst);
  for (const unsigned count : {0U, 1U}) {
    const GpuPlan plan = node.plan(functions(count));
    EXPECT_FALSE(plan.refusal) << count << message_of(plan.refusal);
    ASSERT_THAT(plan.notes, SizeIs(1)) << count;
    EXPECT_THAT(
        plan.notes.front(),
        StartsWith("GPU 0 (0000:05:00.0): vGPU 0000:05:00.4 (1002:75b3) was not made by Ferry, and is "
                   "removed: "))
        << count;
  }
  EXPECT_EQ(node.apply(functions(0)).kind, Kind::changed);
  EXPECT_THAT(node.drivers(), ElementsAre("gim", "gim"));
}

TEST_F(WholeFunctions, ThatAnotherProgramBoundStayWhereThatIsAskedFor) {
  node.kernel.enable_vfs(kGpu, 2);
  node.bind_by_hand(kFirst);
  VgpuHost host = node.host();
  host.spares_foreign = true;
  Profile whole = functions(0);
  whole.items.front().whole = true;
  for (const Profile& desired : {functions(0), functions(1), whole}) {
    const GpuOutcome outcome = apply_profile(host, desired).value().gpus.at(0);
    EXPECT_EQ(outcome.kind, Kind::refused);
    EXPECT_EQ(code_of(outcome.error), Errc::refused);
    EXPECT_EQ(message_of(outcome.error),
              "GPU 0 (0000:05:00.0): 1 vGPU would have to be removed and was not made by Ferry: 0000:05:00.4 "
              "(1002:75b3)");
  }
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
  EXPECT_EQ(apply_profile(host, functions(2)).value().gpus.at(0).kind, Kind::changed);
  EXPECT_THAT(node.drivers(), ElementsAre("vfio-pci", "vfio-pci")) << "it fits, so it stays";
}

TEST_F(WholeFunctions, ThatFerryBoundGoWhereOthersAreSpared) {
  node.make(2);
  VgpuHost host = node.host();
  host.spares_foreign = true;
  const GpuOutcome outcome = apply_profile(host, functions(1)).value().gpus.at(0);
  EXPECT_EQ(outcome.kind, Kind::changed) << message_of(outcome.error);
  EXPECT_THAT(outcome.notes, IsEmpty());
  EXPECT_THAT(node.drivers(), ElementsAre("vfio-pci"));
}

TEST_F(WholeFunctions, AreExportedWithTheFilterOfTheirGpu) {
  node.make(2);
  const auto exported = export_profile(node.snapshot().inventory, "now");
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(profile_text(*exported),
            "version: v1\n"
            "vgpu-configs:\n"
            "  now:\n"
            "  - devices: all\n"
            "    device-filter: [\"0x75A31002:0x16F310DE\"]\n"
            "    vgpu-devices:\n"
            "      1002:75b3: 2\n");
  EXPECT_EQ(node.apply(*exported).kind, Kind::already_so);
}

TEST_F(WholeFunctions, BesideOthersAreLeftOutOfAnExport) {
  node.kernel.enable_vfs(kGpu, 2);
  node.bind_by_hand(kFirst);
  const auto inventory = node.snapshot().inventory;
  const auto exported = export_profile(inventory, "now");
  ASSERT_TRUE(exported) << exported.error().message;
  ASSERT_EQ(exported->items.size(), 1U);
  EXPECT_THAT(exported->items[0].indices, IsEmpty());
  EXPECT_FALSE(exported->items[0].all_devices);
  EXPECT_THAT(unsaid_by_v1(inventory),
              ElementsAre(HasSubstr("left out: 1 of its 2 virtual functions is on a vfio driver")));
}

TEST_F(WholeFunctions, GetTheirProvisioning) {
  node.add_provisioning();
  Profile desired = functions(2);
  desired.items.front().vgpus.front().params =
      VgpuParams::parse("exec_quantum_ms=20,preempt_timeout_us=1000").value();
  EXPECT_EQ(node.apply(desired).kind, Kind::changed);
  for (const unsigned number : {1U, 2U}) {
    EXPECT_EQ(node.provisioning(number, "exec_quantum_ms"), "20") << number;
    EXPECT_EQ(node.provisioning(number, "preempt_timeout_us"), "1000") << number;
  }
  EXPECT_EQ(node.provisioning(3, "exec_quantum_ms"), "0");
  EXPECT_EQ(node.apply(desired).kind, Kind::already_so);
  desired.items.front().vgpus.front().params = VgpuParams::parse("exec_quantum_ms=40").value();
  EXPECT_EQ(node.apply(desired).kind, Kind::changed);
  EXPECT_EQ(node.provisioning(1, "exec_quantum_ms"), "40");
  EXPECT_EQ(node.provisioning(1, "preempt_timeout_us"), "0") << "all parameters are replaced";
  EXPECT_THAT(unsaid_by_v1(node.snapshot().inventory), SizeIs(1));
}

TEST_F(WholeFunctions, GetTheirProvisioningBackAfterAFailure) {
  node.add_provisioning();
  Profile desired = functions(2);
  desired.items.front().vgpus.front().params = VgpuParams::parse("exec_quantum_ms=20").value();
  ASSERT_EQ(node.apply(desired).kind, Kind::changed);
  desired.items.front().vgpus.front().params = VgpuParams::parse("preempt_timeout_us=500").value();
  for (std::size_t n = 1; n <= 4; ++n) {
    node.kernel.fail_change(n, EIO);
    const GpuOutcome outcome = node.apply(desired);
    EXPECT_EQ(outcome.kind, Kind::failed) << n;
    EXPECT_THAT(outcome.undo_errors, IsEmpty()) << n;
    for (const unsigned number : {1U, 2U}) {
      EXPECT_EQ(node.provisioning(number, "exec_quantum_ms"), "20") << n;
      EXPECT_EQ(node.provisioning(number, "preempt_timeout_us"), "0") << n;
    }
  }
}

// The driver keeps the values of a function that is no vGPU.
TEST_F(WholeFunctions, LoseAnEarlierProvisioningWhereNoneIsAsked) {
  node.add_provisioning();
  ASSERT_EQ(node.apply(provisioned(2, "exec_quantum_ms=20")).kind, Kind::changed);
  ASSERT_EQ(node.apply(functions(0)).kind, Kind::changed);
  ASSERT_EQ(node.provisioning(1, "exec_quantum_ms"), "20");
  EXPECT_EQ(node.apply(provisioned(2, "")).kind, Kind::changed);
  for (const unsigned number : {1U, 2U}) EXPECT_EQ(node.provisioning(number, "exec_quantum_ms"), "0");
  EXPECT_EQ(node.apply(provisioned(2, "")).kind, Kind::already_so);
}

TEST_F(WholeFunctions, GetTheirProvisioningBackBeforeTheyAreUnbound) {
  constexpr const char* kQuantum =
      "sys/bus/pci/devices/0000:05:00.0/sriov_admin/vf{}/profile/exec_quantum_ms";
  const Profile desired = provisioned(2, "exec_quantum_ms=20");
  for (const unsigned functions_of_host : {0U, 2U}) {
    for (const bool later_work_fails : {false, true}) {
      SCOPED_TRACE(testing::Message() << functions_of_host << " " << later_work_fails);
      WholeNode one;
      one.add_provisioning();
      one.kernel.enable_vfs(kGpu, functions_of_host);
      test::must(one.kernel.write(fmt::format(kQuantum, 2), "7"));
      if (!later_work_fails) one.kernel.fail_for_good({.path = fmt::format(kQuantum, 2), .value = "20"}, EIO);
      const std::string before = one.state();
      const GpuOutcome outcome = one.apply(desired);
      EXPECT_EQ(outcome.kind, later_work_fails ? Kind::changed : Kind::failed);
      EXPECT_THAT(later_work_fails ? put_back(one.host(), desired, outcome) : outcome.undo_errors, IsEmpty());
      EXPECT_EQ(one.state(), before);
      EXPECT_EQ(one.provisioning(1, "exec_quantum_ms"), "0");
      EXPECT_EQ(one.provisioning(2, "exec_quantum_ms"), "7");
    }
  }
}

TEST_F(WholeFunctions, GoAfterAFailureThoughAParameterStays) {
  const std::string timeout =
      fmt::format("sys/bus/pci/devices/{}/sriov_admin/vf1/profile/preempt_timeout_us", kGpu);
  node.add_provisioning();
  for (const char* value : {"1000", "0"}) node.kernel.fail_for_good({.path = timeout, .value = value}, EIO);
  const std::string before = node.state();
  const GpuOutcome outcome = node.apply(provisioned(2, "exec_quantum_ms=20,preempt_timeout_us=1000"));
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_THAT(outcome.undo_errors, SizeIs(1));
  EXPECT_EQ(node.state(), before);
}

TEST_F(WholeFunctions, HaveOnlyTheParametersOfTheirDriver) {
  Profile desired = functions(1);
  desired.items.front().vgpus.front().params = VgpuParams::parse("exec_quantum_ms=20").value();
  node.make(2);
  const GpuOutcome none = node.apply(desired);
  EXPECT_EQ(none.kind, Kind::refused) << "gim has none";
  EXPECT_EQ(code_of(none.error), Errc::unsupported);
  EXPECT_THAT(message_of(none.error),
              HasSubstr("GPU 0 (0000:05:00.0): the driver of its GPU has no sriov_admin/"));
  node.add_provisioning();
  for (const char* bad :
       {"frame_rate_limiter=0", "exec_quantum_ms=0", "exec_quantum_ms=x", "exec_quantum_ms=020",
        "exec_quantum_ms=20,preempt_timeout_us=0x10", "exec_quantum_ms=4294967296"}) {
    desired.items.front().vgpus.front().params = VgpuParams::parse(bad).value();
    const GpuOutcome outcome = node.apply(desired);
    EXPECT_EQ(outcome.kind, Kind::refused) << bad;
    EXPECT_EQ(code_of(outcome.error), Errc::unsupported) << bad;
    EXPECT_THAT(message_of(outcome.error), HasSubstr("a virtual function has no parameter '")) << bad;
  }
  EXPECT_THAT(node.kernel.changes(), IsEmpty()) << "another number of functions would have destroyed both";
  desired.items.front().vgpus.front().params = VgpuParams::parse("exec_quantum_ms=20").value();
  EXPECT_EQ(node.apply(desired).kind, Kind::changed);
}

TEST_F(WholeFunctions, LeaveTheSettingOfProbesAsItWas) {
  node.kernel.file(fmt::format("sys/devices/pci0000:00/{}/sriov_drivers_autoprobe", kGpu), "0\n");
  node.make(1);
  EXPECT_EQ(node.autoprobe(), "0");
  node.kernel.enable_vfs(kGpu, 0);
  EXPECT_EQ(node.apply(functions(1)).kind, Kind::changed);
  EXPECT_THAT(node.writes(), testing::Not(testing::Contains(HasSubstr("autoprobe"))));
}

TEST_F(WholeFunctions, OfTwoGpusChangeSideBySide) {
  constexpr const char* kOther = "0000:06:00.0";
  node.kernel.add_function({.address = kOther,
                            .ids = "1002:75a3",
                            .class_code = 0x120000,
                            .group = 6,
                            .driver = "gim",
                            .totalvfs = kVfs,
                            .vf_ids = "1002:75b3"});
  for (const unsigned count : {2U, 3U, 1U}) {
    const VgpuOutcome outcome = apply_profile(node.host(), functions(count)).value();
    ASSERT_THAT(outcome.gpus, SizeIs(2));
    for (const GpuOutcome& gpu : outcome.gpus)
      EXPECT_EQ(gpu.kind, Kind::changed) << count << message_of(gpu.error);
    for (const std::string& gpu : {std::string(kGpu), std::string(kOther)}) {
      EXPECT_THAT(node.kernel.vfs_of(gpu), SizeIs(count)) << gpu;
      for (const std::string& function : node.kernel.vfs_of(gpu))
        EXPECT_EQ(node.kernel.driver_of(function), "vfio-pci") << function;
      EXPECT_EQ(node.kernel.read_attribute("sys/bus/pci/devices/" + gpu + "/sriov_drivers_autoprobe").value(),
                "1");
      EXPECT_FALSE(node.kernel.exists("run/ferry/hostd/autoprobe/" + gpu));
    }
  }
  node.probe.hold(node.kernel.vfs_of(kOther).at(0));
  const VgpuOutcome outcome = apply_profile(node.host(), functions(2)).value();
  EXPECT_EQ(outcome.gpus.at(0).kind, Kind::changed);
  EXPECT_EQ(outcome.gpus.at(1).kind, Kind::refused);
  EXPECT_EQ(outcome.status(), ExitStatus::refused);
  EXPECT_THAT(node.kernel.vfs_of(kOther), SizeIs(1));
}

TEST_F(WholeFunctions, GetNoDriverOfTheHostBeforeTheyAreRemoved) {
  const auto removes_without_drivers = [](WholeNode& one) {
    one.kernel.forget_changes();
    EXPECT_EQ(one.apply(functions(1)).kind, Kind::changed);
    EXPECT_THAT(one.writes(), testing::Each(testing::Not(testing::AnyOf(HasSubstr("drivers/gim/bind"),
                                                                        HasSubstr("drivers_probe")))));
    EXPECT_THAT(one.drivers(), ElementsAre("vfio-pci"));
    EXPECT_EQ(one.apply(functions(0)).kind, Kind::changed);
    EXPECT_THAT(one.drivers(), ElementsAre("")) << "the record of the function before it is gone";
  };
  node.kernel.enable_vfs(kGpu, 2);
  ASSERT_EQ(node.apply(functions(2)).kind, Kind::changed);
  removes_without_drivers(node);
  WholeNode other;
  other.kernel.enable_vfs(kGpu, 2);
  other.bind_by_hand(kFirst);
  removes_without_drivers(other);
}

TEST_F(WholeFunctions, KnowTheirDriverOfTheHostAfterTheirRemovalFailed) {
  const auto take_two = [](WholeNode& one) {
    one.kernel.enable_vfs(kGpu, 2);
    ASSERT_EQ(one.apply(functions(2)).kind, Kind::changed);
    one.kernel.forget_changes();
  };
  WholeNode model;
  take_two(model);
  ASSERT_EQ(model.apply(functions(1)).kind, Kind::changed);
  const auto& changes = model.kernel.changes();
  const auto removal = std::ranges::find_if(
      changes, [](const test::HostChange& change) { return change.path.ends_with("/sriov_numvfs"); });
  ASSERT_NE(removal, changes.end());
  take_two(node);
  node.kernel.fail_change(static_cast<std::size_t>(removal - changes.begin()) + 1, EBUSY);
  EXPECT_EQ(node.apply(functions(1)).kind, Kind::failed);
  EXPECT_THAT(node.drivers(), ElementsAre("vfio-pci", "vfio-pci"));
  EXPECT_EQ(node.apply(functions(0)).kind, Kind::changed);
  EXPECT_THAT(node.drivers(), ElementsAre("gim", "gim"));
}

TEST_F(WholeFunctions, PassOnTheNotesOfTheirBinding) {
  node.make(1);
  node.probe.unknown = {"the kubelet was not asked"};
  EXPECT_THAT(node.apply(functions(0)).notes, testing::Contains("the kubelet was not asked"));
}

TEST_F(WholeFunctions, GetTheSettingOfProbesBackThatARunLeftOff) {
  node.make(1);
  const std::string memory = fmt::format("run/ferry/hostd/autoprobe/{}", kGpu);
  EXPECT_FALSE(node.kernel.exists(memory));
  node.kernel.file(fmt::format("sys/devices/pci0000:00/{}/sriov_drivers_autoprobe", kGpu), "0\n");
  node.kernel.file(memory, "of another boot\n");
  EXPECT_THAT(node.plan(functions(1)).steps, IsEmpty());
  node.kernel.file(memory, node.kernel.read_attribute("proc/sys/kernel/random/boot_id").value() + "\n");
  const GpuPlan plan = node.plan(functions(2));
  ASSERT_THAT(plan.steps, testing::Not(IsEmpty()));
  EXPECT_EQ(plan.steps.front().text(), "set sriov_drivers_autoprobe of 0000:05:00.0 to 1");
  ASSERT_THAT(node.plan(functions(1)).steps, SizeIs(1));
  EXPECT_EQ(node.apply(functions(1)).kind, Kind::changed);
  EXPECT_EQ(node.autoprobe(), "1");
  EXPECT_FALSE(node.kernel.exists(memory));
  EXPECT_EQ(node.apply(functions(1)).kind, Kind::already_so);
}

// A run is killed after it has disabled the functions, and before it has removed their records.
TEST_F(WholeFunctions, ThatAreGoneAreForgottenByTheNextRun) {
  node.make(1);
  const auto records = test::must(node.kernel.list("run/ferry/hostd/moves"));
  ASSERT_THAT(records, SizeIs(1));
  const std::string record = "run/ferry/hostd/moves/" + records.front();
  const std::string text = test::must(node.kernel.read_file(record));
  Profile none = functions(0);
  none.items.front().whole = true;
  ASSERT_EQ(node.apply(none).kind, Kind::changed);
  ASSERT_THAT(node.drivers(), IsEmpty());
  ASSERT_FALSE(node.kernel.exists(record));
  node.kernel.file(record, text);
  EXPECT_THAT(test::must(recorded_functions_gone(node.kernel, node.snapshot().inventory)),
              ElementsAre(test::at(kFirst)));
  EXPECT_EQ(node.apply(none).kind, Kind::already_so);
  EXPECT_FALSE(node.kernel.exists(record));
}

/// From one number of functions on vfio-pci to another.
struct Way {
  const char* name;
  unsigned from = 0;
  unsigned to = 0;
  bool of_host = false;  ///< those before are on the host's driver
  bool whole = false;    ///< the GPU shall have none at the end
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

constexpr std::array kWays = {
    Way{.name = "FromNone", .from = 0, .to = 1},
    Way{.name = "ToNone", .from = 1, .to = 0},
    Way{.name = "ToFewer", .from = 2, .to = 1},
    Way{.name = "ToMore", .from = 1, .to = 2},
    Way{.name = "FromTheHost", .from = 1, .to = 1, .of_host = true},
    Way{.name = "FromOtherNumberOfTheHost", .from = 2, .to = 1, .of_host = true},
    Way{.name = "ToWhole", .from = 1, .to = 0, .whole = true},
};

class Journey {
 public:
  using Param = Way;
  static constexpr const char* kGpu = vgpu::kGpu;
  static constexpr bool kOutlivesFaults = false;

  explicit Journey(const Way& way) : way_(way) {
    if (way.of_host) {
      node.kernel.enable_vfs(kGpu, way.from);
    } else if (way.from > 0) {
      node.make(way.from);
    }
    node.kernel.forget_changes();
  }
  Profile profile() const {
    Profile out = functions(way_.to);
    out.items.front().whole = way_.whole;
    return out;
  }
  GpuOutcome run() { return node.apply(profile()); }
  static const std::string& lasting(const std::string& state) { return state; }
  // A file of Ferry does not hang. Several functions are bound side by side, so the number of a change does
  // not say then which change it is.
  static bool can_hang(const Way& way, const test::HostChange& change) {
    return way.from <= 1 && way.to <= 1 && change.path.starts_with("sys/");
  }
  void expect_settled() const { EXPECT_EQ(node.autoprobe(), "1"); }
  void expect_nothing_left() const { EXPECT_THAT(node.recorded_and_gone(), IsEmpty()); }
  WholeNode node;

 private:
  const Way& way_;
};

class EveryChange : public test::FaultTest<Journey> {};

TEST_P(EveryChange, ThatFailsLeavesTheGpuAsItWas) {
  each_change_fails();
}

TEST_P(EveryChange, IsTakenBackWhereWhatComesBehindFails) {
  later_work_fails();
}

TEST_P(EveryChange, ThatHangsIsLeftAloneUntilItReturns) {
  each_change_hangs();
}

TEST_P(EveryChange, ThatIsTheLastBeforeDeathIsRepairedByTheNextRun) {
  each_change_is_the_last();
}

INSTANTIATE_TEST_SUITE_P(Ways, EveryChange, testing::ValuesIn(kWays),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace ferry::vgpu
