// SPDX-License-Identifier: Apache-2.0
#include "cli/selection.h"

#include <gmock/gmock.h>

#include "tests/vfio/machines.h"

namespace ferry {
namespace {

using test::at;
using test::FakeKernel;
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
    kernel_.add_function({.address = "0000:0a:00.4",
                          .ids = "10de:1eb8",
                          .class_code = 0x030200,
                          .group = 9,
                          .physical_function = "0000:0a:00.0"});
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
  Result<Selection> choose(const SelectionOptions& options, Direction direction = Direction::to_vfio) {
    const Inventory inventory = scan(kernel_).value();
    return select(options, inventory, test::gpu_rules(),
                  scan_vgpus(kernel_, inventory, test::gpu_rules()).value(), direction);
  }
  FakeKernel kernel_;
};

TEST_F(SelectionTest, AllLeavesOutWhatOffersVgpusAndSaysWhy) {
  const auto selection = choose({.all = true, .devices = {}, .groups = {}, .with = {}});
  ASSERT_TRUE(selection);
  EXPECT_THAT(selection->request.accelerators, ElementsAre(at("0000:65:00.0")));
  EXPECT_THAT(selection->left_alone, ElementsAre(Pair(at("0000:0a:00.0"), HasSubstr("vGPU"))));
}

TEST_F(SelectionTest, NamingAGpuThatOffersVgpusTakesIt) {
  const auto selection = choose({.all = false, .devices = {"0000:0a:00.0"}, .groups = {}, .with = {}});
  EXPECT_THAT(selection->request.accelerators, ElementsAre(at("0000:0a:00.0")));
}

TEST_F(SelectionTest, ACompanionStandsForItsAcceleratorAndEachCountsOnce) {
  const auto selection =
      choose({.all = false, .devices = {"0000:65:00.1", "0000:65:00.0"}, .groups = {41}, .with = {}});
  EXPECT_THAT(selection->request.accelerators, ElementsAre(at("0000:65:00.0")));
}

TEST_F(SelectionTest, AllTheWayBackMeansWhatIsOnVfio) {
  EXPECT_THAT(
      choose({.all = true, .devices = {}, .groups = {}, .with = {}}, Direction::back)->request.accelerators,
      testing::IsEmpty());
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
                     "there is no PCI function 0000:66:00.0 on this host; did you mean '0000:64:00.0'?",
                     "ferry status"},
        BadSelection{"NoAccelerator",
                     {.all = false, .devices = {"0000:0b:00.0"}, .groups = {}, .with = {}},
                     "0000:0b:00.0 is no accelerator (144d:a80a, class 0108, driver nvme)",
                     "ferry status"},
        BadSelection{"VirtualFunction",
                     {.all = false, .devices = {"0000:0a:00.4"}, .groups = {}, .with = {}},
                     "0000:0a:00.4 is a virtual function of 0000:0a:00.0",
                     "ferry vgpu"},
        BadSelection{"UnknownGroup",
                     {.all = false, .devices = {}, .groups = {99}, .with = {}},
                     "there is no IOMMU group 99 on this host",
                     "ferry status"},
        BadSelection{"GroupWithoutAccelerator",
                     {.all = false, .devices = {}, .groups = {8}, .with = {}},
                     "group 8 has no accelerator: 0000:0b:00.0",
                     "ferry status"},
        BadSelection{
            "UnknownWith",
            {.all = false, .devices = {"0000:65:00.0"}, .groups = {}, .with = {"0000:77:00.0"}},
            "--with: there is no PCI function 0000:77:00.0 on this host; did you mean '0000:0a:00.0'?",
            "ferry status"}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ferry
