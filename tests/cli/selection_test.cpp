// SPDX-License-Identifier: Apache-2.0
#include "cli/options/selection.h"

#include <gmock/gmock.h>

#include "policy/accelerators.h"
#include "tests/vfio/machines.h"
#include "vfio/bind/undo_journal.h"

namespace ferry::cli {
namespace {

using test::at;
using test::FakeKernel;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class SelectionTest : public testing::Test {
 protected:
  SelectionTest() {
    test::add_host_drivers(kernel_);
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    test::add_four_function_card(kernel_);
    kernel_.add_function({.address = "0000:0a:00.0",
                          .ids = "10de:1eb8",
                          .class_code = 0x030200,
                          .group = 7,
                          .driver = "nvidia"});
    kernel_.add_function({.address = "0000:0b:00.0",
                          .ids = "144d:a80a",
                          .class_code = 0x010802,
                          .group = 8,
                          .driver = "nvme"});
    kernel_.add_function({.address = "0000:0d:00.0",
                          .ids = "10de:1ad8",
                          .class_code = 0x0c0330,
                          .group = 12,
                          .driver = "xhci_hcd"});
    kernel_.add_function({.address = "0000:0a:00.4",
                          .ids = "10de:1eb8",
                          .class_code = 0x030200,
                          .group = 9,
                          .physical_function = "0000:0a:00.0"});
    kernel_.add_function(
        {.address = "0000:0c:00.0", .ids = "15b3:101d", .class_code = 0x020000, .group = 10});
    kernel_.add_function({.address = "0000:0c:00.1",
                          .ids = "15b3:101e",
                          .class_code = 0x020000,
                          .group = 11,
                          .physical_function = "0000:0c:00.0"});
    offer_vgpus();
  }
  // The GPU at 0a:00.0 as a parent of mediated devices.
  void offer_vgpus() {
    const std::string gpu = "sys/devices/pci0000:00/0000:0a:00.0";
    kernel_.link("sys/class/mdev_bus/0000:0a:00.0", "../../devices/pci0000:00/0000:0a:00.0");
    kernel_.directory("sys/bus/mdev/devices");
    kernel_.file(gpu + "/mdev_supported_types/nvidia-230/name", "GRID T4-1Q\n");
    kernel_.file(gpu + "/mdev_supported_types/nvidia-230/available_instances", "16\n");
    kernel_.file(gpu + "/mdev_supported_types/nvidia-230/device_api", "vfio-pci\n");
    kernel_.file(gpu + "/mdev_supported_types/nvidia-230/create", "");
    kernel_.directory(gpu + "/mdev_supported_types/nvidia-230/devices");
  }
  Result<ChosenUnits> choose(const SelectionOptions& options,
                             vfio::Direction direction = vfio::Direction::to_vfio) {
    const vfio::Inventory inventory = vfio::scan(kernel_).value();
    return select(options, inventory, test::gpu_rules(),
                  mdev::scan_vgpus(kernel_, inventory, test::gpu_rules()).value(),
                  vfio::read_undo_journal(kernel_).value(), names_, direction);
  }
  FakeKernel kernel_;
  plugin::DeviceNames names_{kernel_};
};

TEST_F(SelectionTest, AllLeavesOutWhatOffersVgpusAndSaysWhy) {
  const auto selection = choose({.all = true, .devices = {}, .groups = {}, .with = {}});
  ASSERT_TRUE(selection);
  EXPECT_THAT(selection->request.accelerators, ElementsAre(at("0000:65:00.0")));
  EXPECT_THAT(selection->request.by_name, testing::IsEmpty());
  EXPECT_THAT(selection->skipped, ElementsAre(Pair(at("0000:0a:00.0"), HasSubstr("vGPU"))));
}

TEST_F(SelectionTest, NamingAGpuThatOffersVgpusTakesIt) {
  const auto selection = choose({.all = false, .devices = {"0000:0a:00.0"}, .groups = {}, .with = {}});
  EXPECT_THAT(selection->request.accelerators, ElementsAre(at("0000:0a:00.0")));
  EXPECT_THAT(selection->request.by_name, ElementsAre(at("0000:0a:00.0")));
}

TEST_F(SelectionTest, NamingAVirtualFunctionTakesItAloneThoughAllPassesItOver) {
  const auto selection = choose({.all = false, .devices = {"0000:0a:00.4"}, .groups = {}, .with = {}});
  ASSERT_TRUE(selection) << selection.error().message;
  EXPECT_THAT(selection->request.accelerators, ElementsAre(at("0000:0a:00.4")));
  EXPECT_THAT(selection->rules.named, ElementsAre(at("0000:0a:00.4"))) << "its group's facts are read";
  EXPECT_THAT(selection->request.untouchable, testing::IsEmpty());
}

TEST_F(SelectionTest, WhatIsRecordedOfAVirtualFunctionGoesBackWithoutItsPhysicalFunction) {
  ASSERT_TRUE(vfio::write_undo_journal(
      kernel_, 9,
      {{at("0000:0a:00.4"),
        {.ids = "10de:1eb8", .driver = {}, .driver_override = {}, .role = "accelerator"}}}));
  EXPECT_THAT(recorded_accelerators(vfio::scan(kernel_).value(), test::gpu_rules(),
                                    vfio::read_undo_journal(kernel_).value()),
              ElementsAre(at("0000:0a:00.4")));
}

TEST_F(SelectionTest, AVirtualFunctionThatCarriesAVgpuMustStay) {
  const std::string vf = "sys/devices/pci0000:00/0000:0a:00.4";
  const std::string id = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
  kernel_.link("sys/class/mdev_bus/0000:0a:00.4", "../../devices/pci0000:00/0000:0a:00.4");
  kernel_.file(vf + "/mdev_supported_types/nvidia-558/name", "NVIDIA A40-4Q\n");
  kernel_.directory(vf + "/mdev_supported_types/nvidia-558/devices");
  kernel_.directory(vf + "/" + id);
  kernel_.link(vf + "/" + id + "/mdev_type", "../mdev_supported_types/nvidia-558");
  kernel_.link("sys/bus/mdev/devices/" + id, "../../../devices/pci0000:00/0000:0a:00.4/" + id);
  const auto selection = choose({.all = false, .devices = {"0000:0a:00.4"}, .groups = {}, .with = {}});
  ASSERT_TRUE(selection) << selection.error().message;
  EXPECT_THAT(
      selection->request.untouchable,
      Contains(Pair(at("0000:0a:00.4"), HasSubstr("carries 1 vGPU; `ferry vgpu delete --device 0000:0a:00.0 "
                                                  "--foreign` removes it"))));
}

TEST_F(SelectionTest, ACompanionStandsForItsAcceleratorAndEachCountsOnce) {
  const auto selection =
      choose({.all = false, .devices = {"0000:65:00.1", "0000:65:00.0"}, .groups = {41}, .with = {}});
  EXPECT_THAT(selection->request.accelerators, ElementsAre(at("0000:65:00.0")));
}

TEST_F(SelectionTest, UnbindAllMeansWhatIsOnVfioOrWasLeftHalfWay) {
  const SelectionOptions all{.all = true, .devices = {}, .groups = {}, .with = {}};
  EXPECT_THAT(choose(all, vfio::Direction::back)->request.accelerators, testing::IsEmpty());
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function({.address = "0000:0e:00.0", .group = 40, .driver = "vfio-pci"});
  EXPECT_THAT(choose(all, vfio::Direction::back)->request.accelerators, ElementsAre(at("0000:0e:00.0")));
  // Killed between unbinding and binding: no driver any more, but a record.
  kernel_.add_function({.address = "0000:0f:00.0", .group = 61});
  ASSERT_TRUE(vfio::write_undo_journal(
      kernel_, 61,
      {{at("0000:0f:00.0"),
        {.ids = "10de:2684", .driver = "nouveau", .driver_override = {}, .role = "accelerator"}}}));
  EXPECT_THAT(choose(all, vfio::Direction::back)->request.accelerators,
              ElementsAre(at("0000:0e:00.0"), at("0000:0f:00.0")));
}

// A virtual function too, which --all leaves where it is named nowhere else.
TEST_F(SelectionTest, AllThatWasReboundIsAllOfItWithOrWithoutTheWord) {
  ASSERT_TRUE(vfio::write_undo_journal(
      kernel_, 9,
      {{at("0000:0a:00.4"),
        {.ids = "10de:1eb8", .driver = "nvidia", .driver_override = {}, .role = "accelerator"}}}));
  const auto recorded = [&](const SelectionOptions& options) {
    return select_recorded(options, vfio::scan(kernel_).value(), test::gpu_rules(),
                           vfio::read_undo_journal(kernel_).value(), names_)
        .value()
        .request.accelerators;
  };
  EXPECT_THAT(recorded({}), testing::Contains(at("0000:0a:00.4")));
  EXPECT_EQ(recorded({.all = true, .devices = {}, .groups = {}, .with = {}}), recorded({}));
}

// Unplugged since, the GPU that the USB controller was taken along with stands for it no longer.
TEST_F(SelectionTest, WhatWasTakenAlongGoesBackThoughItsAcceleratorIsGone) {
  kernel_.add_function({.address = "0000:0e:00.0", .group = 12, .driver = "nouveau"});
  test::TableProbe probe;
  const vfio::RebindContext context{
      .host = &kernel_, .writer = &kernel_, .probe = &probe, .rules = test::gpu_rules(), .on_step = {}};
  const SelectionOptions with{
      .all = false, .devices = {"0000:0e:00.0"}, .groups = {}, .with = {"0000:0d:00.0"}};
  const auto there = vfio::apply_rebinds(context, choose(with).value().request, vfio::Direction::to_vfio);
  ASSERT_TRUE(there) << there.error().message;
  ASSERT_EQ(kernel_.driver_of("0000:0d:00.0"), "vfio-pci");
  kernel_.remove_function("0000:0e:00.0");

  const SelectionOptions all{.all = true, .devices = {}, .groups = {}, .with = {}};
  EXPECT_THAT(choose(all, vfio::Direction::back)->request.accelerators, ElementsAre(at("0000:0d:00.0")));
  const SelectionOptions named{.all = false, .devices = {"0000:0d:00.0"}, .groups = {}, .with = {}};
  EXPECT_FALSE(choose(named));
  EXPECT_THAT(choose(named, vfio::Direction::back)->request.accelerators, ElementsAre(at("0000:0d:00.0")));

  vfio::RebindRequest restore;
  restore.accelerators = recorded_accelerators(vfio::scan(kernel_).value(), test::gpu_rules(),
                                               vfio::read_undo_journal(kernel_).value());
  restore.recorded_only = true;
  EXPECT_THAT(restore.accelerators, ElementsAre(at("0000:0d:00.0")));
  const auto back = vfio::apply_rebinds(context, restore, vfio::Direction::back);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->results.at(0).status, vfio::RebindResult::Status::done);
  EXPECT_EQ(kernel_.driver_of("0000:0d:00.0"), "xhci_hcd");
}

TEST_F(SelectionTest, AnotherCardWhereOneWasTakenAlongIsNobodysToGiveBack) {
  ASSERT_TRUE(vfio::write_undo_journal(
      kernel_, 8,
      {{at("0000:0b:00.0"),
        {.ids = "1912:0014", .driver = {}, .driver_override = {}, .role = "taken along"}}}));
  EXPECT_THAT(recorded_accelerators(vfio::scan(kernel_).value(), test::gpu_rules(),
                                    vfio::read_undo_journal(kernel_).value()),
              testing::IsEmpty());
}

TEST_F(SelectionTest, AGroupWhoseRecordCannotBeReadIsNotPassedOver) {
  kernel_.file("run/ferry/hostd/moves/41.json", "{");
  EXPECT_THAT(recorded_accelerators(vfio::scan(kernel_).value(), test::gpu_rules(),
                                    vfio::read_undo_journal(kernel_).value()),
              ElementsAre(at("0000:65:00.0")));
}

TEST_F(SelectionTest, VgpusThatAreMadeMeanwhileAreLookedForAgain) {
  const Session session = open_session(kernel_.root());
  const vfio::RebindContext context = rebind_context(session, test::gpu_rules());
  EXPECT_THAT(context.must_stay(vfio::scan(kernel_).value()).value(), testing::IsEmpty());
  const std::string gpu = "sys/devices/pci0000:00/0000:0a:00.0";
  const std::string id = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
  kernel_.directory(gpu + "/" + id);
  kernel_.link(gpu + "/" + id + "/mdev_type", "../mdev_supported_types/nvidia-230");
  kernel_.link("sys/bus/mdev/devices/" + id, "../../../devices/pci0000:00/0000:0a:00.0/" + id);
  EXPECT_THAT(context.must_stay(vfio::scan(kernel_).value()).value(),
              ElementsAre(Pair(at("0000:0a:00.0"), HasSubstr("carries 1 vGPU"))));
}

struct BadSelection {
  std::string name;
  SelectionOptions options;
  std::string message;
  std::string hint;
};
void PrintTo(const BadSelection& row, std::ostream* out) {
  *out << row.name;
}

class WrongSelection : public SelectionTest, public testing::WithParamInterface<BadSelection> {};

TEST_P(WrongSelection, IsRefusedWithWhatToDo) {
  const auto selection = choose(GetParam().options);
  ASSERT_FALSE(selection);
  EXPECT_EQ(exit_status_of(selection.error()), ExitStatus::usage);
  EXPECT_EQ(selection.error().message, GetParam().message);
  EXPECT_THAT(selection.error().hint, HasSubstr(GetParam().hint));
}

INSTANTIATE_TEST_SUITE_P(
    Table, WrongSelection,
    testing::Values(
        BadSelection{"Nothing", {}, "no device is named", "--device ADDRESS"},
        BadSelection{"AllAndADevice",
                     {.all = true, .devices = {"0000:65:00.0"}, .groups = {}, .with = {}},
                     "--all goes without --device and --group",
                     "--all"},
        BadSelection{"Malformed",
                     {.all = false, .devices = {"65:00.0"}, .groups = {}, .with = {}},
                     "'65:00.0' is not a PCI address",
                     "did you mean 0000:65:00.0?"},
        BadSelection{"Unknown",
                     {.all = false, .devices = {"0000:66:00.0"}, .groups = {}, .with = {}},
                     "there is no PCI function 0000:66:00.0 on this host; did you mean '0000:65:00.0'?",
                     "ferry status"},
        BadSelection{"NoAccelerator",
                     {.all = false, .devices = {"0000:0b:00.0"}, .groups = {}, .with = {}},
                     "0000:0b:00.0 is no accelerator (144d:a80a, class 0108, driver nvme)",
                     "ferry status"},
        BadSelection{"VirtualFunctionOfANetworkCard",
                     {.all = false, .devices = {"0000:0c:00.1"}, .groups = {}, .with = {}},
                     "0000:0c:00.1 is a virtual function of 0000:0c:00.0, which is no accelerator",
                     "ferry status"},
        BadSelection{"GroupOfAVirtualFunction",
                     {.all = false, .devices = {}, .groups = {9}, .with = {}},
                     "group 9 has no accelerator: 0000:0a:00.4",
                     "--device 0000:0a:00.4"},
        BadSelection{"UnknownGroup",
                     {.all = false, .devices = {}, .groups = {99}, .with = {}},
                     "there is no IOMMU group 99 on this host",
                     "ferry status"},
        BadSelection{"GroupWithoutAccelerator",
                     {.all = false, .devices = {}, .groups = {8}, .with = {}},
                     "group 8 has no accelerator: 0000:0b:00.0",
                     "ferry status"},
        BadSelection{"WithADisk",
                     {.all = false, .devices = {"0000:65:00.0"}, .groups = {}, .with = {"0000:0b:00.0"}},
                     "--with: 0000:0b:00.0 (144d:a80a, class 0108, driver nvme) is no audio, USB or USB-C "
                     "function of a chosen card",
                     "unbind that driver yourself"},
        BadSelection{"WithInNoChosenGroup",
                     {.all = false, .devices = {"0000:65:00.0"}, .groups = {}, .with = {"0000:0d:00.0"}},
                     "--with: 0000:0d:00.0 shares no IOMMU group and no slot with what is chosen",
                     "leave it out"},
        BadSelection{"UnknownWith",
                     {.all = false, .devices = {"0000:65:00.0"}, .groups = {}, .with = {"0000:77:00.0"}},
                     "--with: there is no PCI function 0000:77:00.0 on this host",
                     "ferry status"}),
    [](const auto& row) { return row.param.name; });

/// Beside the others: two H100 on two NUMA nodes with an NVSwitch between them, and a GPU of another vendor.
class FilteredSelection : public SelectionTest {
 protected:
  FilteredSelection() {
    kernel_.add_function(
        {.address = "0000:81:00.0", .ids = "10de:2330", .class_code = 0x030200, .group = 81, .numa_node = 0});
    kernel_.add_function(
        {.address = "0000:82:00.0", .ids = "10de:2330", .class_code = 0x030200, .group = 82, .numa_node = 1});
    kernel_.add_function(
        {.address = "0000:83:00.0", .ids = "10de:22a3", .class_code = 0x068000, .group = 83});
    kernel_.add_function(
        {.address = "0000:84:00.0", .ids = "1002:73bf", .class_code = 0x030001, .group = 84, .numa_node = 1});
    rules_.vendors.insert(0x1002);
  }
  Result<ChosenUnits> choose(const SelectionOptions& options,
                             vfio::Direction direction = vfio::Direction::to_vfio) {
    const vfio::Inventory inventory = vfio::scan(kernel_).value();
    return select(options, inventory, rules_, mdev::scan_vgpus(kernel_, inventory, rules_).value(),
                  vfio::read_undo_journal(kernel_).value(), names_, direction);
  }
  vfio::AcceleratorRules rules_ = policy::default_accelerator_rules();
};

struct Filtered {
  std::string name;
  FilterOptions filter;
  std::vector<std::string> chosen;
  std::vector<std::string> skipped = {};
};
void PrintTo(const Filtered& row, std::ostream* out) {
  *out << row.name;
}

class FilterTest : public FilteredSelection, public testing::WithParamInterface<Filtered> {};

TEST_P(FilterTest, ChoosesAmongAllAcceleratorsAloneAndWithAll) {
  for (const bool all : {false, true}) {
    SelectionOptions options;
    options.all = all;
    options.filter = GetParam().filter;
    const auto selection = choose(options);
    ASSERT_TRUE(selection) << selection.error().message;
    std::vector<std::string> chosen;
    for (const vfio::PciAddress& address : selection->request.accelerators) chosen.push_back(address.text());
    std::vector<std::string> skipped;
    for (const auto& [address, why] : selection->skipped) skipped.push_back(address.text());
    EXPECT_EQ(chosen, GetParam().chosen) << "--all: " << all;
    EXPECT_EQ(skipped, GetParam().skipped) << "--all: " << all;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, FilterTest,
    testing::Values(
        Filtered{"VendorInHex",
                 {.vendors = {"10de"}, .classes = {}, .models = {}, .numa_nodes = {}},
                 {"0000:65:00.0", "0000:81:00.0", "0000:82:00.0"},
                 {"0000:0a:00.0"}},
        Filtered{"VendorWithPrefix",
                 {.vendors = {"0x1002"}, .classes = {}, .models = {}, .numa_nodes = {}},
                 {"0000:84:00.0"}},
        Filtered{"VendorByName",
                 {.vendors = {"NVIDIA"}, .classes = {}, .models = {}, .numa_nodes = {}},
                 {"0000:65:00.0", "0000:81:00.0", "0000:82:00.0"},
                 {"0000:0a:00.0"}},
        Filtered{"Class",
                 {.vendors = {}, .classes = {"0302"}, .models = {}, .numa_nodes = {}},
                 {"0000:81:00.0", "0000:82:00.0"},
                 {"0000:0a:00.0"}},
        Filtered{"ClassByWord",
                 {.vendors = {}, .classes = {"vga"}, .models = {}, .numa_nodes = {}},
                 {"0000:65:00.0", "0000:84:00.0"}},
        Filtered{"ClassWithInterface",
                 {.vendors = {}, .classes = {"0x030001"}, .models = {}, .numa_nodes = {}},
                 {"0000:84:00.0"}},
        Filtered{"NvSwitchOnRequest",
                 {.vendors = {}, .classes = {"nvswitch"}, .models = {}, .numa_nodes = {}},
                 {"0000:83:00.0"}},
        Filtered{"NvSwitchByNumberAndVga",
                 {.vendors = {}, .classes = {"0680", "vga"}, .models = {}, .numa_nodes = {}},
                 {"0000:65:00.0", "0000:83:00.0", "0000:84:00.0"}},
        Filtered{"ModelOfTheOneThatIsLeftAlone",
                 {.vendors = {}, .classes = {}, .models = {"*tesla t4*"}, .numa_nodes = {}},
                 {},
                 {"0000:0a:00.0"}},
        Filtered{"ModelByGlob",
                 {.vendors = {}, .classes = {}, .models = {"*h100*"}, .numa_nodes = {}},
                 {"0000:81:00.0", "0000:82:00.0"}},
        Filtered{"ModelAsItIsShown",
                 {.vendors = {}, .classes = {}, .models = {"AD102 [GeForce RTX 4090]"}, .numa_nodes = {}},
                 {"0000:65:00.0"}},
        Filtered{"ModelByIds",
                 {.vendors = {}, .classes = {}, .models = {"10DE:2684"}, .numa_nodes = {}},
                 {"0000:65:00.0"}},
        Filtered{"ModelWithoutAName",
                 {.vendors = {}, .classes = {}, .models = {"1002:*"}, .numa_nodes = {}},
                 {"0000:84:00.0"}},
        Filtered{"OneOrTheOther",
                 {.vendors = {}, .classes = {}, .models = {"*4090*", "*H100*"}, .numa_nodes = {}},
                 {"0000:65:00.0", "0000:81:00.0", "0000:82:00.0"}},
        Filtered{"OneThatIsNotHereBesideOneThatIs",
                 {.vendors = {}, .classes = {}, .models = {"*B200*", "*H100*"}, .numa_nodes = {}},
                 {"0000:81:00.0", "0000:82:00.0"}},
        Filtered{"NumaNode",
                 {.vendors = {}, .classes = {}, .models = {}, .numa_nodes = {"1"}},
                 {"0000:82:00.0", "0000:84:00.0"}},
        Filtered{"DifferentOnesMustAllHold",
                 {.vendors = {"nvidia"}, .classes = {"3d"}, .models = {"*H100*"}, .numa_nodes = {"1"}},
                 {"0000:82:00.0"}}),
    [](const auto& row) { return row.param.name; });

TEST_F(FilteredSelection, UnbindIsForWhatFitsAndIsOnVfio) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  for (const char* const address : {"0000:65:00.0", "0000:82:00.0"}) {
    const std::string driver = kernel_.driver_of(address);
    if (!driver.empty()) {
      ASSERT_TRUE(kernel_.write("sys/bus/pci/drivers/" + driver + "/unbind", address));
    }
    ASSERT_TRUE(kernel_.write(vfio::sysfs_path(at(address)) / "driver_override", "vfio-pci"));
    ASSERT_TRUE(kernel_.write("sys/bus/pci/drivers/vfio-pci/bind", address));
  }
  SelectionOptions options;
  options.filter.models = {"*H100*"};
  EXPECT_THAT(choose(options, vfio::Direction::back)->request.accelerators, ElementsAre(at("0000:82:00.0")));
}

TEST_F(FilteredSelection, NamingAnNvSwitchTakesItAndNothingElseDoes) {
  SelectionOptions all;
  all.all = true;
  EXPECT_THAT(choose(all)->request.accelerators, testing::Not(testing::Contains(at("0000:83:00.0"))));
  SelectionOptions device;
  device.devices = {"0000:83:00.0"};
  EXPECT_THAT(choose(device)->request.accelerators, ElementsAre(at("0000:83:00.0")));
}

TEST_F(FilteredSelection, WhatWasTakenOnRequestGoesBackUnasked) {
  SelectionOptions options;
  options.filter.classes = {"nvswitch"};
  ChosenUnits selection = choose(options).value();
  test::TableProbe probe;
  const vfio::RebindContext context{
      .host = &kernel_, .writer = &kernel_, .probe = &probe, .rules = selection.rules, .on_step = {}};
  const auto there = vfio::apply_rebinds(context, selection.request, vfio::Direction::to_vfio);
  ASSERT_TRUE(there) << there.error().message;
  EXPECT_EQ(kernel_.driver_of("0000:83:00.0"), "vfio-pci");

  selection.request = {};
  selection.request.accelerators = recorded_accelerators(vfio::scan(kernel_).value(), rules_.asking_for_all(),
                                                         vfio::read_undo_journal(kernel_).value());
  selection.request.recorded_only = true;
  EXPECT_THAT(selection.request.accelerators, ElementsAre(at("0000:83:00.0")));
  const auto back = vfio::apply_rebinds(context, selection.request, vfio::Direction::back);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(kernel_.driver_of("0000:83:00.0"), "");
  EXPECT_EQ(kernel_.override_of("0000:83:00.0"), "");
}

TEST_F(FilteredSelection, AnotherVendorsGpuRebindsWhereItIsNamedAndGoesBackUnasked) {
  rules_ = policy::default_accelerator_rules();
  kernel_.add_function({.address = "0000:84:00.1", .ids = "1002:ab28", .class_code = 0x040300, .group = 84});
  SelectionOptions all;
  all.all = true;
  EXPECT_THAT(choose(all)->request.accelerators, testing::Not(Contains(at("0000:84:00.0"))));
  SelectionOptions vendor;
  vendor.filter.vendors = {"amd"};
  EXPECT_THAT(choose(vendor)->request.accelerators, ElementsAre(at("0000:84:00.0")));
  SelectionOptions device;
  device.devices = {"0000:84:00.0"};
  const ChosenUnits selection = choose(device).value();
  test::TableProbe probe;
  const vfio::RebindContext context{
      .host = &kernel_, .writer = &kernel_, .probe = &probe, .rules = selection.rules, .on_step = {}};
  ASSERT_TRUE(vfio::apply_rebinds(context, selection.request, vfio::Direction::to_vfio));
  EXPECT_EQ(kernel_.driver_of("0000:84:00.0"), "vfio-pci");
  EXPECT_EQ(kernel_.driver_of("0000:84:00.1"), "vfio-pci");

  const vfio::Inventory inventory = vfio::scan(kernel_).value();
  const vfio::UndoJournal record = vfio::read_undo_journal(kernel_).value();
  EXPECT_THAT(vfio::unfinished(inventory, rules_, record), testing::IsEmpty())
      << "its sound card has its GPU";
  const auto back = select_recorded({}, inventory, rules_, record, names_);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_THAT(back->request.accelerators, ElementsAre(at("0000:84:00.0")));
}

struct BadFilter {
  std::string name;
  SelectionOptions options;
  Errc code = Errc::usage;
  std::string message;
  std::string hint;
};
void PrintTo(const BadFilter& row, std::ostream* out) {
  *out << row.name;
}

class WrongFilter : public FilteredSelection, public testing::WithParamInterface<BadFilter> {};

TEST_P(WrongFilter, IsRefusedWithWhatToDo) {
  const auto selection = choose(GetParam().options);
  ASSERT_FALSE(selection);
  EXPECT_EQ(selection.error().code, GetParam().code);
  EXPECT_EQ(selection.error().message, GetParam().message);
  EXPECT_THAT(selection.error().hint, HasSubstr(GetParam().hint));
}

SelectionOptions filtered(const FilterOptions& filter) {
  SelectionOptions options;
  options.filter = filter;
  return options;
}
SelectionOptions vendor(const std::string& text) {
  return filtered({.vendors = {text}, .classes = {}, .models = {}, .numa_nodes = {}});
}
SelectionOptions of_class(const std::string& text) {
  return filtered({.vendors = {}, .classes = {text}, .models = {}, .numa_nodes = {}});
}
SelectionOptions model(const std::string& text) {
  return filtered({.vendors = {}, .classes = {}, .models = {text}, .numa_nodes = {}});
}
SelectionOptions numa(const std::string& text) {
  return filtered({.vendors = {}, .classes = {}, .models = {}, .numa_nodes = {text}});
}
SelectionOptions with_device(SelectionOptions options) {
  options.devices = {"0000:65:00.0"};
  return options;
}
SelectionOptions with_group(SelectionOptions options) {
  options.groups = {41};
  return options;
}
SelectionOptions group(std::uint32_t number) {
  SelectionOptions options;
  options.groups = {number};
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Table, WrongFilter,
    testing::Values(
        BadFilter{"VendorBesideADevice", with_device(vendor("nvidia")), Errc::usage,
                  "--vendor goes without --device and --group", "--vendor, --class, --model or --numa"},
        BadFilter{"NumaBesideAGroup", with_group(numa("0")), Errc::usage,
                  "--numa goes without --device and --group", "--device ADDRESS"},
        BadFilter{"VendorMistyped", vendor("nvida"), Errc::usage,
                  "--vendor: 'nvida' is no vendor; did you mean 'nvidia'?",
                  "four hex digits, as in --vendor 10de"},
        BadFilter{"VendorTooShort", vendor("10d"), Errc::usage, "--vendor: '10d' is no vendor", "nvidia"},
        BadFilter{"VendorEmpty", vendor(""), Errc::usage, "--vendor: '' is no vendor", "--vendor 10de"},
        BadFilter{"VendorWithASign", vendor("-10d"), Errc::usage, "--vendor: '-10d' is no vendor", "10de"},
        BadFilter{"VendorIsOnlyThePrefix", vendor("0x"), Errc::usage, "--vendor: '0x' is no vendor", "10de"},
        BadFilter{"ClassMistyped", of_class("nvswich"), Errc::usage,
                  "--class: 'nvswich' is no class; did you mean 'nvswitch'?", "--class 0302"},
        BadFilter{"ClassOfFiveDigits", of_class("03020"), Errc::usage, "--class: '03020' is no class",
                  "four or six hex digits"},
        BadFilter{"ModelEmpty", model(""), Errc::usage, "--model: '' is no model", "--model '*H100*'"},
        BadFilter{"NumaNegative", numa("-1"), Errc::usage, "--numa: '-1' is no NUMA node", "--numa 1"},
        BadFilter{"NumaWithATail", numa("1x"), Errc::usage, "--numa: '1x' is no NUMA node", "--numa 1"},
        BadFilter{"NumaOutOfRange", numa("99999999999"), Errc::usage, "--numa: '99999999999' is no NUMA node",
                  "--numa 1"},
        BadFilter{
            "NoSuchVendor", vendor("8086"), Errc::not_found,
            "no accelerator on this host is of vendor '8086'",
            "those here are of vendor 1002 (amd), class 0300 (vga), model 1002:73bf, NUMA node 1; or of "
            "vendor 10de (nvidia), class 0300 (vga), model AD102 [GeForce RTX 4090], NUMA node unknown"},
        BadFilter{"NoSuchClass", of_class("0200"), Errc::not_found,
                  "no accelerator on this host is of class '0200'", "class 0302 (3d)"},
        BadFilter{"NoSuchModel", model("*h200*"), Errc::not_found,
                  "no accelerator on this host is of model '*h200*'", "model GH100 [H100 SXM5 80GB]"},
        BadFilter{"PartOfAModelWithoutStars", model("gh100"), Errc::not_found,
                  "no accelerator on this host is of model 'gh100'", "model GH100"},
        BadFilter{"AnNvSwitchIsNoModelUnlessAskedFor", model("10de:22a3"), Errc::not_found,
                  "no accelerator on this host is of model '10de:22a3'", "model TU104GL [Tesla T4]"},
        BadFilter{"NoSuchNumaNode", numa("7"), Errc::not_found,
                  "no accelerator on this host is of NUMA node '7'", "NUMA node 0"},
        BadFilter{"NoneIsAllOfIt",
                  filtered({.vendors = {"1002"}, .classes = {}, .models = {}, .numa_nodes = {"0"}}),
                  Errc::not_found, "no accelerator on this host is of vendor '1002' and NUMA node '0'",
                  "vendor 1002 (amd), class 0300 (vga), model 1002:73bf, NUMA node 1"},
        BadFilter{"GroupOfAnNvSwitch", group(83), Errc::usage, "group 83 has no accelerator: 0000:83:00.0",
                  "--device 0000:83:00.0"}),
    [](const auto& row) { return row.param.name; });

TEST_F(SelectionTest, AFilterOnAHostWithoutAcceleratorsSaysSo) {
  const FakeKernel bare;
  const vfio::Inventory inventory = vfio::scan(bare).value();
  const auto selection = select(vendor("nvidia"), inventory, policy::default_accelerator_rules(), {}, {},
                                names_, vfio::Direction::to_vfio);
  ASSERT_TRUE(selection) << selection.error().message;
  EXPECT_EQ(selection->nothing, "there are no GPUs on this host");
}

}  // namespace
}  // namespace ferry::cli
