// SPDX-License-Identifier: Apache-2.0
// What the kernel and the driver answer to the writes that make virtual functions, and vGPUs on them.
// On the real kernel {mdev_vfs} and {vfio_vfs} are L40S with virtual functions, without vGPUs; {mdev_vf_a},
// {mdev_vf_b} and {vfio_vf_a}, {vfio_vf_b} are two of theirs. {sriov} can have four and has none, and the
// first would be {sriov_vf}; pci-pf-stub and vfio-pci are loaded.
#include <cerrno>
#include <memory>
#include <utility>

#include "tests/support/fake_mdev.h"
#include "tests/support/fake_vendor_vfio.h"
#include "tests/support/kernel_effects.h"

namespace ferry::mdev {
namespace {

using test::EffectFact;
using test::EffectWrite;
using test::FakeKernel;
using test::FakeMdev;
using test::FakeVendorVfio;
using test::KernelEffect;
using Kind = EffectFact::Kind;

const std::string kDevices = "sys/bus/pci/devices/";
const std::string kA = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
const std::string kB = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a11";
const std::string kHeader = "ID    : vGPU Name";

// Mediated devices on virtual functions.

std::string type_folder(const std::string& vf, const std::string& type) {
  return kDevices + "{mdev_vf_" + vf + "}/mdev_supported_types/nvidia-" + type;
}
std::string available(const std::string& vf, const std::string& type) {
  return type_folder(vf, type) + "/available_instances";
}
EffectWrite create(const std::string& vf, const std::string& type, const std::string& uuid) {
  return {type_folder(vf, type) + "/create", uuid};
}
EffectWrite remove(const std::string& vf, const std::string& uuid) {
  return {kDevices + "{mdev_vf_" + vf + "}/" + uuid + "/remove", "1"};
}

EffectWrite move(const std::string& vf, const std::string& uuid, const std::string& placement) {
  return {kDevices + "{mdev_vf_" + vf + "}/" + uuid + "/nvidia/placement_id", placement};
}
EffectFact at_place(const std::string& vf, const std::string& uuid, const std::string& placement) {
  return {Kind::reads, kDevices + "{mdev_vf_" + vf + "}/" + uuid + "/nvidia/placement_id", placement};
}

std::vector<KernelEffect> mdev_effects() {
  return {
      {.name = "EachOffersOneOfAnyType",
       .write = remove("a", kA),
       .error = ENOENT,
       .after = {{Kind::reads, available("a", "1147"), "1"},
                 {Kind::reads, available("b", "1153"), "1"},
                 {Kind::reads, type_folder("a", "1153") + "/name", "NVIDIA L40S-12Q"},
                 {Kind::link_to, kDevices + "{mdev_vf_a}/physfn", "{mdev_vfs}"},
                 {Kind::present, "sys/class/mdev_bus/{mdev_vf_b}"}}},
      {.name = "TheGpuItselfOffersNone",
       .write = {kDevices + "{mdev_vfs}/mdev_supported_types/nvidia-1153/create", kA},
       .error = ENOENT,
       .after = {{Kind::absent, kDevices + "{mdev_vfs}/mdev_supported_types"},
                 {Kind::absent, "sys/class/mdev_bus/{mdev_vfs}"}}},
      {.name = "OneFillsItsFunctionAndHidesOtherSizesOnAll",
       .write = create("a", "1153", kA),
       .after = {{Kind::link_to, kDevices + "{mdev_vf_a}/" + kA + "/mdev_type", "nvidia-1153"},
                 {Kind::link_to, kDevices + "{mdev_vf_a}/" + kA + "/driver", "nvidia-vgpu-vfio"},
                 {Kind::present, kDevices + "{mdev_vf_a}/" + kA + "/iommu_group"},
                 {Kind::reads, available("a", "1153"), "0"},
                 {Kind::reads, available("a", "1147"), "0"},
                 {Kind::reads, available("b", "1153"), "1"},
                 {Kind::reads, available("b", "1182"), "1"},
                 {Kind::reads, available("b", "1147"), "0"}},
       .restore = {remove("a", kA)}},
      {.name = "ASecondOnItsFunctionIsEINVAL",
       .before = {create("a", "1153", kA)},
       .write = create("a", "1153", kB),
       .error = EINVAL,
       .after = {{Kind::absent, "sys/bus/mdev/devices/" + kB}},
       .restore = {remove("a", kA)}},
      {.name = "AnotherSizeOnAnotherFunctionIsEINVAL",
       .before = {create("a", "1153", kA)},
       .write = create("b", "1147", kB),
       .error = EINVAL,
       .after = {{Kind::absent, "sys/bus/mdev/devices/" + kB}},
       .restore = {remove("a", kA)}},
      {.name = "MoreThanTheGpuHoldsIsEINVAL",
       .before = {create("a", "1156", kA)},
       .write = create("b", "1156", kB),
       .error = EINVAL,
       .after = {{Kind::reads, available("b", "1156"), "0"}},
       .restore = {remove("a", kA)}},
      {.name = "AUuidOfAnotherFunctionIsEEXIST",
       .before = {create("a", "1153", kA)},
       .write = create("b", "1153", kA),
       .error = EEXIST,
       .after = {{Kind::reads, available("b", "1153"), "1"}},
       .restore = {remove("a", kA)}},
      {.name = "RemoveGivesTheRoomBackToAll",
       .before = {create("a", "1153", kA)},
       .write = remove("a", kA),
       .after = {{Kind::absent, "sys/bus/mdev/devices/" + kA},
                 {Kind::reads, available("a", "1156"), "1"},
                 {Kind::reads, available("b", "1147"), "1"}}},
      {.name = "TheFirstFreePlaceIsGiven",
       .before = {create("a", "1153", kA)},
       .write = create("b", "1153", kB),
       .after = {at_place("a", kA, "0"), at_place("b", kB, "1")},
       .restore = {remove("a", kA), remove("b", kB)}},
      {.name = "AnotherFreePlaceIsTaken",
       .before = {create("a", "1153", kA)},
       .write = move("a", kA, "3"),
       .after = {at_place("a", kA, "3")},
       .restore = {remove("a", kA)}},
      {.name = "ThePlaceOfAnotherIsEINVAL",
       .before = {create("a", "1153", kA), create("b", "1153", kB)},
       .write = move("b", kB, "0"),
       .error = EINVAL,
       .after = {at_place("a", kA, "0"), at_place("b", kB, "1")},
       .restore = {remove("a", kA), remove("b", kB)}},
      {.name = "APlaceBehindTheLastIsEINVAL",
       .before = {create("a", "1153", kA)},
       .write = move("a", kA, "4"),
       .error = EINVAL,
       .after = {at_place("a", kA, "0")},
       .restore = {remove("a", kA)}},
  };
}

// Vendor-specific VFIO.

std::string file_of(const std::string& vf, const std::string& name) {
  return kDevices + "{vfio_vf_" + vf + "}/nvidia/" + name;
}
EffectWrite set(const std::string& vf, const std::string& type) {
  return {file_of(vf, "current_vgpu_type"), type};
}
EffectFact carries(const std::string& vf, const std::string& type) {
  return {Kind::reads, file_of(vf, "current_vgpu_type"), type};
}
EffectFact lists(const std::string& vf, const std::string& types) {
  return {Kind::reads, file_of(vf, "creatable_vgpu_types"), kHeader + types};
}

EffectWrite place(const std::string& vf, const std::string& placement) {
  return {file_of(vf, "placement_id"), placement};
}
EffectFact places(const std::string& vf, const std::string& placement) {
  return {Kind::reads, file_of(vf, "placement_id"), placement};
}

std::vector<KernelEffect> vendor_effects() {
  return {
      {.name = "TheGpuItselfHasNoFolder",
       .write = {kDevices + "{vfio_vfs}/nvidia/current_vgpu_type", "1153"},
       .error = ENOENT,
       .after = {{Kind::absent, kDevices + "{vfio_vfs}/nvidia"},
                 {Kind::present, kDevices + "{vfio_vf_a}/vfio-dev"},
                 {Kind::link_to, kDevices + "{vfio_vf_a}/driver", "nvidia"},
                 {Kind::absent, kDevices + "{vfio_vf_a}/mdev_supported_types"}}},
      {.name = "AnIdMakesAVgpuAndShrinksTheLists",
       .write = set("a", "1153"),
       .after = {carries("a", "1153"), lists("a", ""), carries("b", "0"),
                 lists("b", "\n1153  : NVIDIA L40S-12Q\n1182  : NVIDIA L40S-12C")},
       .restore = {set("a", "0")}},
      {.name = "AnotherSeriesOfTheSameSizeFitsBeside",
       .before = {set("a", "1153")},
       .write = set("b", "1182"),
       .after = {carries("a", "1153"), carries("b", "1182")},
       .restore = {set("a", "0"), set("b", "0")}},
      {.name = "AnotherSizeIsEIOAndReadsZero",
       .before = {set("a", "1153")},
       .write = set("b", "1152"),
       .error = EIO,
       .after = {carries("b", "0"), carries("a", "1153")},
       .restore = {set("a", "0")}},
      {.name = "MoreThanTheGpuHoldsIsEIO",
       .before = {set("a", "1156")},
       .write = set("b", "1156"),
       .error = EIO,
       .after = {carries("b", "0"), lists("b", "")},
       .restore = {set("a", "0")}},
      {.name = "AnotherIdWithoutZeroBetweenIsEIO",
       .before = {set("a", "1153")},
       .write = set("a", "1182"),
       .error = EIO,
       .after = {carries("a", "1153")},
       .restore = {set("a", "0")}},
      {.name = "TheSameIdAgainIsEIO",
       .before = {set("a", "1153")},
       .write = set("a", "1153"),
       .error = EIO,
       .after = {carries("a", "1153")},
       .restore = {set("a", "0")}},
      {.name = "AnIdOfNoTypeIsEINVAL",
       .write = set("a", "9999"),
       .error = EINVAL,
       .after = {carries("a", "0")}},
      {.name = "ANameIsEINVAL", .write = set("a", "L40S-12Q"), .error = EINVAL, .after = {carries("a", "0")}},
      {.name = "ZeroEndsItAndGivesTheRoomBack",
       .before = {set("a", "1153")},
       .write = set("a", "0"),
       .after = {carries("a", "0")},
       .restore = {set("b", "1152"), set("b", "0")}},
      {.name = "TheFirstFreePlaceIsGiven",
       .before = {set("a", "1153")},
       .write = set("b", "1153"),
       .after = {places("a", "0"), places("b", "1")},
       .restore = {set("a", "0"), set("b", "0")}},
      {.name = "AnotherFreePlaceIsTaken",
       .before = {set("a", "1153")},
       .write = place("a", "3"),
       .after = {places("a", "3"), carries("a", "1153")},
       .restore = {set("a", "0")}},
      {.name = "ThePlaceOfAnotherIsEINVAL",
       .before = {set("a", "1153"), set("b", "1153")},
       .write = place("b", "0"),
       .error = EINVAL,
       .after = {places("a", "0"), places("b", "1")},
       .restore = {set("a", "0"), set("b", "0")}},
      {.name = "APlaceBehindTheLastIsEINVAL",
       .before = {set("a", "1153")},
       .write = place("a", "4"),
       .error = EINVAL,
       .after = {places("a", "0")},
       .restore = {set("a", "0")}},
      {.name = "WhileAVmHasItAnyIdIsEPERM",
       .before = {set("a", "1153")},
       .held = "{vfio_vf_a}",
       .write = set("a", "0"),
       .error = EPERM,
       .after = {carries("a", "1153")},
       .restore = {set("a", "0")}},
      {.name = "WhileAVmHasItParametersAreEPERM",
       .before = {set("a", "1153")},
       .held = "{vfio_vf_a}",
       .write = {file_of("a", "vgpu_params"), "frame_rate_limiter=0"},
       .error = EPERM,
       .after = {carries("a", "1153")},
       .restore = {set("a", "0")}},
      {.name = "AnotherFunctionsVmIsNoMatter",
       .before = {set("a", "1153")},
       .held = "{vfio_vf_a}",
       .write = set("b", "1182"),
       .after = {carries("b", "1182")},
       .restore = {set("a", "0"), set("b", "0")}},
      {.name = "ZeroWhereThereIsNoneDoesNothing", .write = set("a", "0"), .after = {carries("a", "0")}},
  };
}

// Virtual functions.

EffectWrite numvfs(const std::string& value) {
  return {kDevices + "{sriov}/sriov_numvfs", value};
}

EffectWrite autoprobe(const std::string& value) {
  return {kDevices + "{sriov}/sriov_drivers_autoprobe", value};
}

// A driver that makes virtual functions and leaves them behind: by the kernel's own simplest.
const std::string kLeaver = "sys/bus/pci/drivers/pci-pf-stub";
EffectWrite override_with(const std::string& driver) {
  return {kDevices + "{sriov}/driver_override", driver};
}
// {sriov} on that driver with two of them, and then on none.
std::vector<EffectWrite> unfinished() {
  return {override_with("pci-pf-stub"),
          {"sys/bus/pci/drivers/nvidia/unbind", "{sriov}"},
          {kLeaver + "/bind", "{sriov}"},
          numvfs("2"),
          {kLeaver + "/unbind", "{sriov}"}};
}
std::vector<EffectWrite> taken_away() {
  return {override_with("pci-pf-stub"),
          {kLeaver + "/bind", "{sriov}"},
          numvfs("0"),
          override_with("\n"),
          {kLeaver + "/unbind", "{sriov}"},
          {"sys/bus/pci/drivers/nvidia/bind", "{sriov}"}};
}
std::vector<EffectWrite> left_behind_for_vfio() {
  auto out = unfinished();
  out.push_back(override_with("vfio-pci"));
  return out;
}

std::vector<KernelEffect> vf_effects() {
  return {
      {.name = "TheyComeWithTheDriver",
       .write = numvfs("4"),
       .after = {{Kind::reads, kDevices + "{sriov}/sriov_numvfs", "4"},
                 {Kind::present, kDevices + "{sriov}/virtfn3"},
                 {Kind::absent, kDevices + "{sriov}/virtfn4"},
                 {Kind::link_to, kDevices + "{sriov}/virtfn0/physfn", "{sriov}"},
                 {Kind::link_to, kDevices + "{sriov}/virtfn3/driver", "nvidia"},
                 {Kind::present, kDevices + "{sriov}/virtfn3/iommu_group"}},
       .restore = {numvfs("0")}},
      {.name = "FewerThanThereMayBe",
       .write = numvfs("1"),
       .after = {{Kind::reads, kDevices + "{sriov}/sriov_numvfs", "1"},
                 {Kind::absent, kDevices + "{sriov}/virtfn1"}},
       .restore = {numvfs("0")}},
      {.name = "WithoutProbesTheyHaveNoDriver",
       .before = {autoprobe("0")},
       .write = numvfs("1"),
       .after = {{Kind::present, kDevices + "{sriov}/virtfn0/iommu_group"},
                 {Kind::absent, kDevices + "{sriov}/virtfn0/driver"}},
       .restore = {numvfs("0"), autoprobe("1")}},
      {.name = "WithoutProbesABindIsENODEV",
       .before = {autoprobe("0"), numvfs("1")},
       .write = {"sys/bus/pci/drivers/nvidia/bind", "{sriov_vf}"},
       .error = ENODEV,
       .after = {{Kind::absent, kDevices + "{sriov}/virtfn0/driver"}},
       .restore = {numvfs("0"), autoprobe("1")}},
      {.name = "WithoutProbesAProbeBindsNone",
       .before = {autoprobe("0"), numvfs("1")},
       .write = {"sys/bus/pci/drivers_probe", "{sriov_vf}"},
       .after = {{Kind::absent, kDevices + "{sriov}/virtfn0/driver"}},
       .restore = {numvfs("0"), autoprobe("1")}},
      {.name = "WithoutProbesAnOverrideIsBound",
       .before = {autoprobe("0"), numvfs("1"), {kDevices + "{sriov_vf}/driver_override", "vfio-pci"}},
       .write = {"sys/bus/pci/drivers/vfio-pci/bind", "{sriov_vf}"},
       .after = {{Kind::link_to, kDevices + "{sriov}/virtfn0/driver", "vfio-pci"}},
       .restore = {numvfs("0"), autoprobe("1")}},
      {.name = "AnotherNumberIsEBUSY",
       .before = {numvfs("4")},
       .write = numvfs("2"),
       .error = EBUSY,
       .after = {{Kind::present, kDevices + "{sriov}/virtfn3"}},
       .restore = {numvfs("4"), numvfs("0")}},
      {.name = "ZeroTakesThem",
       .before = {numvfs("4")},
       .write = numvfs("0"),
       .after = {{Kind::reads, kDevices + "{sriov}/sriov_numvfs", "0"},
                 {Kind::absent, kDevices + "{sriov}/virtfn0"}}},
      {.name = "MoreThanThereMayBeIsERANGE", .write = numvfs("5"), .error = ERANGE},
      {.name = "AWordIsEINVAL", .write = numvfs("all"), .error = EINVAL},
      {.name = "WithoutADriverIsENOENT",
       .before = {{"sys/bus/pci/drivers/nvidia/unbind", "{sriov}"}},
       .write = numvfs("4"),
       .error = ENOENT,
       .after = {{Kind::absent, kDevices + "{sriov}/virtfn0"}},
       .restore = {{"sys/bus/pci/drivers/nvidia/bind", "{sriov}"}}},
      {.name = "TheyGoWithTheDriversBinding",
       .before = {numvfs("4")},
       .write = {"sys/bus/pci/drivers/nvidia/unbind", "{sriov}"},
       .after = {{Kind::reads, kDevices + "{sriov}/sriov_numvfs", "0"},
                 {Kind::absent, kDevices + "{sriov}/virtfn0"}},
       .restore = {{"sys/bus/pci/drivers/nvidia/bind", "{sriov}"}}},
      {.name = "SomeDriversLeaveThemBehind",
       .before = unfinished(),
       .write = override_with("pci-pf-stub"),
       .after = {{Kind::reads, kDevices + "{sriov}/sriov_numvfs", "2"},
                 {Kind::present, kDevices + "{sriov}/virtfn1"},
                 {Kind::absent, kDevices + "{sriov}/virtfn1/driver"},
                 {Kind::absent, kDevices + "{sriov}/driver"}},
       .restore = taken_away()},
      {.name = "LeftBehindNobodyTakesThemAway",
       .before = unfinished(),
       .write = numvfs("0"),
       .error = ENOENT,
       .after = {{Kind::present, kDevices + "{sriov}/virtfn1"}},
       .restore = taken_away()},
      {.name = "VfioRefusesAFunctionThatHasThem",
       .before = left_behind_for_vfio(),
       .write = {"sys/bus/pci/drivers/vfio-pci/bind", "{sriov}"},
       .error = EBUSY,
       .after = {{Kind::absent, kDevices + "{sriov}/driver"}, {Kind::present, kDevices + "{sriov}/virtfn1"}},
       .restore = taken_away()},
      {.name = "OnVfioThereCanBeNone",
       .before = {override_with("vfio-pci"),
                  {"sys/bus/pci/drivers/nvidia/unbind", "{sriov}"},
                  {"sys/bus/pci/drivers/vfio-pci/bind", "{sriov}"}},
       .write = numvfs("2"),
       .error = ENOENT,
       .after = {{Kind::absent, kDevices + "{sriov}/virtfn0"}},
       .restore = {override_with("\n"),
                   {"sys/bus/pci/drivers/vfio-pci/unbind", "{sriov}"},
                   {"sys/bus/pci/drivers/nvidia/bind", "{sriov}"}}},
  };
}

class VfEffects : public testing::TestWithParam<KernelEffect> {};

TEST_P(VfEffects, Holds) {
  if (test::check_on_real_machine(GetParam())) return;
  std::map<std::string, std::string> names;
  FakeKernel kernel;
  FakeMdev mdev(kernel);
  FakeVendorVfio vfio(kernel);
  kernel.add_driver({.name = "nvidia", .ids = {"10de:26b9"}, .sriov = true});
  kernel.add_driver({.name = "pci-pf-stub", .sriov = true, .leaves_vfs = true});
  kernel.add_driver({.name = "vfio-pci", .vfio = true});
  unsigned group = 10;
  for (const auto& [name, address] : std::vector<std::pair<std::string, std::string>>{
           {"mdev", "0000:17:00.0"}, {"vfio", "0000:65:00.0"}, {"sriov", "0000:98:00.0"}}) {
    kernel.add_function({.address = address,
                         .ids = "10de:26b9",
                         .class_code = 0x030200,
                         .group = group++,
                         .driver = "nvidia",
                         .totalvfs = name == "sriov" ? 4U : 16U});
    if (name == "mdev") mdev.add_vf_parents(address);
    if (name == "vfio") vfio.add_gpu(address);
    if (name == "sriov") {
      names[name] = address;
      kernel.enable_vfs(address, 1);
      names[name + "_vf"] = kernel.vfs_of(address)[0];  // the first one's address is always the same
      kernel.enable_vfs(address, 0);
      continue;
    }
    kernel.enable_vfs(address, 2);
    names[name + "_vfs"] = address;
    names[name + "_vf_a"] = kernel.vfs_of(address)[0];
    names[name + "_vf_b"] = kernel.vfs_of(address)[1];
  }
  const auto hold = [&](const std::string& address) {
    vfio.hold(address);
    return std::shared_ptr<void>(nullptr, [&vfio, address](void*) { vfio.hold(address, false); });
  };
  check_effect({.host = &kernel, .writer = &kernel, .names = names, .hold = hold}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Mdev, VfEffects, testing::ValuesIn(mdev_effects()),
                         [](const auto& row) { return row.param.name; });
INSTANTIATE_TEST_SUITE_P(VendorVfio, VfEffects, testing::ValuesIn(vendor_effects()),
                         [](const auto& row) { return row.param.name; });
INSTANTIATE_TEST_SUITE_P(Enabling, VfEffects, testing::ValuesIn(vf_effects()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ferry::mdev
