// SPDX-License-Identifier: Apache-2.0
#include <ostream>

#include <gmock/gmock.h>

#include "host/usage/use_probes.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using test::must;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kGpu = "0000:01:00.0";                           // group 15, vfio0
constexpr const char* kAudio = "0000:01:00.1";                         // group 15, on the host's driver
constexpr const char* kOther = "0000:02:00.0";                         // group 16, vfio1
constexpr const char* kVf = "0000:41:00.5";                            // group 305, no vfio driver
constexpr const char* kLone = "0000:b5:00.0";                          // no group
constexpr const char* kUuid = "3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11";  // group 211

vfio::PodDevice given(const std::string& resource, const std::vector<std::string>& ids) {
  return {.name_space = "tenant",
          .pod = "vm-1",
          .container = "compute",
          .resource = resource,
          .ids = ids,
          .numa_nodes = {}};
}

class PodUseProbeTest : public testing::Test {
 protected:
  PodUseProbeTest() {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_driver({.name = "snd_hda_intel"});
    kernel_.add_driver({.name = "nvidia"});
    kernel_.add_function({.address = kGpu, .group = 15, .driver = "vfio-pci"});
    kernel_.add_function({.address = kAudio, .ids = "10de:22ba", .group = 15, .driver = "snd_hda_intel"});
    kernel_.add_function({.address = kOther, .group = 16, .driver = "vfio-pci"});
    kernel_.add_function({.address = "0000:41:00.0", .group = 300, .driver = "nvidia"});
    kernel_.add_function(
        {.address = kVf, .group = 305, .driver = "nvidia", .physical_function = "0000:41:00.0"});
    kernel_.add_function({.address = kLone});
    kernel_.link(std::string("sys/bus/mdev/devices/") + kUuid + "/iommu_group",
                 "../../../../kernel/iommu_groups/211");
    for (const char* group : {"15", "16", "211"}) kernel_.directory(std::string("sys/class/vfio/") + group);
  }

  vfio::UseReport look(Result<std::vector<vfio::PodDevice>> list) {
    std::vector<vfio::UseQuestion> questions;
    for (const char* device : {kGpu, kAudio, kOther, "0000:41:00.0", kVf, kLone, kUuid})
      questions.push_back({.device = device, .nodes = {}});
    return must(pod_users(
        kernel_, [&] { return list; }, KubeletSilence::noted, questions));
  }
  /// The devices that somebody holds.
  std::vector<std::string> held(const std::vector<vfio::PodDevice>& list) {
    std::vector<std::string> out;
    for (const auto& [device, users] : look(list).users) out.push_back(device);
    return out;
  }

  test::FakeKernel kernel_;
};

struct Mapping {
  std::string name;
  std::string resource;
  std::vector<std::string> ids;
  std::vector<std::string> held;
};
void PrintTo(const Mapping& row, std::ostream* out) {
  *out << row.name;
}

class PodUseProbeMapping : public PodUseProbeTest, public testing::WithParamInterface<Mapping> {};

TEST_P(PodUseProbeMapping, HoldsWhatTheIdsStandFor) {
  EXPECT_THAT(held({given(GetParam().resource, GetParam().ids)}),
              testing::UnorderedElementsAreArray(GetParam().held));
}

INSTANTIATE_TEST_SUITE_P(
    Table, PodUseProbeMapping,
    testing::Values(
        Mapping{"AddressWithItsGroup", "nvidia.com/X", {kGpu}, {kGpu, kAudio}},
        Mapping{"AddressOfACompanion", "nvidia.com/X_AUDIO", {kAudio}, {kGpu, kAudio}},
        Mapping{"AddressOfAnotherVendorsResource", "example.com/x", {kOther}, {kOther}},
        Mapping{"AddressInUpperCase", "nvidia.com/X", {"0000:B5:00.0"}, {kLone}},
        Mapping{"AddressOfAVirtualFunction", "nvidia.com/NVIDIA_L40S-8Q", {kVf}, {kVf}},
        Mapping{"AddressOutsideAllGroups", "nvidia.com/X", {kLone}, {kLone}},
        Mapping{"AddressThatIsNotHere", "nvidia.com/X", {"0000:99:00.0"}, {}},
        Mapping{"Uuid", "nvidia.com/GRID_T4-4Q", {kUuid}, {kUuid}},
        Mapping{"UuidInUpperCase", "nvidia.com/X", {"3F0C2F4E-5F0B-4A57-9D0A-2F1F3F5A7C11"}, {kUuid}},
        Mapping{"SeveralIds", "nvidia.com/X", {kOther, kUuid}, {kOther, kUuid}},
        Mapping{"NvidiasGroup", "nvidia.com/pgpu", {"15"}, {kGpu, kAudio}},
        Mapping{"NvidiasGroupOfAnMdev", "nvidia.com/X", {"211"}, {kUuid}},
        Mapping{"NvidiasGroupThatVfioHasNot", "nvidia.com/pgpu", {"305"}, {kVf}},
        Mapping{"NvidiasVfioDevice", "nvidia.com/pgpu", {"0"}, {kGpu, kAudio}},
        Mapping{"NvidiasNumbersAndOthers", "nvidia.com/pgpu", {"1", "77"}, {kOther}},
        Mapping{"KubevirtsGroupUnderAnyName", "gpus.example.com/big", {"15", "211"}, {kGpu, kAudio, kUuid}},
        Mapping{"NumbersOfWhichOneIsNoVfioGroup", "rdma.example.com/hca", {"15", "77"}, {}},
        Mapping{"AGroupThatVfioHasNotOfSomebodyElse", "rdma.example.com/hca", {"305"}, {}},
        Mapping{"VfioDeviceOfSomebodyElse", "rdma.example.com/hca", {"0"}, {}},
        Mapping{"PlaceOfACompanion", "nvidia.com/X_AUDIO", {"place-0000:01:00.1"}, {}},
        Mapping{"NumberTooLarge", "nvidia.com/pgpu", {"4294967311"}, {}},
        Mapping{"ContainersGpu", "nvidia.com/gpu", {"GPU-8f6d2b1e-0d5c-4b8e-9a57-2f6f5f1f7a10"}, {}},
        Mapping{"Names", "devices.example.com/iommufd", {"iommufd15", "kvm0", "", "15 ", "-15"}, {}},
        Mapping{"ShortAddress", "example.com/x", {"01:00.0"}, {}}),
    [](const auto& row) { return row.param.name; });

TEST_F(PodUseProbeTest, ANumberElsewhereTellsThatAResourceDoesNotCountGroups) {
  auto other_pod = given("rdma.example.com/hca", {"77"});
  other_pod.pod = "vm-2";
  EXPECT_THAT(held({given("rdma.example.com/hca", {"15"}), other_pod}), IsEmpty());
  EXPECT_THAT(held({other_pod, given("rdma.example.com/hca", {"15"})}), IsEmpty());
}

TEST_F(PodUseProbeTest, NamesThePodAndWhatItWasGiven) {
  const vfio::UseReport report = look(std::vector{given("nvidia.com/X", {kOther})});
  ASSERT_EQ(report.of(kOther).size(), 1U);
  const vfio::DeviceUser& user = report.of(kOther)[0];
  EXPECT_EQ(user.kind, vfio::DeviceUser::Kind::pod);
  EXPECT_EQ(user.text(), "pod tenant/vm-1 holds nvidia.com/X (allocated by the kubelet)");
  EXPECT_EQ(user.remedy(), "delete the pod first");
  EXPECT_THAT(report.unknown, IsEmpty());
}

TEST_F(PodUseProbeTest, TellsAPodOnceForEachResource) {
  auto init = given("nvidia.com/X", {kGpu});
  init.container = "init";
  auto other_pod = given("nvidia.com/X", {kGpu});
  other_pod.pod = "vm-2";
  const auto report = look(
      std::vector{init, given("nvidia.com/X", {kGpu}), given("nvidia.com/X_AUDIO", {kAudio}), other_pod});
  std::vector<std::string> reported;
  for (const vfio::DeviceUser& user : report.of(kGpu)) reported.push_back(user.text());
  EXPECT_THAT(reported, ElementsAre("pod tenant/vm-1 holds nvidia.com/X (allocated by the kubelet)",
                                    "pod tenant/vm-1 holds nvidia.com/X_AUDIO (allocated by the kubelet)",
                                    "pod tenant/vm-2 holds nvidia.com/X (allocated by the kubelet)"));
}

TEST_F(PodUseProbeTest, DoesNotKnowWhenTheKubeletCannotBeAsked) {
  const vfio::UseReport report = look(fail(Errc::unreachable, "/x/kubelet.sock: no answer in 2000 ms"));
  EXPECT_THAT(report.unknown, ElementsAre("pod resources: /x/kubelet.sock: no answer in 2000 ms"));
  EXPECT_THAT(report.users, IsEmpty());
  EXPECT_THAT(report.blind, IsEmpty());
}

TEST_F(PodUseProbeTest, IsBlindWhereAskedForWhenTheKubeletCannotBeAsked) {
  const std::vector<vfio::UseQuestion> questions = {{.device = kUuid, .nodes = {}}};
  const ListPodDevices silent = [] {
    return Result<std::vector<vfio::PodDevice>>(fail(Errc::unreachable, "no answer"));
  };
  EXPECT_EQ(must(pod_users(kernel_, silent, KubeletSilence::blinds, questions)).blind,
            "pod resources: no answer");
  const ListPodDevices none = [] {
    return Result<std::vector<vfio::PodDevice>>(std::vector<vfio::PodDevice>());
  };
  EXPECT_EQ(must(pod_users(kernel_, none, KubeletSilence::blinds, questions)).blind, "");
}

TEST_F(PodUseProbeTest, AsksNobodyAboutNothing) {
  bool asked = false;
  const ListPodDevices list = [&]() -> Result<std::vector<vfio::PodDevice>> {
    asked = true;
    return std::vector<vfio::PodDevice>{};
  };
  EXPECT_THAT(must(pod_users(kernel_, list, KubeletSilence::noted, {})).users, IsEmpty());
  EXPECT_FALSE(asked);
}

}  // namespace
}  // namespace ferry::host
