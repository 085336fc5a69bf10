// SPDX-License-Identifier: Apache-2.0
#include "host/process_facts.h"

#include <gmock/gmock.h>

#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

struct NameRow {
  const char* name;
  std::vector<std::string> arguments;
  std::optional<std::string> expected;
};
void PrintTo(const NameRow& row, std::ostream* out) {
  *out << row.name;
}
class VmName : public testing::TestWithParam<NameRow> {};

TEST_P(VmName, IsReadFromTheCommandLine) {
  std::string cmdline;
  for (const std::string& argument : GetParam().arguments) cmdline += argument + '\0';
  EXPECT_EQ(vm_name(cmdline), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, VmName,
    testing::Values(NameRow{"Libvirt",
                            {"/usr/bin/qemu-system-x86_64", "-name", "guest=demo-gpu,debug-threads=on", "-S"},
                            "demo-gpu"},
                    NameRow{
                        "GuestIsNotFirst", {"qemu-system-x86_64", "-name", "debug-threads=on,guest=a"}, "a"},
                    NameRow{"Short", {"/usr/libexec/qemu-kvm", "-m", "64", "-name", "a"}, "a"},
                    NameRow{"ShortWithOptions", {"qemu-system-x86_64", "--name", "a,process=x"}, "a"},
                    NameRow{"CommaInTheName", {"qemu-system-x86_64", "-name", "guest=a,,b,process=x"}, "a,b"},
                    NameRow{"NoGuest", {"qemu-system-x86_64", "-name", "process=x"}, ""},
                    NameRow{"NoName", {"qemu-system-x86_64", "-m", "64"}, ""},
                    NameRow{"NameWithoutValue", {"qemu-system-x86_64", "-name"}, ""},
                    NameRow{"AnotherProgram", {"/usr/bin/find", "-name", "guest=a"}, std::nullopt},
                    NameRow{"AnotherProgramOfQemu", {"qemu-img", "-name", "a"}, std::nullopt},
                    NameRow{"KernelThread", {}, std::nullopt}),
    [](const auto& row) { return row.param.name; });

struct PodRow {
  const char* name;
  const char* cgroup;
  const char* uid;
};
void PrintTo(const PodRow& row, std::ostream* out) {
  *out << row.name;
}
class PodUid : public testing::TestWithParam<PodRow> {};

TEST_P(PodUid, IsReadFromTheControlGroup) {
  EXPECT_EQ(pod_uid(GetParam().cgroup), GetParam().uid);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, PodUid,
    testing::Values(
        PodRow{
            "Systemd",
            "0::/kubepods.slice/kubepods-burstable.slice/"
            "kubepods-burstable-pod0f2c1d3e_1111_2222_3333_444455556666.slice/cri-containerd-abcdef.scope\n",
            "0f2c1d3e-1111-2222-3333-444455556666"},
        PodRow{"SystemdGuaranteed",
               "0::/kubepods.slice/kubepods-pod0f2c1d3e_1111_2222_3333_444455556666.slice/x\n",
               "0f2c1d3e-1111-2222-3333-444455556666"},
        PodRow{"Cgroupfs", "12:devices:/kubepods/besteffort/pod0f2c1d3e-1111-2222-3333-444455556666/abcdef\n",
               "0f2c1d3e-1111-2222-3333-444455556666"},
        PodRow{"StaticPod", "0::/kubepods/pod0123456789abcdef0123456789abcdef/x\n",
               "0123456789abcdef0123456789abcdef"},
        PodRow{"SeveralHierarchies",
               "2:cpu:/user.slice\n1:name=systemd:/kubepods/pod0f2c1d3e-1111-2222-3333-444455556666/x\n",
               "0f2c1d3e-1111-2222-3333-444455556666"},
        PodRow{"NoPod", "0::/system.slice/libvirtd.service\n", ""},
        PodRow{"PodmanIsNone", "0::/machine.slice/libpod-0123456789abcdef0123456789abcdef.scope\n", ""},
        PodRow{"KubepodsAlone", "0::/kubepods.slice\n", ""},
        PodRow{"TooShort", "0::/kubepods/pod0f2c1d3e-1111/x\n", ""}, PodRow{"Empty", "", ""}),
    [](const auto& row) { return row.param.name; });

TEST(ProcessFacts, DescribeAVmInAPod) {
  const test::ScratchDirectory tree;
  tree.file("proc/412/comm", "qemu-system-x86\n");
  tree.file("proc/412/cmdline", std::string("/usr/bin/qemu-system-x86_64\0-name\0guest=default_a\0", 51));
  tree.file("proc/412/cgroup", "0::/kubepods/pod0f2c1d3e-1111-2222-3333-444455556666/x\n");
  const Holder holder = describe_process(HostFs(tree.path()), 412, "/dev/vfio/12");
  EXPECT_EQ(holder.kind, Holder::Kind::virtual_machine);
  EXPECT_EQ(holder.text(),
            "VM default_a (pid 412) in pod 0f2c1d3e-1111-2222-3333-444455556666 holds /dev/vfio/12");
}

TEST(ProcessFacts, DescribeAProcessThatHasJustEnded) {
  const test::ScratchDirectory tree;
  EXPECT_EQ(describe_process(HostFs(tree.path()), 7, "/dev/null").text(),
            "process ? (pid 7) holds /dev/null");
}

}  // namespace
}  // namespace ferry
