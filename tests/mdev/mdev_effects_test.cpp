// SPDX-License-Identifier: Apache-2.0
// What the kernel answers to the writes that making and removing mediated devices is made of.
// On the real kernel {vgpu} is a GPU that offers the types of t4_types() and carries no vGPU.
#include <cerrno>
#include <memory>

#include "tests/support/fake_mdev.h"
#include "tests/support/kernel_effects.h"

namespace ferry::mdev {
namespace {

using test::EffectFact;
using test::EffectWrite;
using test::FakeKernel;
using test::FakeMdev;
using test::KernelEffect;
using Kind = EffectFact::Kind;

const std::string kGpu = "sys/bus/pci/devices/{vgpu}";
const std::string kTypes = kGpu + "/mdev_supported_types";
const std::string kA = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
const std::string kB = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a11";
const std::string kC = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a12";

std::string available(const std::string& type) {
  return kTypes + "/" + type + "/available_instances";
}
EffectWrite create(const std::string& type, const std::string& uuid) {
  return {kTypes + "/" + type + "/create", uuid};
}
EffectWrite remove(const std::string& uuid, const std::string& value = "1") {
  return {kGpu + "/" + uuid + "/remove", value};
}

EffectWrite set_params(const std::string& uuid, const std::string& value) {
  return {kGpu + "/" + uuid + "/nvidia/vgpu_params", value};
}

std::vector<KernelEffect> effects() {
  return {
      {.name = "AnEmptyGpuOffersEachTypeToItsMaximum",
       .write = remove(kA),
       .error = ENOENT,
       .after = {{Kind::reads, available("nvidia-230"), "16"},
                 {Kind::reads, available("nvidia-231"), "8"},
                 {Kind::reads, available("nvidia-232"), "4"},
                 {Kind::reads, available("nvidia-234"), "1"},
                 {Kind::reads, kTypes + "/nvidia-232/name", "GRID T4-4Q"},
                 {Kind::reads, kTypes + "/nvidia-232/device_api", "vfio-pci"}}},
      {.name = "CreateMakesADeviceWithTypeDriverAndGroup",
       .write = create("nvidia-232", kA),
       .after = {{Kind::present, "sys/bus/mdev/devices/" + kA},
                 {Kind::link_to, kGpu + "/" + kA + "/mdev_type", "nvidia-232"},
                 {Kind::link_to, kGpu + "/" + kA + "/driver", "nvidia-vgpu-vfio"},
                 {Kind::present, kGpu + "/" + kA + "/iommu_group"},
                 {Kind::present, kGpu + "/" + kA + "/vfio-dev"},
                 {Kind::present, kTypes + "/nvidia-232/devices/" + kA}},
       .restore = {remove(kA)}},
      {.name = "CreateLowersWhatIsAvailableOfTheSizeAndHidesTheOthers",
       .write = create("nvidia-232", kA),
       .after = {{Kind::reads, available("nvidia-232"), "3"},
                 {Kind::reads, available("nvidia-319"), "3"},
                 {Kind::reads, available("nvidia-230"), "0"},
                 {Kind::reads, available("nvidia-233"), "0"}},
       .restore = {remove(kA)}},
      {.name = "AnotherSeriesOfTheSameSizeFits",
       .before = {create("nvidia-232", kA)},
       .write = create("nvidia-319", kB),
       .after = {{Kind::reads, available("nvidia-232"), "2"}, {Kind::present, kGpu + "/" + kB}},
       .restore = {remove(kB), remove(kA)}},
      {.name = "AnotherSizeIsEINVAL",
       .before = {create("nvidia-232", kA)},
       .write = create("nvidia-233", kB),
       .error = EINVAL,
       .after = {{Kind::absent, "sys/bus/mdev/devices/" + kB}, {Kind::reads, available("nvidia-232"), "3"}},
       .restore = {remove(kA)}},
      {.name = "OneMoreThanFitIsEINVAL",
       .before = {create("nvidia-233", kA), create("nvidia-320", kB)},
       .write = create("nvidia-233", kC),
       .error = EINVAL,
       .after = {{Kind::absent, "sys/bus/mdev/devices/" + kC}, {Kind::reads, available("nvidia-233"), "0"}},
       .restore = {remove(kA), remove(kB)}},
      {.name = "AUuidInUseIsEEXIST",
       .before = {create("nvidia-232", kA)},
       .write = create("nvidia-232", kA),
       .error = EEXIST,
       .after = {{Kind::reads, available("nvidia-232"), "3"}},
       .restore = {remove(kA)}},
      {.name = "ATrailingNewlineIsTaken",
       .write = create("nvidia-232", kA + "\n"),
       .after = {{Kind::present, "sys/bus/mdev/devices/" + kA}},
       .restore = {remove(kA)}},
      {.name = "UpperCaseBecomesLowerCase",
       .write = create("nvidia-232", "5B6C0F0E-3B1D-4F0E-9A57-2F6F5F1F7A10"),
       .after = {{Kind::present, "sys/bus/mdev/devices/" + kA}},
       .restore = {remove(kA)}},
      {.name = "AShortUuidIsEINVAL", .write = create("nvidia-232", kA.substr(0, 35)), .error = EINVAL},
      {.name = "TextThatIsNoUuidIsEINVAL",
       .write = create("nvidia-232", "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a1g"),
       .error = EINVAL},
      {.name = "ATypeThatIsNotOfferedIsENOENT", .write = create("nvidia-9999", kA), .error = ENOENT},
      {.name = "RemoveGivesTheRoomBackToAllSizes",
       .before = {create("nvidia-232", kA)},
       .write = remove(kA),
       .after = {{Kind::absent, "sys/bus/mdev/devices/" + kA},
                 {Kind::absent, kGpu + "/" + kA},
                 {Kind::reads, available("nvidia-232"), "4"},
                 {Kind::reads, available("nvidia-230"), "16"}}},
      {.name = "RemoveOfOneOfTwoKeepsTheSize",
       .before = {create("nvidia-232", kA), create("nvidia-232", kB)},
       .write = remove(kA),
       .after = {{Kind::reads, available("nvidia-232"), "3"},
                 {Kind::reads, available("nvidia-230"), "0"},
                 {Kind::present, kGpu + "/" + kB}},
       .restore = {remove(kB)}},
      {.name = "RemoveWithZeroDoesNothing",
       .before = {create("nvidia-232", kA)},
       .write = remove(kA, "0"),
       .after = {{Kind::present, "sys/bus/mdev/devices/" + kA}},
       .restore = {remove(kA)}},
      {.name = "RemoveWithAWordIsEINVAL",
       .before = {create("nvidia-232", kA)},
       .write = remove(kA, "yes"),
       .error = EINVAL,
       .after = {{Kind::present, "sys/bus/mdev/devices/" + kA}},
       .restore = {remove(kA)}},
      {.name = "ANewDeviceHasNoParametersAndTakesSome",
       .before = {create("nvidia-232", kA)},
       .write = set_params(kA, "frame_rate_limiter=0,disable_vnc=1"),
       .after = {{Kind::reads, kGpu + "/" + kA + "/nvidia/vgpu_params",
                  "frame_rate_limiter=0,disable_vnc=1"}},
       .restore = {remove(kA)}},
      {.name = "ABoardWithoutPlacesTellsNone",
       .before = {create("nvidia-232", kA)},
       .write = {kGpu + "/" + kA + "/nvidia/placement_id", "0"},
       .error = ENXIO,
       .restore = {remove(kA)}},
      {.name = "AWriteReplacesAllParameters",
       .before = {create("nvidia-232", kA), set_params(kA, "a=1,b=2")},
       .write = set_params(kA, "c=3"),
       .after = {{Kind::reads, kGpu + "/" + kA + "/nvidia/vgpu_params", "c=3"}},
       .restore = {remove(kA)}},
      {.name = "ABlankTakesAllParametersAway",
       .before = {create("nvidia-232", kA), set_params(kA, "a=1")},
       .write = set_params(kA, " "),
       .after = {{Kind::reads, kGpu + "/" + kA + "/nvidia/vgpu_params", ""}},
       .restore = {remove(kA)}},
      {.name = "ARemovedUuidCanBeUsedAgain",
       .before = {create("nvidia-232", kA), remove(kA)},
       .write = create("nvidia-230", kA),
       .after = {{Kind::link_to, kGpu + "/" + kA + "/mdev_type", "nvidia-230"}},
       .restore = {remove(kA)}},
  };
}

class MdevEffects : public testing::TestWithParam<KernelEffect> {};

TEST_P(MdevEffects, Holds) {
  if (test::check_on_real_machine(GetParam())) return;
  FakeKernel kernel;
  FakeMdev mdev(kernel);
  kernel.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
  kernel.add_function(
      {.address = "0000:05:00.0", .ids = "10de:1eb8", .class_code = 0x030200, .driver = "nvidia"});
  mdev.add_parent("0000:05:00.0");
  check_effect({.host = &kernel, .writer = &kernel, .names = {{"vgpu", "0000:05:00.0"}}}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Creating, MdevEffects, testing::ValuesIn(effects()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ferry::mdev
