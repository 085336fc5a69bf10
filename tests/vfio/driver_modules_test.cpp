// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/driver_modules.h"

#include <gmock/gmock.h>

#include "hostfs/kernel_facts.h"
#include "tests/vfio/machines.h"

namespace ferry::vfio {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(DriverModules, AreThoseWhoseAliasFitsEachOnceInTheFilesOrder) {
  constexpr std::string_view kAliases =
      "# Aliases extracted from modules themselves.\n"
      "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n"
      "alias pci:v000010DEd*sv*sd*bc03sc*i* nvidia\n"
      "alias pci:v000010DEd*sv*sd*bc03sc02i* nvidia\n"
      "alias pci:v000010DEd0000268[0-9]sv*sd*bc*sc*i* nouveau\n"
      "alias pci:v000010DEd00001111sv*sd*bc*sc*i* other\n"
      "alias usb:v1D6Bp*d*dc*dsc*dp*ic*isc*ip*in* hub\n"
      "alias pci:v*\n"
      "symbol:pci:v* x\n"
      "alias pci:v000010DEd00002684sv*sd*bc*sc*i* last";
  EXPECT_THAT(modules_for("pci:v000010DEd00002684sv00001043sd000088ECbc03sc00i00", kAliases),
              ElementsAre("nvidia", "nouveau", "last"));
  EXPECT_THAT(modules_for("pci:v00008086d00001533sv00000000sd00000000bc02sc00i00", kAliases), IsEmpty());
  EXPECT_THAT(modules_for("", kAliases), IsEmpty());
  EXPECT_THAT(modules_for("pci:v000010DEd00002684sv00001043sd000088ECbc03sc00i00", ""), IsEmpty());
}

TEST(DriverModules, OfALoadedDriverIsWhatItsDirectorySays) {
  test::FakeKernel kernel;
  kernel.add_driver({.name = "bochs-drm", .module = "bochs"});
  EXPECT_EQ(module_of_driver(kernel, "bochs-drm"), "bochs");
  EXPECT_EQ(module_of_driver(kernel, "nvidia"), std::nullopt);
}

/// One function on vfio whose record names a driver that is gone.
class LostModule : public testing::Test {
 protected:
  LostModule() { kernel_.add_function({.address = "0000:01:00.0", .ids = "10de:1111", .group = 5}); }
  std::optional<std::string> found(const std::string& driver) {
    UndoJournal record;
    record.members[test::at("0000:01:00.0")] = {
        .ids = "10de:1111", .driver = driver, .driver_override = {}, .role = "accelerator"};
    find_lost_modules(kernel_, scan(kernel_).value(), record);
    is_lost_ = !record.lost.empty();
    return record.members.begin()->second.module;
  }
  void alias(const std::string& module) {
    test::add_alias(kernel_, "pci:v000010DEd00001111sv*sd*bc*sc*i* " + module);
  }
  test::FakeKernel kernel_;
  bool is_lost_ = false;
};

TEST_F(LostModule, IsTheOnlyOneForTheFunction) {
  EXPECT_EQ(found("bochs-drm"), "nouveau") << "an alias of all the vendor's displays";
}

TEST_F(LostModule, IsNoneThatIsLoadedSinceTheDriverWouldBeThere) {
  kernel_.add_driver({.name = "nouveau"});
  EXPECT_EQ(found("bochs-drm"), std::nullopt);
  alias("bochs");
  EXPECT_EQ(found("bochs-drm"), "bochs");
}

TEST_F(LostModule, OfSeveralIsTheOneThatBearsTheDriversName) {
  alias("nvidiafb");
  alias("nvidia_gpu");
  EXPECT_EQ(found("nvidia-gpu"), "nvidia_gpu");
  EXPECT_EQ(found("other"), std::nullopt) << "not clear";
}

TEST_F(LostModule, ThatIsFoundByItsAliasIsLostWithoutItsFile) {
  const auto modules = std::filesystem::path("lib/modules") / kernel_release(kernel_);
  kernel_.file(modules / "modules.dep", "kernel/nouveau.ko.xz:\n");
  EXPECT_EQ(found("bochs-drm"), "nouveau");
  EXPECT_FALSE(is_lost_);
  kernel_.file(modules / "modules.dep", "kernel/other.ko.xz:\n");
  EXPECT_EQ(found("bochs-drm"), "nouveau");
  EXPECT_TRUE(is_lost_);
  alias("nvidia");
  EXPECT_EQ(found("bochs-drm"), std::nullopt);
  EXPECT_FALSE(is_lost_) << "not clear";
}

TEST_F(LostModule, IsNotLookedForWhileTheDriverIsThere) {
  kernel_.add_driver({.name = "bochs-drm", .module = "bochs"});
  EXPECT_EQ(found("bochs-drm"), std::nullopt);
}

}  // namespace
}  // namespace ferry::vfio
