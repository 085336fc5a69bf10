// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/driver_choice.h"

#include <string_view>
#include <sys/utsname.h>

#include <gmock/gmock.h>

#include "tests/support/fake_kernel.h"

namespace ferry::vfio {
namespace {

constexpr const char* kAliases =
    "# comment\n"
    "alias pci:v000010DEd*sv*sd*bc03sc*i* nvidia\n"
    "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n"
    "alias vfio_pci:v000010DEd*sv*sd*bc03sc02i* nv_family_vfio_pci\n"
    "alias vfio_pci:v000010DEd00007777sv*sd*bc*sc*i* nv_7777_vfio_pci\n";
constexpr const char* kGpu = "pci:v000010DEd00007777sv000010DEsd00000001bc03sc02i00";
constexpr const char* kAudio = "pci:v000010DEd00007777sv000010DEsd00000001bc04sc03i00";

TEST(VfioDriverTable, TakesTheMatchWithTheFewestWildcards) {
  const auto table = VfioDriverTable::parse(kAliases);
  EXPECT_EQ(table.choose(kGpu), (VfioDriver{"nv_family_vfio_pci", "nv_family_vfio_pci"}));
}

TEST(VfioDriverTable, LooksUpEachFunctionByItsOwnIds) {
  const auto table = VfioDriverTable::parse(kAliases);
  EXPECT_EQ(table.choose(kAudio), (VfioDriver{"nv_7777_vfio_pci", "nv_7777_vfio_pci"}));
  EXPECT_EQ(table.choose("pci:v00008086d00000001sv00000000sd00000000bc04sc03i00"),
            (VfioDriver{"vfio_pci", "vfio-pci"}));
}

TEST(VfioDriverTable, KeepsTheFirstOfEquals) {
  const auto table = VfioDriverTable::parse(
      "alias vfio_pci:v000010DEd*sv*sd*bc*sc*i* first\nalias vfio_pci:v*d00007777sv*sd*bc*sc*i* second\n");
  EXPECT_EQ(table.choose(kGpu).module, "first");
}

TEST(VfioDriverTable, FallsBackToVfioPci) {
  EXPECT_EQ(VfioDriverTable::parse("").choose(kGpu), (VfioDriver{"vfio_pci", "vfio-pci"}));
  EXPECT_EQ(VfioDriverTable::parse(kAliases).choose("").module, "vfio_pci");
  EXPECT_EQ(VfioDriverTable::parse(kAliases).choose("usb:v1").module, "vfio_pci");
  const HostFs nowhere("/nonexistent");
  EXPECT_EQ(VfioDriverTable::read(nowhere).choose(kGpu).driver, "vfio-pci");
}

TEST(VfioDriverTable, PassesOverLinesThatAreNoAlias) {
  const auto table = VfioDriverTable::parse(
      "alias vfio_pci:\nalias vfio_pci:v10 x\nalias vfio_pci:v*d*sv*sd*bc*sc*i*\nalias "
      "vfio_pci:v*d*sv*sd*bc*sc*i* \n"
      "alias vfio_pci:d*v*sv*sd*bc*sc*i* swapped\nalias vfio_pci:v*d*sv*sd*bc*sc*i x");
  EXPECT_EQ(table.choose(kGpu).module, "vfio_pci");
}

TEST(VfioDriverTable, AsksTheLoadedModuleForItsDriversName) {
  const test::FakeKernel kernel;
  kernel.directory("sys/module/vfio_pci/drivers/pci:renamed-vfio");
  EXPECT_EQ(VfioDriverTable::read(kernel).choose(kGpu), (VfioDriver{"vfio_pci", "renamed-vfio"}));
}

TEST(VfioDriverTable, WarnsWhereVariantsMayBeOverlooked) {
  const test::FakeKernel kernel;
  EXPECT_EQ(VfioDriverTable::read(kernel).warning(), "");
  kernel.remove("lib/modules");
  EXPECT_THAT(VfioDriverTable::read(kernel).warning(), testing::HasSubstr("modules.alias"));
}

TEST(VfioDriverTable, KnowsDriversThatAreBuiltIn) {
  using std::string_view_literals::operator""sv;
  constexpr std::string_view kModinfo =
      "vfio.license=GPL v2\0"
      "vfio_pci.alias=vfio_pci:v*d*sv*sd*bc*sc*i*\0"
      "nv_7777_vfio_pci.alias=vfio_pci:v000010DEd00007777sv*sd*bc*sc*i*\0"
      "nouveau.alias=pci:v000010DEd*sv*sd*bc03sc*i*\0"sv;
  const test::FakeKernel kernel;
  utsname system{};
  ::uname(&system);
  const auto modules = std::filesystem::path("lib/modules") / system.release;
  kernel.file(modules / "modules.builtin.modinfo", kModinfo);
  EXPECT_EQ(VfioDriverTable::read(kernel).choose(kAudio).module, "nv_7777_vfio_pci");
  EXPECT_EQ(VfioDriverTable::read(kernel).choose("pci:v00008086d00000001sv00000000sd00000000bc04sc03i00"),
            (VfioDriver{"vfio_pci", "vfio-pci"}));
}

TEST(VfioDriverTable, IsOfTheKernelThatACapturedHostRan) {
  const test::FakeKernel kernel;
  kernel.file("proc/sys/kernel/osrelease", "1.2.3-captured\n");
  kernel.file("lib/modules/1.2.3-captured/modules.alias",
              "alias vfio_pci:v000010DEd00007777sv*sd*bc*sc*i* nv_captured_vfio_pci\n");
  EXPECT_EQ(VfioDriverTable::read(kernel).choose(kGpu).module, "nv_captured_vfio_pci");
  EXPECT_EQ(VfioDriverTable::read(kernel).warning(), "");
}

class MalformedModinfo : public testing::TestWithParam<std::string_view> {};

TEST_P(MalformedModinfo, IsPassedOver) {
  VfioDriverTable table;
  table.add_builtin(GetParam());
  EXPECT_EQ(table.choose(kGpu), (VfioDriver{"vfio_pci", "vfio-pci"}));
}

INSTANTIATE_TEST_SUITE_P(Table, MalformedModinfo,
                         testing::Values("", "\n", ".alias=vfio_pci:", ".alias=vfio_pci:v*d*sv*sd*bc*sc*i*",
                                         "x.alias=vfio_pci:v*d*sv*sd*bc*sc*", "x.alias=vfio_pci:v*d*",
                                         "x.alias=pci:v*d*sv*sd*bc*sc*i*",
                                         "alias=vfio_pci:v*d*sv*sd*bc*sc*i*",
                                         "x.parm=vfio_pci:v*d*sv*sd*bc*sc*i*",
                                         "x.alias=vfio_pci:d*v*sv*sd*bc*sc*i*"));

}  // namespace
}  // namespace ferry::vfio
