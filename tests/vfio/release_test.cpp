// SPDX-License-Identifier: Apache-2.0
// Which names a release list may have, and what they stand for.
#include "vfio/quiesce/release.h"

#include <ostream>

#include <gmock/gmock.h>

namespace ferry::vfio {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST(ReleaseList, IsPersistencedUnlessMoreIsNamed) {
  EXPECT_THAT(release_list({}).value(), ElementsAre("nvidia-persistenced.service"));
  EXPECT_THAT(release_list({"nvidia-dcgm", "a@1.service"}).value(),
              UnorderedElementsAre("nvidia-persistenced.service", "nvidia-dcgm.service", "a@1.service"));
}

TEST(ReleaseList, IsEmptiedByNone) {
  EXPECT_THAT(release_list({"none"}).value(), IsEmpty());
  EXPECT_THAT(release_list({"nvidia-dcgm", "none"}).value(), ElementsAre("nvidia-dcgm.service"));
}

TEST(ReleaseList, KnowsTheServicesOfDcgmsProgram) {
  EXPECT_THAT(services_named("nv-hostengine").value(), ElementsAre("nvidia-dcgm.service", "dcgm.service"));
}

TEST(ReleaseList, KnowsNvidiasConsoleByBothSpellings) {
  for (const char* name : {"nvidia_drm", "nvidia-drm"})
    EXPECT_THAT(release_list({"none", name}).value(), ElementsAre("nvidia_drm"));
}

class NeverReleased : public testing::TestWithParam<const char*> {};

TEST_P(NeverReleased, IsAUsageErrorThatSaysWhy) {
  for (const std::string& name : {std::string(GetParam()), GetParam() + std::string(".service")}) {
    const auto list = release_list({name});
    ASSERT_FALSE(list) << name;
    EXPECT_EQ(list.error().code, Errc::usage);
    EXPECT_THAT(list.error().message, HasSubstr("it runs VMs or containers"));
    EXPECT_FALSE(list.error().hint.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Names, NeverReleased,
                         testing::Values("libvirtd", "libvirt-guests", "virtqemud", "virtlogd", "qemu-kvm",
                                         "qemu", "containerd", "crio", "docker", "kubelet", "k3s-agent",
                                         "rke2-server", "podman", "lxd", "incus", "systemd-machined",
                                         "systemd-nspawn@a", "snap.microk8s.daemon-kubelite"));

class NoName : public testing::TestWithParam<std::string> {};

TEST_P(NoName, IsAUsageErrorThatSaysWhatWouldBe) {
  const auto list = release_list({GetParam()});
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error().code, Errc::usage);
  EXPECT_THAT(list.error().message, HasSubstr("is not the name of a service"));
  EXPECT_THAT(list.error().hint, HasSubstr("(nvidia-dcgm), or nvidia_drm"));
}

INSTANTIATE_TEST_SUITE_P(Names, NoName,
                         testing::Values("", ".service", "a b", "../a", "a/b.service", "a\n", "-\xc3\xa4",
                                         "None!", "nvidia.socket", "system.slice", "a.scope",
                                         std::string(300, 'a')));

const PciAddress kGpu = PciAddress::parse("0000:01:00.0").value();

TEST(MayRelease, IsForProcessesOfListedServicesAlone) {
  const std::set<std::string> list = {"a.service", "docker.service", ""};
  const DeviceUser process{.name = "a", .pid = 5, .what = {}, .pod_uid = {}, .service = "a.service"};
  EXPECT_TRUE(may_release(process, list, kGpu));
  EXPECT_FALSE(may_release(process, {}, kGpu));

  DeviceUser other = process;
  other.service = "b.service";
  EXPECT_FALSE(may_release(other, list, kGpu));
  other.service = "";
  EXPECT_FALSE(may_release(other, list, kGpu));
  other.service = "docker.service";
  EXPECT_FALSE(may_release(other, list, kGpu)) << "whatever list it is on";

  DeviceUser in_a_pod = process;
  in_a_pod.pod_uid = "0f2c1d3e-1111-2222-3333-444455556666";
  EXPECT_FALSE(may_release(in_a_pod, list, kGpu));
  for (const auto kind :
       {DeviceUser::Kind::console, DeviceUser::Kind::virtual_machine, DeviceUser::Kind::pod,
        DeviceUser::Kind::attached, DeviceUser::Kind::boot_display, DeviceUser::Kind::framebuffer,
        DeviceUser::Kind::fabric, DeviceUser::Kind::resource_claim}) {
    DeviceUser another_kind = process;
    another_kind.kind = kind;
    EXPECT_FALSE(may_release(another_kind, list, kGpu));
  }
}

TEST(MayRelease, IsForOneGpuOfAPersistencedInAPod) {
  const DeviceUser daemon{.name = "nvidia-persiste",
                          .pid = 77,
                          .what = "/dev/nvidia0",
                          .pod_uid = "0f2c1d3e-1111-2222-3333-444455556666",
                          .closes_on_request = true};
  const auto may = may_release(daemon, default_release(), kGpu);
  EXPECT_EQ(may ? may->quiesce_text() : "it may not", "switch persistence of 0000:01:00.0 off");
  EXPECT_FALSE(may_release(daemon, {}, kGpu));
  EXPECT_THAT(remedy_by_release(daemon),
              HasSubstr("let Ferry ask it to close the GPU: --release nvidia-pers"));
  EXPECT_FALSE(may_release(daemon, {"nvidia-dcgm.service"}, kGpu));
}

TEST(MayRelease, IsForTheConsoleOfTheListedModule) {
  const DeviceUser console{
      .kind = DeviceUser::Kind::console, .name = "nvidia_drm", .pid = {}, .what = {}, .pod_uid = {}};
  const auto may = may_release(console, {"nvidia_drm"}, kGpu);
  EXPECT_EQ(may ? may->quiesce_text() : "it may not", "unload module nvidia_drm");
  EXPECT_FALSE(may_release(console, default_release(), kGpu))
      << "only if somebody says so: a screen goes dark";
  DeviceUser process = console;
  process.kind = DeviceUser::Kind::process;
  EXPECT_FALSE(may_release(process, {"nvidia_drm"}, kGpu)) << "what a process calls itself";
  DeviceUser other = console;
  other.name = "amdgpu";
  EXPECT_FALSE(may_release(other, {"nvidia_drm", "amdgpu"}, kGpu));
}

}  // namespace
}  // namespace ferry::vfio
