// SPDX-License-Identifier: Apache-2.0
// The kernel's answers to the writes that bind and unbind functions.
// On the real kernel {gpu} is a GPU on {gpu_driver} with {audio} on {audio_driver} in its group {group}, and
// {other} is a driver loaded there that matches neither. {vgpu} is a GPU on a driver nvidia that can make
// vGPUs; {port} is a bridge on pcieport.
// What that machine cannot show: the EINVAL of a function without an IOMMU group (there is none: its IOMMU
// handles all), and an unbind from vfio while a VM has the function, which hangs (the scenario hangs has
// that).
#include "tests/support/kernel_effects.h"

#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <unistd.h>

#include <gmock/gmock.h>

#include "hostfs/host_directory.h"
#include "tests/support/child_libraries.h"
#include "tests/support/fake_kernel.h"
#include "vfio/sanitize/sanitizing.h"

namespace ferry::vfio {
namespace {

using test::EffectFact;
using test::EffectWrite;
using test::FakeKernel;
using test::KernelEffect;
using Kind = EffectFact::Kind;

const std::string kGpu = "sys/bus/pci/devices/{gpu}";
const std::string kHostDriver = "sys/bus/pci/drivers/{gpu_driver}";
const std::string kVfio = "sys/bus/pci/drivers/vfio-pci";
const EffectWrite kOverride = {kGpu + "/driver_override", "vfio-pci"};
const EffectWrite kClear = {kGpu + "/driver_override", "\n"};
const EffectWrite kUnbindHost = {kHostDriver + "/unbind", "{gpu}"};
const EffectWrite kBindHost = {kHostDriver + "/bind", "{gpu}"};
const EffectWrite kUnbindVfio = {kVfio + "/unbind", "{gpu}"};
const EffectWrite kBindVfio = {kVfio + "/bind", "{gpu}"};
const std::string kLock = "proc/driver/nvidia/gpus/{vgpu}/unbindLock";
const EffectWrite kLockIt = {kLock, "1"};
const EffectWrite kProbe = {"sys/bus/pci/drivers_probe", "{gpu}"};
const std::string kAudio = "sys/bus/pci/devices/{audio}";
const EffectWrite kUnbindAudio = {"sys/bus/pci/drivers/{audio_driver}/unbind", "{audio}"};
const EffectWrite kBindAudio = {"sys/bus/pci/drivers/{audio_driver}/bind", "{audio}"};
const std::string kPort = "sys/bus/pci/devices/{port}";
const EffectWrite kOverridePort = {kPort + "/driver_override", "vfio-pci"};
const EffectWrite kClearPort = {kPort + "/driver_override", "\n"};
const EffectWrite kUnbindPort = {"sys/bus/pci/drivers/pcieport/unbind", "{port}"};
const EffectWrite kBindPort = {"sys/bus/pci/drivers/pcieport/bind", "{port}"};

std::vector<KernelEffect> effects() {
  return {
      {.name = "OverrideReadsBackAndMovesNothing",
       .write = kOverride,
       .after = {{Kind::reads, kGpu + "/driver_override", "vfio-pci"},
                 {Kind::link_to, kGpu + "/driver", "{gpu_driver}"}},
       .restore = {kClear}},
      {.name = "OverrideTakesANameThatDoesNotExist",
       .write = {kGpu + "/driver_override", "no-such-driver"},
       .after = {{Kind::reads, kGpu + "/driver_override", "no-such-driver"}},
       .restore = {kClear}},
      {.name = "OverrideIsClearedByANewline",
       .before = {kOverride},
       .write = kClear,
       .after = {{Kind::reads, kGpu + "/driver_override", "(null)"}}},
      {.name = "OverrideRefusesAPage",
       .write = {kGpu + "/driver_override", std::string(4095, 'x')},
       .error = EINVAL,
       .after = {{Kind::reads, kGpu + "/driver_override", "(null)"}}},
      {.name = "UnbindLeavesTheFunctionDriverless",
       .write = kUnbindHost,
       .after = {{Kind::absent, kGpu + "/driver"}, {Kind::absent, kHostDriver + "/{gpu}"}},
       .restore = {kBindHost}},
      {.name = "UnbindFromAnotherDriverIsENODEV",
       .write = kUnbindVfio,
       .error = ENODEV,
       .after = {{Kind::link_to, kGpu + "/driver", "{gpu_driver}"}}},
      {.name = "UnbindOfNoDeviceIsENODEV",
       .write = {kHostDriver + "/unbind", "ffff:ff:1f.7"},
       .error = ENODEV},
      {.name = "UnbindOfADriverThatIsNotLoadedIsENOENT",
       .write = {"sys/bus/pci/drivers/no-such-driver/unbind", "{gpu}"},
       .error = ENOENT},
      {.name = "VfioDoesNotTakeWhatHasNoOverride",
       .before = {kUnbindHost},
       .write = kBindVfio,
       .error = ENODEV,
       .after = {{Kind::absent, kGpu + "/driver"}},
       .restore = {kBindHost}},
      {.name = "VfioTakesWhatIsOverridden",
       .before = {kOverride, kUnbindHost},
       .write = kBindVfio,
       .after = {{Kind::link_to, kGpu + "/driver", "vfio-pci"},
                 // By this the way back finds the module of a driver that is unloaded meanwhile.
                 {Kind::link_to, "sys/bus/pci/drivers/vfio-pci/module", "vfio_pci"},
                 {Kind::present, kVfio + "/{gpu}"},
                 {Kind::present, kGpu + "/vfio-dev"},
                 {Kind::present, "dev/vfio/{group}"},
                 {Kind::present, "sys/class/vfio/{group}/dev"}},
       .restore = {kClear, kUnbindVfio, kBindHost}},
      {.name = "ABindingsLinkHasAnInodeThatNoneBeforeItHad",
       .before = {kOverride, kUnbindHost, kBindVfio, kUnbindVfio, kBindVfio, kUnbindVfio},
       .write = kBindVfio,
       .made_anew = kGpu + "/driver",
       .restore = {kClear, kUnbindVfio, kBindHost}},
      {.name = "BindOfABoundFunctionIsEBUSY",
       .before = {kOverride, kUnbindHost, kBindVfio},
       .write = kBindVfio,
       .error = EBUSY,
       .after = {{Kind::link_to, kGpu + "/driver", "vfio-pci"}},
       .restore = {kClear, kUnbindVfio, kBindHost}},
      {.name = "AnOverrideKeepsTheHostDriverAway",
       .before = {kOverride, kUnbindHost},
       .write = kBindHost,
       .error = ENODEV,
       .after = {{Kind::absent, kGpu + "/driver"}},
       .restore = {kClear, kBindHost}},
      {.name = "TheGroupNodeGoesWithItsLastVfioMember",
       .before = {kOverride, kUnbindHost, kBindVfio, kClear},
       .write = kUnbindVfio,
       .after = {{Kind::absent, "dev/vfio/{group}"},
                 {Kind::absent, "sys/class/vfio/{group}"},
                 {Kind::absent, kGpu + "/vfio-dev"}},
       .restore = {kBindHost}},
      {.name = "ClearingTheOverrideOfABoundFunctionMovesNothing",
       .before = {kOverride, kUnbindHost, kBindVfio},
       .write = kClear,
       .after = {{Kind::link_to, kGpu + "/driver", "vfio-pci"}},
       .restore = {kUnbindVfio, kBindHost}},
      {.name = "ProbeGivesTheNaturalDriver",
       .before = {kUnbindHost},
       .write = kProbe,
       .after = {{Kind::link_to, kGpu + "/driver", "{gpu_driver}"}}},
      {.name = "ProbeSucceedsWhenNothingMatches",
       .before = {{kGpu + "/driver_override", "no-such-driver"}, kUnbindHost},
       .write = kProbe,
       .after = {{Kind::absent, kGpu + "/driver"}},
       .restore = {kClear, kBindHost}},
      {.name = "ProbeOfABoundFunctionMovesNothing",
       .before = {kOverride},
       .write = kProbe,
       .after = {{Kind::link_to, kGpu + "/driver", "{gpu_driver}"}},
       .restore = {kClear}},
      {.name = "VfioRefusesABridge",
       .before = {kOverridePort, kUnbindPort},
       .write = {kVfio + "/bind", "{port}"},
       .error = EINVAL,
       .after = {{Kind::absent, kPort + "/driver"}, {Kind::absent, kPort + "/vfio-dev"}},
       .restore = {kClearPort, kBindPort}},
      {.name = "ProbeSucceedsWhenTheDriverRefuses",
       .before = {kOverridePort, kUnbindPort},
       .write = {"sys/bus/pci/drivers_probe", "{port}"},
       .after = {{Kind::absent, kPort + "/driver"}},
       .restore = {kClearPort, kBindPort}},
      {.name = "NoHostDriverBindsInAGroupThatAVmHas",
       .before = {kOverride, kUnbindHost, kBindVfio, kUnbindAudio},
       .held = "{gpu}",
       .write = kBindAudio,
       .error = EBUSY,
       .after = {{Kind::absent, kAudio + "/driver"}, {Kind::link_to, kGpu + "/driver", "vfio-pci"}},
       .restore = {kBindAudio, kClear, kUnbindVfio, kBindHost}},
      {.name = "ProbeInAGroupThatAVmHasIsEINVAL",
       .before = {kOverride, kUnbindHost, kBindVfio, kUnbindAudio},
       .held = "{gpu}",
       .write = {"sys/bus/pci/drivers_probe", "{audio}"},
       .error = EINVAL,
       .after = {{Kind::absent, kAudio + "/driver"}},
       .restore = {kBindAudio, kClear, kUnbindVfio, kBindHost}},
      {.name = "TheUnbindLockReadsBackAndMovesNothing",
       .write = kLockIt,
       .after = {{Kind::reads, kLock, "1"}, {Kind::link_to, "sys/bus/pci/devices/{vgpu}/driver", "nvidia"}},
       .restore = {{kLock, "0"}}},
      {.name = "TheUnbindLockIsGivenBack",
       .before = {kLockIt},
       .write = {kLock, "0"},
       .after = {{Kind::reads, kLock, "0"}}},
      {.name = "TheUnbindLockGoesWithTheBinding",
       .before = {kLockIt},
       .write = {"sys/bus/pci/drivers/nvidia/unbind", "{vgpu}"},
       .after = {{Kind::absent, kLock}},
       .restore = {{"sys/bus/pci/drivers/nvidia/bind", "{vgpu}"}}},
      {.name = "TheUnbindLockIsNotHeldAfterTheNextBind",
       .before = {kLockIt, {"sys/bus/pci/drivers/nvidia/unbind", "{vgpu}"}},
       .write = {"sys/bus/pci/drivers/nvidia/bind", "{vgpu}"},
       .after = {{Kind::reads, kLock, "0"}}},
      {.name = "ProbeOfNoDeviceIsENODEV",
       .write = {"sys/bus/pci/drivers_probe", "ffff:ff:1f.7"},
       .error = ENODEV},
  };
}

std::unique_ptr<FakeKernel> fake_machine(std::map<std::string, std::string>& names) {
  auto kernel = std::make_unique<FakeKernel>();
  kernel->add_driver({.name = "bochs-drm", .ids = {"10de:2684"}});
  kernel->add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
  kernel->add_driver({.name = "vfio-pci", .vfio = true});
  kernel->add_function({.address = "0000:01:00.0", .group = 11, .driver = "bochs-drm"});
  kernel->add_function(test::kinds::kAudio, "0000:01:00.1", 11, "snd_hda_intel");
  kernel->add_driver({.name = "nvidia", .ids = {"10de:1eb8"}, .unbind_lock = true});
  kernel->add_function(test::kinds::kTeslaT4, "0000:06:00.0", 15, "nvidia");
  kernel->add_driver({.name = "pcieport", .ids = {"class:0604"}});
  kernel->add_function({.address = "0000:00:02.0",
                        .ids = "1b36:000c",
                        .class_code = 0x060400,
                        .group = 2,
                        .driver = "pcieport",
                        .header_type = 1});
  names = {{"gpu", "0000:01:00.0"},   {"gpu_driver", "bochs-drm"},       {"group", "11"},
           {"audio", "0000:01:00.1"}, {"audio_driver", "snd_hda_intel"}, {"vgpu", "0000:06:00.0"},
           {"port", "0000:00:02.0"}};
  return kernel;
}

class KernelEffects : public testing::TestWithParam<KernelEffect> {};

TEST_P(KernelEffects, Holds) {
  if (test::check_on_real_machine(GetParam())) return;
  std::map<std::string, std::string> names;
  const auto kernel = fake_machine(names);
  const auto hold = [&](const std::string& /*address*/) {
    constexpr unsigned kGroup = 11;
    kernel->own_group(kGroup);
    return std::shared_ptr<void>(nullptr, [&](void*) { kernel->own_group(kGroup, false); });
  };
  check_effect({.host = kernel.get(), .writer = kernel.get(), .names = names, .hold = hold}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Binding, KernelEffects, testing::ValuesIn(effects()),
                         [](const auto& row) { return row.param.name; });

/// What a file system leaves of what is held open when it has been removed.
enum class Leaves {
  nothing,    ///< sysfs: no file can be read, and of a directory the list is empty
  its_files,  ///< any other: files can be read, and a directory not
};

// Checks the links that kubevirt-plugin/discovery/sysfs_check.h reads. `address` is alone in its IOMMU group.
void check_going(HostFs& host, const std::string& address, const std::function<void()>& go_and_come,
                 Leaves leaves) {
  const auto function = HostDirectory::open(host, "sys/bus/pci/devices/" + address);
  ASSERT_TRUE(function) << function.error().message;
  EXPECT_TRUE(function->link_name("driver"));
  const auto number = function->link_name("iommu_group");
  ASSERT_TRUE(number) << number.error().message;
  const std::string members = "sys/kernel/iommu_groups/" + *number + "/devices";
  const auto group = HostDirectory::open(host, members);
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_THAT(group->list(".").value_or(std::vector<std::string>{}), testing::ElementsAre(address));
  const auto config = function->open("config", O_RDONLY);
  ASSERT_TRUE(config) << config.error().message;

  go_and_come();
  ASSERT_TRUE(host.link_name("sys/bus/pci/devices/" + address + "/iommu_group")) << "it has not come again";
  EXPECT_TRUE(host.link_name("sys/bus/pci/devices/" + address + "/driver")) << "as it was";
  EXPECT_FALSE(function->link_name("iommu_group"));
  EXPECT_FALSE(function->link_name("driver"));
  EXPECT_FALSE(function->open("config", O_RDONLY));
  char byte = 0;
  const auto listed = group->list(".");
  if (leaves == Leaves::nothing) {
    ASSERT_TRUE(listed) << listed.error().message;
    EXPECT_THAT(*listed, testing::IsEmpty());
    EXPECT_EQ(::pread(config->get(), &byte, 1, 0), -1);
  } else {
    EXPECT_FALSE(listed);
    EXPECT_EQ(::pread(config->get(), &byte, 1, 0), 1);
  }
}

TEST(KernelEffect, ADirectoryOfAFunctionThatHasGoneShowsNothingOfTheNext) {
  std::map<std::string, std::string> names;
  if (test::real_machine(names)) {
    HostFs host("/");
    const std::string& address = names.at("vgpu");
    check_going(
        host, address,
        [&] {
          ASSERT_TRUE(host.write_attribute("sys/bus/pci/devices/" + address + "/remove", "1"));
          ASSERT_TRUE(host.write_attribute("sys/bus/pci/rescan", "1"));
        },
        Leaves::nothing);
    return;
  }
  FakeKernel kernel;
  kernel.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
  const test::FakeFunction function = {
      .address = "0000:06:00.0", .ids = "10de:1eb8", .group = 15, .driver = "nvidia"};
  kernel.add_function(function);
  check_going(
      kernel, function.address,
      [&] {
        kernel.remove_function(function.address);
        kernel.add_function(function);
      },
      Leaves::its_files);
}

// `leaf` is a module that nobody needs, `used` one that another module needs.
void check_unloading(const HostFs& host, HostWriter& writer, const std::string& leaf,
                     const std::string& used) {
  ASSERT_TRUE(writer.load_module(leaf));
  EXPECT_TRUE(host.exists("sys/module/" + leaf));
  EXPECT_TRUE(writer.unload_module(leaf));
  EXPECT_FALSE(host.exists("sys/module/" + leaf));
  EXPECT_TRUE(writer.unload_module(leaf)) << "it is not loaded";
  const auto kept = writer.unload_module(used);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code, std::errc::resource_unavailable_try_again);
  EXPECT_TRUE(host.exists("sys/module/" + used));
}

TEST(ModuleEffects, UnloadingTakesAModuleThatNobodyNeeds) {
  std::map<std::string, std::string> names;
  if (test::real_machine(names)) {
    HostFs host("/");
    SpawningWriter writer(host);
    check_unloading(host, writer, "dummy", "vfio");
    return;
  }
  FakeKernel kernel;
  kernel.add_plain_module("dummy", {});
  kernel.add_plain_module("vfio", {});
  kernel.directory("sys/module/vfio/holders/vfio_pci");
  check_unloading(kernel, kernel, "dummy", "vfio");
}

const bool kSanitizes = [] {
  test::child_libraries().push_back({.name = kSanitizeLibrary, .answer = answer_sanitize_call});
  return true;
}();

/// Functions, each with its own driver, that are on vfio-pci until destruction.
class OnVfio {
 public:
  OnVfio(HostFs& host, std::map<std::string, std::string> functions)
      : host_(host), functions_(std::move(functions)) {
    for (const auto& [address, driver] : functions_) {
      const std::string function = "sys/bus/pci/devices/" + address;
      EXPECT_TRUE(host_.write_attribute(function + "/driver/unbind", address));
      EXPECT_TRUE(host_.write_attribute(function + "/driver_override", "vfio-pci"));
      EXPECT_TRUE(host_.write_attribute("sys/bus/pci/drivers/vfio-pci/bind", address));
    }
  }
  OnVfio(const OnVfio&) = delete;
  OnVfio& operator=(const OnVfio&) = delete;
  ~OnVfio() {
    for (const auto& [address, driver] : functions_) {
      const std::string function = "sys/bus/pci/devices/" + address;
      EXPECT_EQ(host_.link_name(function + "/driver").value_or("none"), "vfio-pci") << "it has stayed bound";
      EXPECT_TRUE(host_.write_attribute(function + "/driver/unbind", address));
      EXPECT_TRUE(host_.write_attribute(function + "/driver_override", "\n"));
      EXPECT_TRUE(host_.write_attribute("sys/bus/pci/drivers/" + driver + "/bind", address));
    }
  }

 private:
  HostFs& host_;
  std::map<std::string, std::string> functions_;
};

// On the real kernel alone: the fake one has no calls of VFIO.
TEST(ResetOnTheRealKernel, IsAHotResetThroughTheGroup) {
  std::map<std::string, std::string> names;
  if (!test::real_machine(names)) GTEST_SKIP();
  HostFs host("/");
  SpawningWriter writer(host);
  const auto gpu = PciAddress::parse(names.at("gpu"));
  ASSERT_TRUE(gpu);
  const std::pair<const std::string, std::string> gpu_driver = {names.at("gpu"), names.at("gpu_driver")};
  {
    const OnVfio both(host, {gpu_driver, {names.at("audio"), names.at("audio_driver")}});
    const Sanitizing reset = sanitize(writer, host, *gpu);
    EXPECT_EQ(reset.problem, "");
    EXPECT_EQ(reset.method, kHotReset);
    EXPECT_EQ(reset.unproven, "the registers of this GPU are not known");
    const auto vm = host.open("dev/vfio/" + names.at("group"), O_RDWR);
    ASSERT_TRUE(vm) << "the group is free after a reset";
    const Sanitizing refused = sanitize(writer, host, *gpu);
    EXPECT_TRUE(refused.in_use);
    EXPECT_EQ(refused.method, "");
    EXPECT_EQ(refused.problem, "");
  }
  // With a host driver in its group there is no hot reset, and the method "bus" would reset the other
  // function.
  const OnVfio alone(host, {gpu_driver});
  const Sanitizing none = sanitize(writer, host, *gpu);
  EXPECT_EQ(none.method, "");
  EXPECT_FALSE(none.in_use);
  EXPECT_EQ(none.problem, "reset " + names.at("gpu") + ": none of the kernel's methods (bus) can reset it");
}

/// No hot reset is possible. In a container that may not open the nodes of groups, none can be held either.
class NoHotReset final : public GroupCalls {
 public:
  bool holds = true;
  Result<> hold(std::uint32_t /*group*/) override {
    if (!holds) return fail(error_from_errno(EPERM, "hold"));
    return {};
  }
  Result<std::vector<TouchedFunction>> open_and_list(const PciAddress& /*function*/,
                                                     std::uint32_t /*group*/) override {
    return fail(error_from_errno(EPERM, "open"));
  }
  Result<> hot_reset() override { return fail(error_from_errno(EPERM, "reset")); }
  void close_function() override {}
};

// A GPU alone on its bus.
TEST(ResetOnTheRealKernel, IsTheKernelsOwnWhereNoHotResetIsPossible) {
  std::map<std::string, std::string> names;
  if (!test::real_machine(names)) GTEST_SKIP();
  HostFs host("/");
  const auto gpu = PciAddress::parse(names.at("vgpu"));
  ASSERT_TRUE(gpu);
  const OnVfio bound(host, {{names.at("vgpu"), "nvidia"}});
  NoHotReset groups;
  const Sanitizing reset = reset_function(host, *gpu, groups);
  EXPECT_EQ(reset.problem, "");
  EXPECT_EQ(reset.method, "bus");
  groups.holds = false;
  EXPECT_EQ(reset_function(host, *gpu, groups).method, "");
}

}  // namespace
}  // namespace ferry::vfio
