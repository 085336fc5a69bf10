// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "host/usage/use_probes.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;

vfio::DeviceUser vm(const std::string& name, std::optional<int> pid, const std::string& what) {
  return {
      .kind = vfio::DeviceUser::Kind::virtual_machine, .name = name, .pid = pid, .what = what, .pod_uid = {}};
}
vfio::DeviceUser process(const std::string& name, int pid, const std::string& what) {
  return {.kind = vfio::DeviceUser::Kind::process, .name = name, .pid = pid, .what = what, .pod_uid = {}};
}

Result<vfio::UseReport> combine(std::vector<Result<vfio::UseReport>> reports) {
  std::vector<FindUsers> sources;
  sources.reserve(reports.size());
  for (auto& report : reports) sources.emplace_back([report](const auto& /*questions*/) { return report; });
  const HostFs nowhere("/nonexistent");
  return CombinedUseProbe(nowhere, read_by_another_process(nowhere), std::move(sources)).look({});
}

TEST(CombinedUseProbe, IsBlindToADeviceWhoseDriverDoesNotTellItsNodes) {
  const test::ScratchDirectory tree;
  tree.file("proc/driver/nvidia/gpus/0000:17:00.0/information", "Device Minor: 3\n");
  tree.file("proc/driver/nvidia/gpus/0000:18:00.0/information", "Device Minor: 4\n");
  const HostFs host(tree.path());
  const ReadElsewhere one_late = [&](const std::filesystem::path& file) -> Result<std::string> {
    if (file.string().find("0000:17:00.0") != std::string::npos) return fail(Errc::stuck, "late");
    return host.read_attribute(file);
  };
  const std::vector<vfio::UseQuestion> questions = {{.device = "0000:17:00.0", .nodes = {}},
                                                    {.device = "0000:18:00.0", .nodes = {}}};
  const vfio::UseReport report = must(CombinedUseProbe(host, one_late, {}).look(questions));
  EXPECT_EQ(report.blind_to("0000:17:00.0"), "late");
  EXPECT_EQ(report.blind_to("0000:18:00.0"), "");
}

TEST(CombinedUseProbe, TellsWhatAnyProbeFoundOrCouldNotAsk) {
  const vfio::UseReport all =
      must(combine({vfio::UseReport{.users = {{"a", {process("x", 1, "n")}}}, .unknown = {"u1"}},
                    vfio::UseReport{.users = {{"b", {process("y", 2, "m")}}}, .unknown = {"u2"}}}));
  EXPECT_THAT(all.of("a"), ElementsAre(process("x", 1, "n")));
  EXPECT_THAT(all.of("b"), ElementsAre(process("y", 2, "m")));
  EXPECT_THAT(all.unknown, ElementsAre("u1", "u2"));
}

TEST(CombinedUseProbe, TellsAVmThatTwoProbesFoundOnce) {
  const vfio::DeviceUser by_node = vm("gpu-vm", 412, "/dev/vfio/12");
  for (const auto pid : {std::optional<int>(), std::optional(412)}) {
    const vfio::UseReport all = must(combine(
        {vfio::UseReport{.users = {{"a", {by_node}}}, .unknown = {}},
         vfio::UseReport{.users = {{"a", {vm("gpu-vm", pid, "a as a host device")}}}, .unknown = {}}}));
    EXPECT_THAT(all.of("a"), ElementsAre(by_node));
  }
}

TEST(CombinedUseProbe, KeepsAVmApartFromAnotherOfItsNameFromAProcessAndFromOtherDevices) {
  const vfio::DeviceUser by_node = vm("x", 412, "/dev/vfio/12");
  const vfio::DeviceUser other_vm = vm("x", 7, "a as a host device");
  const vfio::DeviceUser program = process("x", 412, "/dev/nvidia0");
  const vfio::UseReport all = must(combine(
      {vfio::UseReport{.users = {{"a", {by_node}}}, .unknown = {}},
       vfio::UseReport{.users = {{"a", {other_vm, program}}, {"b", {vm("x", {}, "b as a host device")}}},
                       .unknown = {}}}));
  EXPECT_THAT(all.of("a"), ElementsAre(by_node, other_vm, program));
  EXPECT_THAT(all.of("b"), ElementsAre(vm("x", {}, "b as a host device")));
}

TEST(CombinedUseProbe, KeepsTheTwoNodesThatOneVmHolds) {
  const vfio::DeviceUser group = vm("x", 412, "/dev/vfio/12");
  const vfio::DeviceUser cdev = vm("x", 412, "/dev/vfio/devices/vfio3");
  EXPECT_THAT(must(combine({vfio::UseReport{.users = {{"a", {group, cdev}}}, .unknown = {}}})).of("a"),
              ElementsAre(group, cdev));
}

TEST(CombinedUseProbe, FailsWhenAProbeCanSayNothingAtAll) {
  const auto all =
      combine({vfio::UseReport{}, fail(Errc::unsupported, "/proc shows no process"), vfio::UseReport{}});
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().message, "/proc shows no process");
}

TEST(AllUseProbes, AskProcLibvirtAndTheKubeletAndNameAttachedDisks) {
  const test::ScratchDirectory tree;
  tree.file("proc/12/comm", "reader\n");
  tree.link("proc/12/fd/3", "/dev/null");
  tree.file("run/libvirt/libvirt-sock", "not a socket");
  const HostFs host(tree.path());
  const std::vector<vfio::UseQuestion> questions = {
      {.device = "a", .nodes = {{.name = "/dev/n", .number = {.major = 1, .minor = 3}}}},
      {.device = "b",
       .nodes = {{.name = "/dev/sdb1", .number = {.major = 8, .minor = 17}, .block = true}},
       .attached = {"disk /dev/sdb"}}};
  const auto no_kubelet_answers = [] { return fail(Errc::unreachable, "no answer"); };
  const vfio::UseReport report = must(all_use_probes(host, {}, no_kubelet_answers)->look(questions));
  ASSERT_EQ(report.of("a").size(), 1U);
  EXPECT_EQ(report.of("a")[0].text(), "process reader (pid 12) holds /dev/n");
  ASSERT_EQ(report.of("b").size(), 1U);
  EXPECT_EQ(report.of("b")[0].text(), "disk /dev/sdb is attached to it");
  EXPECT_THAT(report.unknown, ElementsAre(HasSubstr("libvirt: "), "pod resources: no answer"));
  EXPECT_EQ(report.blind, "");
  const auto for_vgpus = all_use_probes(host, {}, no_kubelet_answers, KubeletSilence::blinds);
  EXPECT_EQ(must(for_vgpus->look(questions)).blind, "pod resources: no answer");
}

}  // namespace
}  // namespace ferry::host
