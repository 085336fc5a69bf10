// SPDX-License-Identifier: Apache-2.0
#include "cli/output/explanation.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include <gmock/gmock.h>

#include "api/files.h"
#include "cli/output/status_text.h"
#include "cli/verbs/node_inputs.h"
#include "hostfs/locks.h"
#include "tests/support/described_host.h"
#include "tests/support/machines.h"
#include "tests/support/must.h"
#include "tests/vfio/machines.h"

namespace ferry::cli {
namespace {

using test::must;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kGpu = "0000:5e:00.0";
constexpr const char* kResource = "nvidia.com/TU104GL_TESLA_T4";

/// A machine with a GPU that the plugin offers, which runs unless a test says otherwise.
class ExplainAdvertisedDevice : public testing::Test {
 protected:
  ExplainAdvertisedDevice() {
    test::composed_machine("t4-server").build(machine_);
    session_ = open_session(machine_.kernel.root());
    session_.probe = std::make_unique<test::TableProbe>();
    inputs = must(read_explain_inputs(session_));
    inputs.plugin_runs = true;
  }
  std::string explained(const std::string& word) const {
    return explanation_text(explanation_of(inputs, must(find_subject(inputs, word))), {.columns = 160});
  }
  api::AdvertisedResources& advertised() {
    if (!inputs.snapshot.advertised) throw std::runtime_error("the machine offers nothing");
    return *inputs.snapshot.advertised;
  }

  ExplainInputs inputs;
  test::Machine machine_;
  Session session_;
};

TEST_F(ExplainAdvertisedDevice, SaysNothingMoreWhereTheKubeletReadsIt) {
  EXPECT_THAT(explained(kGpu), AllOf(HasSubstr(kResource), Not(HasSubstr("no further pod"))));
  EXPECT_THAT(explained(kResource), Not(HasSubstr("no further pod")));
}

TEST_F(ExplainAdvertisedDevice, SaysThatItIsNotAdvertisedNow) {
  inputs.plugin_runs = false;
  for (const char* word : {kGpu, kResource})
    EXPECT_THAT(explained(word), HasSubstr("to no further pod now: ferry plugin does not run")) << word;
}

TEST_F(ExplainAdvertisedDevice, ShowsTheRegistersThatHostdHasRead) {
  const auto with = [&](const api::ReportedRegisters& registers) {
    for (host::AcceleratorDescription& gpu : inputs.description.accelerators) {
      if (!gpu.status) gpu.status.emplace();
      gpu.status->registers = registers;
    }
    return explained(kGpu);
  };
  EXPECT_THAT(explained(kGpu), Not(HasSubstr("registers")));
  api::ReportedRegisters registers{.facts = {.chip = "gh100",
                                             .booted = true,
                                             .cc_mode = vfio::CcMode::on,
                                             .scrubbed = false,
                                             .memory_bytes = std::uint64_t{80} << 30U,
                                             .ecc = true,
                                             .chip_id = "0123456789abcdef"},
                                   .read_at = 1796000000};
  EXPECT_THAT(
      with(registers),
      AllOf(HasSubstr("confidential mode on, as read at 2026-11-30 00:53:20 UTC"),
            HasSubstr("chip gh100, id 0123456789abcdef, memory of 81920 MiB, with ECC, not cleared yet")));
  registers.facts.unknown = {{.fact = "ecc", .reason = "blocked by the mode 'on'"}};
  EXPECT_THAT(with(registers), HasSubstr("ecc not known: blocked by the mode 'on'"));
  registers.facts.cc_mode = vfio::CcMode::invalid;
  EXPECT_THAT(with(registers), HasSubstr("confidential mode invalid: setting any mode repairs it"));
  registers.facts.recovery = true;
  EXPECT_THAT(with(registers), HasSubstr("its firmware is in recovery mode"));
  EXPECT_THAT(with({.facts = {.problem = "driver nvidia owns it"}}),
              HasSubstr("not read: driver nvidia owns it"));
}

TEST_F(ExplainAdvertisedDevice, OffersNoChangeOfDriversThatIsRefused) {
  constexpr const char* kOfTheHost = "0000:3b:00.0";
  const auto describe = [&] { inputs.description = host::describe_node(inputs.snapshot, inputs.rules, {}); };
  const auto changes = [](const char* what, const std::string& why) {
    return AllOf(HasSubstr(what + (": " + why)), Not(HasSubstr("--device")));
  };
  const auto are_refused = [&](const std::string& why) {
    describe();
    EXPECT_THAT(explained(kGpu), changes("it cannot go back to the host", why));
    EXPECT_THAT(explained(kOfTheHost), changes("it cannot be bound to vfio", why));
  };
  for (const char* gpu : {kGpu, kOfTheHost}) {
    inputs.snapshot.stuck.push_back({.pid = 7, .act = "write x", .value = gpu, .kernel_state = {}});
    const auto group = inputs.snapshot.inventory.find(must(vfio::PciAddress::parse(gpu)))->iommu_group;
    inputs.snapshot.journal.unreadable.emplace(group.value(),
                                               Error{.code = Errc::failed, .message = "it is torn"});
  }
  are_refused("an earlier write to ");
  inputs.snapshot.stuck.clear();
  are_refused("it is torn");
}

TEST_F(ExplainAdvertisedDevice, OffersNoRemovalOfVgpusThatIsRefused) {
  for (host::AcceleratorDescription& gpu : inputs.description.accelerators)
    if (!gpu.vgpus.empty()) gpu.vgpu_problem = "one is in no IOMMU group";
  for (const char* word : {"0000:af:00.0", "566b0cda-8c18-5fd3-92cb-496c5a60815f"})
    EXPECT_THAT(explained(word),
                AllOf(HasSubstr("Ferry removes no vGPU of 0000:af:00.0 meanwhile: one is in no IOMMU group"),
                      Not(HasSubstr("vgpu delete"))));
}

TEST_F(ExplainAdvertisedDevice, NamesAnOverrideOnlyWhereItIsTheCause) {
  const auto found = std::ranges::find(inputs.description.accelerators, must(vfio::PciAddress::parse(kGpu)),
                                       &host::AcceleratorDescription::address);
  ASSERT_NE(found, inputs.description.accelerators.end());
  host::AcceleratorDescription& gpu = *found;
  gpu.prior.reset();
  gpu.function.vfio_devices.clear();
  struct Row {
    std::optional<std::string> driver;
    std::optional<std::string> named;
    std::string reason;
  };
  for (const Row& row :
       {Row{"vfio-pci", "vfio-pci", "its driver_override is vfio-pci, and Ferry did not set it"},
        Row{"vfio-pci", {}, "the driver took it by its IDs"},
        Row{"vfio-pci", "nvidia", "vfio-pci took it before its driver_override named nvidia"},
        Row{"nvidia", "vfio-pci", "nvidia took it before its driver_override named vfio-pci"},
        Row{"nvidia", "nvidia", "its driver_override is nvidia"},
        Row{"nvidia", {}, "the kernel's choice: nvidia took it when it was found"},
        Row{{}, "vfio-pci", "the kernel binds only vfio-pci, which its driver_override names"},
        Row{{}, {}, "no driver of the host takes it, or it was unbound from its driver"}}) {
    gpu.function.driver = row.driver;
    gpu.function.driver_override = row.named;
    gpu.mode = row.driver == "vfio-pci" ? policy::Mode::passthrough : policy::Mode::host;
    EXPECT_THAT(explained(kGpu), HasSubstr(row.reason));
  }
  gpu.function.override_unread = true;
  EXPECT_THAT(explained(kGpu), HasSubstr("not known: its driver_override was not read"));
  inputs.snapshot.journal.unreadable.emplace(31U, Error{.code = Errc::failed, .message = "it is torn"});
  EXPECT_THAT(explained(kGpu), HasSubstr("not known: the record of Ferry about group 31 cannot be read"));
}

TEST_F(ExplainAdvertisedDevice, SeesWhetherThePluginRuns) {
  EXPECT_FALSE(must(read_explain_inputs(session_)).plugin_runs);
  const auto plugin = must(LivenessLock::announce(machine_.kernel, api::kPluginLiveness));
  EXPECT_TRUE(must(read_explain_inputs(session_)).plugin_runs);
}

TEST_F(ExplainAdvertisedDevice, SaysWhyThePluginIsOnStandby) {
  advertised().standby = "NVIDIA's sandbox-device-plugin serves this node";
  for (const char* word : {kGpu, kResource})
    EXPECT_THAT(explained(word), HasSubstr("now: ferry plugin is on standby: NVIDIA's sandbox-device-plugin"))
        << word;
}

TEST_F(ExplainAdvertisedDevice, SaysThatTheKubeletDoesNotReadIt) {
  for (api::AdvertisedResource& resource : advertised().resources)
    resource.registered = resource.name != kResource;
  for (const char* word : {kGpu, kResource})
    EXPECT_THAT(explained(word), HasSubstr("now: the kubelet does not read its list")) << word;
}

TEST_F(ExplainAdvertisedDevice, KnowsAResourceThatHasPlacesAloneOrNothingNow) {
  advertised().resources.push_back(
      {.name = "nvidia.com/AUDIO", .places = std::vector<api::AdvertisedPlace>(2)});
  advertised().resources.push_back({.name = "nvidia.com/GONE"});
  EXPECT_THAT(explained("nvidia.com/AUDIO"),
              AllOf(HasSubstr("0 devices"), HasSubstr("2 places to ask for together with a GPU")));
  EXPECT_THAT(explained("nvidia.com/GONE"), AllOf(HasSubstr("0 devices"), Not(HasSubstr("place"))));
}

std::string explained_by_name(const ExplainInputs& inputs, const std::string& word) {
  return explanation_text(explanation_of(inputs, must(find_subject(inputs, word))), {.columns = 160});
}

TEST(ExplainByName, OffersNoBindWithoutAnIommu) {
  const test::DescribedHost host("r34-a800-nvswitches");
  const Session session = open_session(host.path());
  EXPECT_THAT(explained_by_name(must(read_explain_inputs(session)), "0000:42:00.0"),
              HasSubstr("`ferry vfio bind --device 0000:42:00.0` gives it to VMs"));
  host.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
  EXPECT_THAT(explained_by_name(must(read_explain_inputs(session)), "0000:42:00.0"),
              AllOf(HasSubstr("it cannot be bound to vfio: vfio runs in its no-IOMMU mode"),
                    HasSubstr("hint: unset enable_unsafe_noiommu_mode"), Not(HasSubstr("vfio bind"))));
}

TEST(ExplainByName, SaysWhatPlanSays) {
  test::Machine machine;
  test::composed_machine("nvswitch-board").build(machine);
  machine.kernel.add_driver({.name = "vfio-pci", .vfio = true});
  machine.kernel.add_function({.address = "0000:0b:00.0",
                               .ids = "10de:22a3",
                               .class_code = 0x068000,
                               .group = 81,
                               .driver = "vfio-pci"});
  machine.kernel.file("sys/kernel/iommu_groups/81/reserved_regions",
                      "0x0000000080000000 0x0000000080ffffff direct\n");
  Session session = open_session(machine.kernel.root());
  auto probe = std::make_unique<test::TableProbe>();
  probe->users["0000:05:00.0"] = {
      {.kind = vfio::DeviceUser::Kind::fabric, .name = "nv-fabricmanager", .what = "the NVLink fabric"}};
  session.probe = std::move(probe);
  const ExplainInputs inputs = must(read_explain_inputs(session));
  EXPECT_THAT(
      explained_by_name(inputs, "0000:05:00.0"),
      AllOf(HasSubstr("used by     fabric manager nv-fabricmanager"),
            HasSubstr("it cannot be bound to vfio: 0000:05:00.0 is in use: fabric manager nv-fabricmanager"),
            HasSubstr("hint: stop the fabric manager first"), Not(HasSubstr("gives it to VMs"))));
  EXPECT_THAT(explained_by_name(inputs, "0000:06:00.0"),
              AllOf(HasSubstr("gives it to VMs"), Not(HasSubstr("problem"))));
  EXPECT_THAT(explained_by_name(inputs, "0000:0b:00.0"),
              AllOf(HasSubstr("problem     the firmware reserves"), HasSubstr("hint: in the firmware setup"),
                    HasSubstr("`ferry vfio unbind --device 0000:0b:00.0`")));
  auto used = inputs;
  used.snapshot.use.users["0000:0b:00.0"] = {
      {.kind = vfio::DeviceUser::Kind::resource_claim, .name = "studio/render", .what = ""}};
  EXPECT_THAT(explained_by_name(used, "0000:0b:00.0"),
              HasSubstr("to change   delete the pod or the VM of the claim first\n"))
      << "before `ferry vfio unbind`, which refuses until then";
  EXPECT_THAT(status_text(inputs.description, {}),
              AllOf(HasSubstr("driver vfio-pci, not viable: the firmware reserves"),
                    HasSubstr("group 69, driver nvidia-nvswitch\n")));
}

TEST(ExplainByName, OffersNoBindOfAGpuThatCarriesVgpus) {
  const test::DescribedHost host("r18-gvtg");
  const std::filesystem::path gpu = "sys/devices/pci0000:00/0000:00:02.0";
  const std::string vgpu = "4b20d080-1b54-4048-85b3-a6a62d165c01";
  host.remove(gpu / "boot_vga");
  host.link(gpu / vgpu / "mdev_type", "../mdev_supported_types/i915-GVTg_V5_8");
  host.link(std::filesystem::path("sys/bus/mdev/devices") / vgpu, "../../../.." / gpu / vgpu);
  const Session session = open_session(host.path());
  EXPECT_THAT(explained_by_name(must(read_explain_inputs(session)), "0000:00:02.0"),
              AllOf(HasSubstr("it cannot be bound to vfio: 0000:00:02.0 carries 1 vGPU; `ferry vgpu delete "
                              "--device 0000:00:02.0 --foreign` removes it"),
                    Not(HasSubstr("vfio bind"))));
}

}  // namespace
}  // namespace ferry::cli
