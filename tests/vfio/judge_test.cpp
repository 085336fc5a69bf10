// SPDX-License-Identifier: Apache-2.0
// The judgement of units: each rule with its obstacle there, not there and not looked at.
#include "vfio/judgement/judge.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vfio/machines.h"
#include "vfio/judgement/unit_facts.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::must;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kGpu = "0000:65:00.0";
constexpr const char* kAudio = "0000:65:00.1";

/// A GPU and its audio in group 41, on vfio-pci with their nodes, and all facts looked at: no finding.
struct Case {
  Inventory inventory;
  UseReport use;
  std::set<std::string> stuck;
  std::map<std::uint32_t, Error> records;
  std::map<PciAddress, std::string> carriers;
  std::map<PciAddress, std::string> errors;
  std::map<PciAddress, std::string> unsanitized;
  std::map<PciAddress, std::string> open_modes;
  Observed observed{.use = &use,
                    .stuck = &stuck,
                    .unreadable_records = &records,
                    .carriers = &carriers,
                    .unsanitized = &unsanitized,
                    .open_modes = &open_modes,
                    .fatal_errors = &errors};
  Asked asked;
  std::vector<PciAddress> accelerators = {at(kGpu)};

  Case() {
    add(kGpu, 0x030000, "vfio-pci");
    add(kAudio, 0x040300, "vfio-pci");
    inventory.reserved[41] = {};
    inventory.vm_nodes = {"dev/vfio/vfio", "dev/vfio/41"};
  }
  PciFunction& add(const std::string& address, std::uint32_t class_code, const std::string& driver) {
    PciFunction function;
    function.address = at(address);
    function.vendor = 0x10de;
    function.device = 0x2684;
    function.class_code = class_code;
    function.iommu_group = 41;
    if (!driver.empty()) function.driver = driver;
    function.firmware_framebuffer = "";
    inventory.groups[41].push_back(function.address);
    return inventory.functions.insert_or_assign(function.address, function).first->second;
  }
  PciFunction& of(const std::string& address) { return inventory.functions.at(at(address)); }
  void on_host(const std::string& address, const std::string& driver) { of(address).driver = driver; }
  std::vector<Finding> findings() const {
    return judge(units_of(inventory, accelerators, asked.with).front(), inventory, test::gpu_rules(),
                 observed, asked);
  }
};

std::vector<std::string> named(const std::vector<Finding>& findings) {
  std::vector<std::string> out;
  out.reserve(findings.size());
  for (const Finding& finding : findings)
    out.push_back(
        fmt::format("{} {} {}", rule(finding.rule).name, text(finding.answer), finding.about.text()));
  return out;
}

/// The findings about one device, asked for alone.
std::vector<std::string> named_by(const Case& c, const AcceleratorRules& rules, const char* device) {
  return named(judge(units_of(c.inventory, {at(device)}, {}).front(), c.inventory, rules, c.observed));
}

TEST(Judge, FindsNothingAgainstAWholeGpuOnVfio) {
  EXPECT_THAT(named(Case().findings()), IsEmpty());
}

DeviceUser manager() {
  return {.kind = DeviceUser::Kind::fabric, .name = "nv-fabricmanager", .pid = 812, .what = "the fabric"};
}

struct Row {
  const char* is;
  std::function<void(Case&)> make;
  std::vector<std::string> findings;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      {"the GPU is off the bus",
       [](Case& c) {
         c.of(kGpu).bus = BusLook::all_ones;
         c.of(kGpu).problem = Error{.code = {}, .message = "config: reads all ones"};
       },
       {"off-the-bus yes 0000:65:00.0"}},
      {"its audio is off the bus",
       [](Case& c) {
         c.of(kAudio).bus = BusLook::all_ones;
         c.of(kAudio).problem = Error{.code = {}, .message = "config: reads all ones"};
       },
       {"off-the-bus yes 0000:65:00.1"}},
      {"the GPU sleeps",
       [](Case& c) { c.of(kGpu).bus = BusLook::asleep; },
       {"off-the-bus not looked at 0000:65:00.0"}},
      {"a member cannot be read",
       [](Case& c) { c.of(kAudio).problem = Error{.code = {}, .message = "EIO"}; },
       {"unreadable yes 0000:65:00.1"}},
      {"an override cannot be read, and nothing changes",
       [](Case& c) {
         c.of(kAudio).override_unread = true;
         c.of(kAudio).problem = Error{.code = {}, .message = "late"};
       },
       {"override-unread yes 0000:65:00.1"}},
      {"the power state is an error",
       [](Case& c) { c.of(kGpu).bus = BusLook::error; },
       {"power-error yes 0000:65:00.0"}},
      {"a write to its audio hangs", [](Case& c) { c.stuck = {kAudio}; }, {"stuck-write yes 0000:65:00.1"}},
      {"a write to a virtual function in another group hangs",
       [](Case& c) {
         PciFunction function = c.of(kGpu);
         function.address = at("0000:65:00.4");
         function.iommu_group = 42;
         function.physical_function = at(kGpu);
         c.inventory.functions.emplace(function.address, function);
         c.stuck = {"0000:65:00.4"};
       },
       {"stuck-write yes 0000:65:00.4"}},
      {"a write to a virtual function of a network card in the group hangs",
       [](Case& c) {
         c.add("0000:66:00.0", 0x020000, "").vendor = 0x8086;
         PciFunction function = c.of("0000:66:00.0");
         function.address = at("0000:66:00.4");
         function.iommu_group = 42;
         function.physical_function = at("0000:66:00.0");
         c.inventory.functions.emplace(function.address, function);
         c.stuck = {"0000:66:00.4"};
       },
       {}},
      {"no IOMMU",
       [](Case& c) {
         c.inventory.groups.clear();
         for (const char* one : {kGpu, kAudio}) c.of(one).iommu_group.reset();
       },
       {"iommu-off yes 0000:65:00.0"}},
      {"no-IOMMU mode",
       [](Case& c) { c.inventory.unsafe_noiommu = true; },
       {"noiommu-mode yes 0000:65:00.0"}},
      {"no group, while others have one",
       [](Case& c) {
         c.inventory.groups[41] = {at(kAudio)};
         c.of(kGpu).iommu_group.reset();
       },
       {"no-group yes 0000:65:00.0"}},
      {"a function of the group manages NVSwitches",
       [](Case& c) {
         c.add("0000:66:00.0", 0x020000, "").vendor = 0x15b3;
         c.inventory.switch_management[at("0000:66:00.0")] = true;
       },
       {"switch-management yes 0000:66:00.0"}},
      {"a network function of that maker that was not read",
       [](Case& c) { c.add("0000:66:00.0", 0x020000, "").vendor = 0x15b3; },
       {"switch-management not looked at 0000:66:00.0"}},
      {"a virtual function of that maker",
       [](Case& c) {
         PciFunction& one = c.add("0000:66:00.0", 0x020000, "");
         one.vendor = 0x15b3;
         one.physical_function = at("0000:67:00.0");
       },
       {}},
      {"another function of that maker",
       [](Case& c) { c.add("0000:66:00.0", 0x030000, "").vendor = 0x15b3; },
       {}},
      {"a function of the group manages no NVSwitches",
       [](Case& c) {
         c.add("0000:66:00.0", 0x020000, "").vendor = 0x15b3;
         c.inventory.switch_management[at("0000:66:00.0")] = false;
       },
       {}},
      {"a direct region",
       [](Case& c) {
         c.inventory.reserved[41] = {{"0xe8000", "0xe8fff", "direct"}};
       },
       {"reserved-region yes 0000:65:00.0"}},
      {"regions that keep no VM out",
       [](Case& c) {
         c.inventory.reserved[41] = {{"0xe8000", "0xe8fff", "direct-relaxable"},
                                     {"0xfee00000", "0xfeefffff", "msi"},
                                     {"0xfd00000000", "0xffffffffff", "reserved"}};
       },
       {}},
      {"the regions cannot be read",
       [](Case& c) {
         c.inventory.reserved.clear();
         c.inventory.reserved_unread[41] = Error{.code = {}, .message = "reserved_regions: EIO"};
       },
       {"reserved-region not looked at 0000:65:00.0"}},
      {"the regions were not read",
       [](Case& c) { c.inventory.reserved.clear(); },
       {"reserved-region not looked at 0000:65:00.0"}},
      {"its audio is on a driver of the host",
       [](Case& c) { c.on_host(kAudio, "snd_hda_intel"); },
       {"group-not-viable yes 0000:65:00.1"}},
      {"its audio has a group of its own, on a driver of the host",
       [](Case& c) {
         c.on_host(kAudio, "snd_hda_intel");
         c.of(kAudio).iommu_group = 42;
         c.inventory.groups = {{41, {at(kGpu)}}, {42, {at(kAudio)}}};
         c.inventory.reserved[42] = {};
       },
       {"unfinished-card yes 0000:65:00.1"}},
      {"a disk of the host shares the group of a GPU on the host",
       [](Case& c) {
         c.on_host(kGpu, "nvidia");
         c.on_host(kAudio, "snd_hda_intel");
         c.add("0000:66:00.0", 0x010802, "nvme").vendor = 0x144d;
       },
       {"foreign-driver yes 0000:66:00.0"}},
      {"a bridge with a driver of the host",
       [](Case& c) {
         c.on_host(kGpu, "nvidia");
         PciFunction& bridge = c.add("0000:00:01.0", 0x060400, "shpchp");
         bridge.header = HeaderType::pci_bridge;
       },
       {"foreign-driver yes 0000:00:01.0"}},
      {"another GPU of the group was not asked for",
       [](Case& c) {
         c.on_host(kGpu, "nvidia");
         c.add("0000:66:00.0", 0x030000, "nvidia");
       },
       {"other-accelerator yes 0000:66:00.0"}},
      {"another whole card of the group was not asked for",
       [](Case& c) {
         c.on_host(kGpu, "nvidia");
         c.on_host(kAudio, "snd_hda_intel");
         c.add("0000:66:00.0", 0x030000, "nvidia");
         c.add("0000:66:00.1", 0x040300, "snd_hda_intel");
         c.add("0000:66:00.2", 0x0c0330, "xhci_hcd");
         c.add("0000:66:00.3", 0x0c8000, "nvidia-gpu");
       },
       {"other-accelerator yes 0000:66:00.0"}},
      {"another card of the group, of which only the audio has a driver",
       [](Case& c) {
         c.on_host(kGpu, "nvidia");
         c.add("0000:66:00.0", 0x030000, "");
         c.add("0000:66:00.1", 0x040300, "snd_hda_intel");
       },
       {"other-accelerator yes 0000:66:00.0"}},
      {"audio of another slot, without a GPU there",
       [](Case& c) {
         c.on_host(kGpu, "nvidia");
         c.add("0000:66:00.1", 0x040300, "snd_hda_intel");
       },
       {"foreign-driver yes 0000:66:00.1"}},
      {"a disk in the slot of another GPU of the group",
       [](Case& c) {
         c.on_host(kGpu, "nvidia");
         c.add("0000:66:00.0", 0x030000, "nvidia");
         c.add("0000:66:00.1", 0x010802, "nvme").vendor = 0x144d;
       },
       {"foreign-driver yes 0000:66:00.1", "other-accelerator yes 0000:66:00.0"}},
      {"a disk of the host shares the group of a GPU on vfio",
       [](Case& c) { c.add("0000:66:00.0", 0x010802, "nvme").vendor = 0x144d; },
       {"group-not-viable yes 0000:66:00.0", "foreign-driver yes 0000:66:00.0"}},
      {"a bridge with a driver of the host shares the group of a GPU on vfio",
       [](Case& c) { c.add("0000:00:01.0", 0x060400, "shpchp").header = HeaderType::pci_bridge; },
       {"group-not-viable yes 0000:00:01.0", "foreign-driver yes 0000:00:01.0"}},
      {"another GPU on the host shares the group of a GPU on vfio",
       [](Case& c) { c.add("0000:66:00.0", 0x030000, "nvidia"); },
       {"group-not-viable yes 0000:66:00.0", "other-accelerator yes 0000:66:00.0"}},
      {"the firmware's framebuffer lies in its memory",
       [](Case& c) { c.of(kGpu).firmware_framebuffer = "BOOTFB in BAR 1"; },
       {"framebuffer-on-vfio yes 0000:65:00.0"}},
      {"the memory map is hidden",
       [](Case& c) { c.of(kGpu).firmware_framebuffer.reset(); },
       {"framebuffer-on-vfio not looked at 0000:65:00.0"}},
      {"the group's node is missing",
       [](Case& c) { c.inventory.vm_nodes = {"dev/vfio/vfio"}; },
       {"nodes-missing yes 0000:65:00.0"}},
      {"the nodes were not read",
       [](Case& c) { c.inventory.vm_nodes.reset(); },
       {"nodes-missing not looked at 0000:65:00.0"}},
      {"fatal errors",
       [](Case& c) { c.errors[at(kGpu)] = "1 fatal PCIe error"; },
       {"fatal-errors yes 0000:65:00.0"}},
      {"its last VM has ended",
       [](Case& c) { c.unsanitized[at(kGpu)] = "it is being sanitized"; },
       {"not-sanitized yes 0000:65:00.0"}},
      {"a change of its mode was interrupted, and of its audio's, which has none",
       [](Case& c) {
         c.open_modes[at(kGpu)] = "its mode is open";
         c.open_modes[at(kAudio)] = "its mode is open";
       },
       {"interrupted-mode-change yes 0000:65:00.0"}},
      {"the host's boot display",
       [](Case& c) {
         c.on_host(kGpu, "nvidia");
         c.on_host(kAudio, "snd_hda_intel");
         c.of(kGpu).boot_display = true;
       },
       {"boot-display yes 0000:65:00.0"}},
      {"a boot display that may be taken",
       [](Case& c) {
         c.on_host(kGpu, "nvidia");
         c.on_host(kAudio, "snd_hda_intel");
         c.of(kGpu).boot_display = true;
         c.asked.force = true;
       },
       {}},
      {"in use",
       [](Case& c) { c.use.users[kAudio] = {{.name = "pulseaudio", .pid = 7, .what = "/dev/snd/x"}}; },
       {"in-use yes 0000:65:00.1"}},
      {"an NVSwitch that a fabric manager shares among VMs",
       [](Case& c) {
         c.add("0000:66:00.0", 0x068000, "vfio-pci");
         c.accelerators = {at(kGpu), at("0000:66:00.0")};
         c.use.users["0000:66:00.0"] = {manager()};
       },
       {"fabric-switch yes 0000:66:00.0"}},
      {"users may have been missed",
       [](Case& c) { c.use.blind = "/proc hides processes"; },
       {"in-use not looked at 0000:65:00.0", "in-use not looked at 0000:65:00.1"}},
      {"it carries vGPUs",
       [](Case& c) { c.carriers[at(kGpu)] = "carries 2 vGPUs"; },
       {"vgpus-present yes 0000:65:00.0"}},
      {"virtual functions",
       [](Case& c) {
         c.on_host(kGpu, "nvidia");
         c.on_host(kAudio, "snd_hda_intel");
         c.of(kGpu).sriov_numvfs = 4;
       },
       {"functions-enabled yes 0000:65:00.0"}},
      {"virtual functions of a GPU on vfio, whose audio is not",
       [](Case& c) {
         c.on_host(kAudio, "pci-stub");
         c.of(kGpu).sriov_numvfs = 4;
       },
       {"unfinished-card yes 0000:65:00.1"}},
      {"virtual functions and vGPUs that go first",
       [](Case& c) {
         c.of(kGpu).sriov_numvfs = 4;
         c.carriers[at(kGpu)] = "carries 2 vGPUs";
         c.asked.sheds = {at(kGpu)};
       },
       {}},
      {"a virtual function in its group that goes first",
       [](Case& c) {
         c.on_host(kGpu, "nvidia");
         c.on_host(kAudio, "snd_hda_intel");
         c.add("0000:65:00.4", 0x030000, "nvidia").physical_function = at(kGpu);
         c.asked.all_shed = true;
       },
       {}},
      {"a virtual function in the group of a GPU on vfio, which keeps it",
       [](Case& c) {
         c.add("0000:65:00.4", 0x030000, "nvidia").physical_function = at(kGpu);
         c.asked.all_shed = true;
       },
       {"group-not-viable yes 0000:65:00.4", "foreign-driver yes 0000:65:00.4"}},
      {"the record cannot be read",
       [](Case& c) { c.records[41] = Error{.code = {}, .message = "41.json: not JSON"}; },
       {"record-unreadable yes 0000:65:00.0"}},
      {"two reasons, the graver one first",
       [](Case& c) {
         c.inventory.reserved[41] = {{"0xe8000", "0xe8fff", "direct"}};
         c.of(kGpu).bus = BusLook::all_ones;
         c.of(kGpu).problem = Error{.code = {}, .message = "config: reads all ones"};
       },
       {"off-the-bus yes 0000:65:00.0", "reserved-region yes 0000:65:00.0"}},
  };
  return kRows;
}

TEST(Judge, FindsEachObstacleAndNoOther) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.is);
    Case one;
    row.make(one);
    EXPECT_EQ(named(one.findings()), row.findings);
    for (const Finding& finding : one.findings()) EXPECT_FALSE(finding.text.empty());
  }
}

TEST(Judge, IsShownByTheRowsForEveryRule) {
  std::set<std::string> shown;
  for (const Row& row : rows())
    for (const std::string& finding : row.findings) shown.insert(finding.substr(0, finding.find(' ')));
  for (const Rule& one : rules()) {
    // The first needs a driver that leaves DMA to VFIO.
    if (one.id == RuleId::foreign_user || one.id == RuleId::firmware_framebuffer) continue;
    EXPECT_THAT(shown, Contains(std::string(one.name)));
  }
}

// The IOMMU's advice comes from the host.
TEST(Judge, AdvisesOnEveryObstacleOfADoctor) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.is);
    Case one;
    row.make(one);
    for (const Finding& finding : one.findings())
      if (finding.answer == Answer::yes && !rule(finding.rule).check.empty() &&
          finding.rule != RuleId::iommu_off) {
        EXPECT_NE(finding.advice, "") << rule(finding.rule).name;
      }
  }
}

TEST(Judge, KeepsASharedSwitchOnVfioFromVmsHoweverItIsAskedFor) {
  AcceleratorRules on_request = test::gpu_rules();
  on_request.on_request = {PciClass::bridge_other};
  AcceleratorRules by_address = on_request;
  by_address.named = {at("0000:66:00.0")};
  for (const AcceleratorRules& rules :
       {on_request, by_address, on_request.asking_for(PciClass::bridge_other), on_request.asking_for_all()}) {
    for (const char* driver : {"vfio-pci", "nvidia-nvswitch"}) {
      SCOPED_TRACE(driver);
      Case one;
      one.add("0000:66:00.0", 0x068000, driver).iommu_group = 66;
      one.inventory.groups = {{41, {at(kGpu), at(kAudio)}}, {66, {at("0000:66:00.0")}}};
      one.inventory.reserved[66] = {};
      one.inventory.vm_nodes = {"dev/vfio/vfio", "dev/vfio/41", "dev/vfio/66"};
      one.use.users["0000:66:00.0"] = {manager()};
      const bool on_vfio = std::string_view(driver) == "vfio-pci";
      EXPECT_THAT(named_by(one, rules, "0000:66:00.0"),
                  ElementsAre(on_vfio ? "fabric-switch yes 0000:66:00.0" : "in-use yes 0000:66:00.0"));
    }
  }
}

TEST(Judge, AdvisesOnAFunctionWithoutAGroupAsTheHostNeeds) {
  for (const char* cure : {"", "the device tree must name an SMMU"}) {
    Case one;
    one.inventory.groups[41] = {at(kAudio)};
    one.of(kGpu).iommu_group.reset();
    one.inventory.iommu_cure = cure;
    const auto findings = one.findings();
    ASSERT_EQ(named(findings), std::vector<std::string>{"no-group yes 0000:65:00.0"});
    EXPECT_THAT(findings[0].advice, HasSubstr(*cure == '\0' ? "another slot" : cure));
  }
}

TEST(Judge, NamesEveryOtherAcceleratorInOneAdvice) {
  Case one;
  one.on_host(kGpu, "nvidia");
  one.add("0000:66:00.0", 0x030000, "nvidia");
  one.add("0000:67:00.0", 0x030000, "nvidia");
  for (const Finding& finding : one.findings())
    EXPECT_EQ(finding.advice,
              "name all of them: --device 0000:65:00.0 --device 0000:66:00.0 --device 0000:67:00.0");
  one.asked.named_at = {{at(kGpu), "policy.yaml:4"}};
  for (const Finding& finding : one.findings())
    EXPECT_EQ(finding.advice, "policy.yaml:4: name them there too, by `address`: 0000:66:00.0, 0000:67:00.0");
  one.asked.named_at.clear();
  one.accelerators = {at(kGpu), at("0000:67:00.0")};
  EXPECT_FALSE(one.findings().empty());
  for (const Finding& finding : one.findings())
    EXPECT_EQ(finding.advice,
              "name all of them: --device 0000:65:00.0 --device 0000:67:00.0 --device 0000:66:00.0");
}

// A command for one GPU of the group would be refused, or would leave the error of the other.
TEST(Judge, NamesInItsAdviceEachGpuThatAnActNeeds) {
  constexpr const char* kOther = "0000:66:00.0";
  constexpr const char* kBoth =
      "`ferry vfio bind --device 0000:65:00.0 --device 0000:66:00.0` also binds the rest of its card and "
      "group";
  Case one;
  one.add(kOther, 0x030000, "nvidia");
  one.add("0000:66:00.1", 0x040300, "vfio-pci");
  one.accelerators = {at(kGpu), at(kOther)};
  ASSERT_EQ(named(one.findings()), std::vector<std::string>{"group-not-viable yes 0000:66:00.0"});
  EXPECT_EQ(one.findings()[0].advice, kBoth);
  one.on_host(kAudio, "pci-stub");
  one.accelerators = {at(kGpu)};
  const std::vector<Finding> alone = one.findings();
  const auto unfinished = std::ranges::find(alone, RuleId::unfinished_card, &Finding::rule);
  ASSERT_NE(unfinished, alone.end());
  EXPECT_EQ(unfinished->advice, kBoth);
  one.on_host(kAudio, "vfio-pci");
  one.on_host(kOther, "vfio-pci");
  one.accelerators = {at(kGpu), at(kOther)};
  for (const char* function : {kOther, "0000:66:00.1"}) {
    one.errors = {{at(function), "1 fatal PCIe error"}};
    ASSERT_EQ(named(one.findings()), std::vector<std::string>{fmt::format("fatal-errors yes {}", function)});
    EXPECT_THAT(one.findings()[0].advice,
                HasSubstr("`ferry vfio unbind --device 0000:66:00.0`, then `bind --device 0000:66:00.0`"));
  }
}

TEST(Judge, CallsNothingPassedThatWasNotLookedAt) {
  Case one;
  one.observed = {};
  one.inventory.reserved.clear();
  one.inventory.vm_nodes.reset();
  one.of(kGpu).firmware_framebuffer.reset();
  one.of(kGpu).bus = BusLook::asleep;
  std::set<RuleId> open;
  for (const Finding& finding : one.findings()) {
    EXPECT_EQ(finding.answer, Answer::not_looked) << finding.text;
    open.insert(finding.rule);
  }
  EXPECT_THAT(open, ElementsAre(RuleId::off_the_bus, RuleId::reserved_region, RuleId::framebuffer_on_vfio,
                                RuleId::nodes_missing, RuleId::fatal_errors, RuleId::in_use));
  EXPECT_NE(against(one.findings(), Blocks::bind), nullptr);
  EXPECT_EQ(against(one.findings(), Blocks::advertise), nullptr);
  EXPECT_EQ(against(one.findings(), Blocks::ready), nullptr);
}

/// The rows of the table in docs/findings.md.
std::string table() {
  const auto acts = [](Blocks blocks) {
    std::vector<std::string> out;
    for (const Blocks act : all_blocks())
      if (has(blocks, act)) out.emplace_back(text(act));
    if (out.size() == all_blocks().size()) return std::string("all");
    return out.empty() ? std::string("none") : fmt::format("{}", fmt::join(out, ", "));
  };
  std::string out;
  for (const Rule& one : rules())
    out += fmt::format("| `{}` | {} | {} | {} |\n", one.name, one.why, acts(one.blocks),
                       acts(one.blocks_unlooked));
  return out;
}

TEST(Illness, OfAnotherMemberCountsForAGpuThatAVmGetsWithIt) {
  const auto gone = [](Case& c, const char* address) {
    c.of(address).problem = Error{.code = Errc::malformed_host, .message = "no answer"};
    c.of(address).bus = BusLook::all_ones;
  };
  const auto illness = [](const Case& c) -> std::string {
    const auto findings = c.findings();
    const Finding* found = illness_of(*c.inventory.find(at(kGpu)), findings);
    return found == nullptr ? "" : fmt::format("{} {}", rule(found->rule).name, found->about.text());
  };
  for (const char* driver : {"vfio-pci", "nvidia", "nouveau"}) {
    SCOPED_TRACE(driver);
    const bool on_vfio = std::string_view(driver) == "vfio-pci";
    const auto fresh = [&] {
      Case c;
      c.on_host(kGpu, driver);
      return c;
    };
    EXPECT_EQ(illness(fresh()), "");
    Case companion = fresh();
    gone(companion, kAudio);
    EXPECT_EQ(illness(companion), on_vfio ? "off-the-bus 0000:65:00.1" : "");
    Case itself = fresh();
    gone(itself, kGpu);
    EXPECT_EQ(illness(itself), "off-the-bus 0000:65:00.0");
    Case power = fresh();
    power.of(kAudio).bus = BusLook::error;
    EXPECT_EQ(illness(power), on_vfio ? "power-error 0000:65:00.1" : "");
    Case stuck = fresh();
    stuck.stuck = {kAudio};
    EXPECT_EQ(illness(stuck), "stuck-write 0000:65:00.1") << "the write may keep the GPU's locks";
    Case asleep = fresh();
    asleep.of(kGpu).bus = BusLook::asleep;
    EXPECT_EQ(illness(asleep), "") << "it was not looked at";
    Case in_the_way = fresh();
    in_the_way.add("0000:66:00.0", 0x010800, "nvme");
    EXPECT_EQ(illness(in_the_way), "") << "the device works";
  }
}

TEST(Judge, HasItsRulesOnThePage) {
  std::ifstream in(std::filesystem::path(FERRY_DOCS) / "findings.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(page, HasSubstr(table()));
}

TEST(ReservedRegions, ReadTheKernelsLinesAndRefuseOthers) {
  const auto regions =
      must(parse_reserved_regions("0x00000000000e8000 0x00000000000e8fff direct\n"
                                  "0x00000000fee00000 0x00000000feefffff msi\n"));
  ASSERT_EQ(regions.size(), 2U);
  EXPECT_TRUE(regions[0].keeps_from_vms());
  EXPECT_FALSE(regions[1].keeps_from_vms());
  EXPECT_THAT(must(parse_reserved_regions("")), IsEmpty());
  for (const char* text : {"0x0 0x1", "0x0 0x1 direct more", "0 0x1 direct", "0x0 0xg direct",
                           "0x0 0x11112222333344445 direct", "0x0 0x1 DIRECT", "\x7f"}) {
    const auto refused = parse_reserved_regions(std::string("0x0 0x1 msi\n") + text + "\n");
    ASSERT_FALSE(refused) << text;
    EXPECT_THAT(refused.error().message, HasSubstr("line 2"));
  }
}

/// A card whose functions have groups of their own, and a virtual function of it.
class UnitFacts : public testing::Test {
 protected:
  UnitFacts() {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_function({.address = kGpu, .group = 41, .totalvfs = 4, .numvfs = 1});
    kernel_.add_function({.address = kAudio, .ids = "10de:22ba", .class_code = 0x040300, .group = 42});
    kernel_.add_function({"8086:15d9", 0x0c0330}, "0000:65:00.2", 43);
    kernel_.add_function({.address = "0000:65:00.4", .group = 44, .physical_function = kGpu});
    kernel_.add_function(test::kinds::kDisk, "0000:66:00.0", 45);
  }
  static std::string regions(unsigned group) {
    return fmt::format("sys/kernel/iommu_groups/{}/reserved_regions", group);
  }
  Inventory read(const AcceleratorRules& rules = test::gpu_rules()) const {
    Inventory inventory = must(scan(kernel_));
    read_unit_facts(kernel_, rules, inventory);
    return inventory;
  }
  test::FakeKernel kernel_;
};

TEST_F(UnitFacts, HaveTheRegionsOfEveryGroupThatAUnitMayHave) {
  for (const unsigned group : {41U, 42U, 43U, 44U, 45U})
    kernel_.file(regions(group), "0x00000000000e8000 0x00000000000e8fff direct\n");
  const auto direct = [](const Inventory& inventory) {
    std::vector<std::uint32_t> out;
    for (const auto& [group, of_it] : inventory.reserved)
      if (!of_it.empty()) out.push_back(group);
    return out;
  };
  EXPECT_THAT(direct(read()), ElementsAre(41, 42, 43)) << "--with may take the third along";
  AcceleratorRules rules = test::gpu_rules();
  rules.named = {at("0000:65:00.4")};
  EXPECT_THAT(direct(read(rules)), ElementsAre(41, 42, 43, 44));
}

TEST_F(UnitFacts, KeepTheReasonWhyRegionsAreNotKnown) {
  kernel_.file(regions(41), "0x0 0x1\n");
  kernel_.directory(regions(42));
  const Inventory inventory = read();
  EXPECT_FALSE(inventory.reserved.contains(41));
  EXPECT_EQ(inventory.reserved_unread.at(41).message,
            "/sys/kernel/iommu_groups/41/reserved_regions: line 1 is no reserved region");
  EXPECT_THAT(inventory.reserved_unread.at(42).message, HasSubstr("/" + regions(42)));
  EXPECT_TRUE(inventory.reserved.contains(43));
  EXPECT_FALSE(inventory.reserved_unread.contains(43)) << "a kernel without the file refuses nothing for it";
}

TEST_F(UnitFacts, TakeNoDirectoryForANode) {
  kernel_.file("dev/vfio/vfio", "");
  kernel_.file("dev/vfio/41", "");
  kernel_.directory("dev/vfio/42");
  kernel_.file("dev/vfio/devices/vfio0", "");
  kernel_.directory("dev/vfio/devices/vfio1");
  EXPECT_THAT(read().vm_nodes.value_or(std::set<std::string>{}),
              ElementsAre("dev/vfio/41", "dev/vfio/devices/vfio0", "dev/vfio/vfio"));
}

/// How often a process opened config is seen by its access: the fake's file answers, or is gone.
class Sleeper : public testing::Test {
 protected:
  Sleeper() {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_function({.address = kGpu, .group = 41, .driver = "vfio-pci"});
    kernel_.file(dir() + "/power_state", "D3cold\n");
  }
  static std::string dir() { return std::string("sys/bus/pci/devices/") + kGpu; }
  void off_the_bus(bool off) {
    const std::string header(64, off ? '\xff' : '\0');
    kernel_.file(dir() + "/config", header);
  }
  BusLook looked(BusMemory& memory) {
    Inventory inventory = must(scan(kernel_));
    EXPECT_EQ(inventory.find(at(kGpu))->bus, BusLook::asleep);
    memory.look(kernel_, std::vector<PciAddress>{at(kGpu)}, inventory);
    return inventory.find(at(kGpu))->bus;
  }
  test::FakeKernel kernel_;
};

TEST_F(Sleeper, IsNotWokenByAScan) {
  off_the_bus(true);
  EXPECT_FALSE(must(scan(kernel_)).find(at(kGpu))->problem);
}

TEST_F(Sleeper, IsWokenOnceForABindingAndAgainAfterADoubt) {
  off_the_bus(false);
  BusMemory memory;
  EXPECT_EQ(looked(memory), BusLook::answers);
  off_the_bus(true);
  EXPECT_EQ(looked(memory), BusLook::answers) << "it was not read again";
  memory.doubt();
  EXPECT_EQ(looked(memory), BusLook::all_ones);
  off_the_bus(false);
  EXPECT_EQ(looked(memory), BusLook::all_ones) << "it stays so until it is bound anew or is awake";
  kernel_.file(dir() + "/power_state", "D0\n");
  Inventory awake = must(scan(kernel_));
  memory.look(kernel_, std::vector<PciAddress>{at(kGpu)}, awake);
  EXPECT_EQ(awake.find(at(kGpu))->bus, BusLook::answers);
  kernel_.file(dir() + "/power_state", "D3cold\n");
  EXPECT_EQ(looked(memory), BusLook::answers);
}

TEST_F(Sleeper, ThatCannotBeReadStaysUnreadable) {
  for (const std::string& header : {std::string(), std::string(5, '\0'), std::string(64, '\x7e')}) {
    kernel_.file(dir() + "/config", header);
    BusMemory memory;
    for (const char* look : {"first", "second"}) {
      Inventory inventory = must(scan(kernel_));
      memory.look(kernel_, std::vector<PciAddress>{at(kGpu)}, inventory);
      EXPECT_TRUE(inventory.find(at(kGpu))->problem) << look << " look at " << header.size() << " bytes";
    }
  }
}

TEST_F(Sleeper, IsReadIfItsPowerManagementCallsItActive) {
  off_the_bus(true);
  kernel_.file(dir() + "/power/runtime_status", "active\n");
  EXPECT_EQ(must(scan(kernel_)).find(at(kGpu))->bus, BusLook::all_ones);
}

}  // namespace
}  // namespace ferry::vfio
