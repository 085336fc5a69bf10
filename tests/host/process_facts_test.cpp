// SPDX-License-Identifier: Apache-2.0
#include "host/usage/process_facts.h"

#include <gmock/gmock.h>

#include "hostfs/processes.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
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
                    NameRow{"CloudHypervisor", {"/usr/bin/cloud-hypervisor", "--api-socket", "/run/a"}, ""},
                    NameRow{"Firecracker", {"firecracker", "--id", "a"}, ""},
                    NameRow{"AProgramThatOnlyBeginsSo", {"firecracker-ctl"}, std::nullopt},
                    NameRow{"AnotherProgram", {"/usr/bin/find", "-name", "guest=a"}, std::nullopt},
                    NameRow{"AnotherProgramOfQemu", {"qemu-img", "-name", "a"}, std::nullopt},
                    NameRow{"KernelThread", {}, std::nullopt}),
    [](const auto& row) { return row.param.name; });

TEST(CommandLine, IsReadToABound) {
  const test::ScratchDirectory scratch;
  const HostFs host(scratch.path());
  std::string line;
  while (line.size() < 1UL << 20U) line += std::string("a") + '\0';
  scratch.file("proc/30/cmdline", std::string("kvm") + '\0' + line);
  scratch.file("proc/30/comm", "kvm\n");
  EXPECT_EQ(command_line(host, 30).size(), 128UL << 10U);
  EXPECT_EQ(command_line(host, 31), "");
  scratch.file("proc/32/cmdline", std::string("kvm") + '\0' + "-name" + '\0' + std::string(5000, 'n') + '\0');
  EXPECT_EQ(describe_process(host, 32, "/dev/nvidia0").name, std::string(253, 'n'));
}

TEST(CommandLine, OfAThreadCountsWhereTheFirstHasEnded) {
  const test::ScratchDirectory scratch;
  scratch.file("proc/30/cmdline", "");
  scratch.file("proc/30/task/31/cmdline", std::string("firecracker") + '\0');
  EXPECT_EQ(command_line(HostFs(scratch.path()), 30), std::string("firecracker") + '\0');
}

TEST(RootOfAProcess, ShowsWhichOnesRunInContainers) {
  const test::ScratchDirectory scratch;
  const HostFs host(scratch.path());
  scratch.directory("run/driver");
  scratch.directory("containers/a");
  scratch.link("proc/1/root", "../..");
  scratch.link("proc/10/root", "../..");
  scratch.link("proc/11/root", "../../run/driver");
  scratch.link("proc/12/root", "../../containers/a");
  EXPECT_FALSE(runs_below_another_root(host, 10, {"."}));
  EXPECT_TRUE(runs_below_another_root(host, 11, {"."}));
  EXPECT_FALSE(runs_below_another_root(host, 11, {".", "run/driver"}));
  EXPECT_TRUE(runs_below_another_root(host, 12, {".", "run/driver"}));
  EXPECT_TRUE(runs_below_another_root(host, 12, {".", "run/no-driver"}));
  EXPECT_FALSE(runs_below_another_root(host, 13, {"."})) << "it has ended, or may not be looked at";
}

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
        PodRow{"SeenFromAnotherPodsContainer", "0::/../../pod0f2c1d3e-1111-2222-3333-444455556666/8a7b\n",
               "0f2c1d3e-1111-2222-3333-444455556666"},
        PodRow{"OfAnotherClassSeenFromAPodsContainer",
               "0::/../../../besteffort/pod0f2c1d3e-1111-2222-3333-444455556666/8a7b\n",
               "0f2c1d3e-1111-2222-3333-444455556666"},
        PodRow{"OfSystemdSeenFromAPodsContainer",
               "0::/../../kubepods-burstable-pod0f2c1d3e_1111_2222_3333_444455556666.slice/cri-a.scope\n",
               "0f2c1d3e-1111-2222-3333-444455556666"},
        PodRow{"PodmanSeenFromAPodsContainer",
               "0::/../../../../machine.slice/libpod-0123456789abcdef0123456789abcdef.scope\n", ""},
        PodRow{"AUsersGroupSeenFromAPodsContainer",
               "0::/../../../../user.slice/user-1000.slice/pod0f2c1d3e-1111-2222-3333-444455556666/a\n", ""},
        PodRow{"AServiceSeenFromAPodsContainer", "0::/../../../../system.slice/libvirtd.service\n", ""},
        PodRow{"NoPod", "0::/system.slice/libvirtd.service\n", ""},
        PodRow{"PodmanIsNone", "0::/machine.slice/libpod-0123456789abcdef0123456789abcdef.scope\n", ""},
        PodRow{"KubepodsAlone", "0::/kubepods.slice\n", ""},
        PodRow{"TooShort", "0::/kubepods/pod0f2c1d3e-1111/x\n", ""}, PodRow{"Empty", "", ""}),
    [](const auto& row) { return row.param.name; });

struct ServiceRow {
  const char* name;
  std::string cgroup;
  const char* service;
};
void PrintTo(const ServiceRow& row, std::ostream* out) {
  *out << row.name;
}
class ServiceOf : public testing::TestWithParam<ServiceRow> {};

TEST_P(ServiceOf, IsReadFromTheControlGroup) {
  EXPECT_EQ(service_of(GetParam().cgroup), GetParam().service);
}

TEST(ServiceOfTheHost, IsReadFromWithinACgroupNamespace) {
  const std::string_view root = systemd_root("0::/../../../../init.scope\n");
  EXPECT_EQ(root, "/../../../..");
  EXPECT_EQ(service_of("0::/../../../../system.slice/a.service\n", root), "a.service");
  EXPECT_EQ(service_of("0::/../../system.slice/a.service\n", root), "") << "below a group of the pod's";
  EXPECT_EQ(service_of("0::/../../../../../system.slice/a.service\n", root), "") << "of a machine outside";
  EXPECT_EQ(service_of("0::/system.slice/a.service\n", root), "") << "below hostd's own group";
}

TEST(SystemdRoot, IsThatOfTheHost) {
  EXPECT_EQ(systemd_root("0::/init.scope\n"), "");
  EXPECT_EQ(systemd_root("2:cpu:/\n1:name=systemd:/init.scope\n0::/init.scope\n"), "");
  EXPECT_EQ(systemd_root("0::/\n"), "") << "no systemd";
  EXPECT_EQ(systemd_root("x\n"), "");
  EXPECT_EQ(systemd_root(""), "");
}

INSTANTIATE_TEST_SUITE_P(
    Rows, ServiceOf,
    testing::Values(
        ServiceRow{"Unified", "0::/system.slice/nvidia-persistenced.service\n",
                   "nvidia-persistenced.service"},
        ServiceRow{"NoNewline", "0::/system.slice/a.service", "a.service"},
        ServiceRow{"Instance", "0::/system.slice/system-a.slice/a@1.service\n", "a@1.service"},
        ServiceRow{"InstanceInDeeperSlices", "0::/system.slice/system-a.slice/system-a-b.slice/a@1.service\n",
                   "a@1.service"},
        ServiceRow{"EscapedByHex", "0::/system.slice/a\\x2db.service\n", "a\\x2db.service"},
        ServiceRow{"EscapedByUnderscore", "0::/system.slice/_cpu.service\n", "cpu.service"},
        ServiceRow{"UnderscoreOfItsOwn", "0::/system.slice/__a.service\n", "_a.service"},
        ServiceRow{"Hybrid",
                   "2:cpu,cpuacct:/system.slice/a.service\n1:name=systemd:/system.slice/a.service\n"
                   "0::/system.slice/a.service\n",
                   "a.service"},
        ServiceRow{"Legacy", "9:pids:/system.slice\n2:cpu:/\n1:name=systemd:/system.slice/a.service\n0::/\n",
                   "a.service"},
        ServiceRow{"ContainerInOneHierarchy",
                   "3:devices:/docker/0123\n1:name=systemd:/system.slice/a.service\n", ""},
        ServiceRow{"HierarchiesDisagree",
                   "1:name=systemd:/system.slice/a.service\n0::/system.slice/b.service\n", ""},
        ServiceRow{"ScopeOfAContainer", "0::/system.slice/docker-0123.scope\n", ""},
        ServiceRow{"BelowAService", "0::/system.slice/a.service/payload\n", ""},
        ServiceRow{"ServiceBelowAService", "0::/system.slice/a.service/b.service\n", ""},
        ServiceRow{
            "PodBelowAService",
            "0::/system.slice/containerd.service/kubepods-pod0f2c1d3e_1111_2222_3333_444455556666.slice:x\n",
            ""},
        ServiceRow{"Pod", "0::/kubepods.slice/kubepods-burstable.slice/a.service\n", ""},
        ServiceRow{"Machine", "0::/machine.slice/a.service\n", ""},
        ServiceRow{"MachineInTheSystemSlice", "0::/system.slice/machine.slice/a.service\n", ""},
        ServiceRow{"UsersService", "0::/user.slice/user-0.slice/user@0.service/app.slice/a.service\n", ""},
        ServiceRow{"AnotherNamespace", "0::/../../system.slice/a.service\n", ""},
        ServiceRow{"SliceThatBeginsAlike", "0::/system.slice2/a.service\n", ""},
        ServiceRow{"Removed", "0::/system.slice/a.service (deleted)\n", ""},
        ServiceRow{"NoName", "0::/system.slice/.service\n", ""},
        ServiceRow{"OnlyAnUnderscore", "0::/system.slice/_.service\n", ""},
        ServiceRow{"EmptyPart", "0::/system.slice//a.service\n", ""},
        ServiceRow{"TrailingSlash", "0::/system.slice/a.service/\n", ""},
        ServiceRow{"NoLetterOfAUnit", "0::/system.slice/a b.service\n", ""},
        ServiceRow{"Socket", "0::/system.slice/a.socket\n", ""},
        ServiceRow{"Slice", "0::/system.slice\n", ""},
        ServiceRow{"Relative", "0::system.slice/a.service\n", ""}, ServiceRow{"Root", "0::/\n", ""},
        ServiceRow{"NoPath", "0::\n", ""}, ServiceRow{"NoColon", "a.service\n", ""},
        ServiceRow{"OneColon", "0:/system.slice/a.service\n", ""},
        ServiceRow{"OneLineIsMalformed", "0::/system.slice/a.service\nx\n", ""},
        ServiceRow{"ANul", std::string("0::/system.slice/a\0.service\n", 28), ""},
        ServiceRow{"Empty", "", ""}),
    [](const auto& row) { return row.param.name; });

TEST(ProcessFacts, KnowAProcessByItsNumberAlone) {
  EXPECT_EQ(pid_of("412"), 412);
  for (const char* name : {"", "self", "12a", "a12", " 12", "-5", "0", "+5", "99999999999"})
    EXPECT_EQ(pid_of(name), std::nullopt) << name;
}

TEST(ProcessFacts, TellTheServiceOfAProcessAndNoneOfAVm) {
  const test::ScratchDirectory tree;
  tree.file("proc/7/comm", "nvidia-persiste\n");
  tree.file("proc/7/cmdline", "/usr/bin/nvidia-persistenced");
  tree.file("proc/7/cgroup", "0::/system.slice/nvidia-persistenced.service\n");
  tree.file("proc/8/comm", "qemu-system-x86\n");
  tree.file("proc/8/cmdline", "qemu-system-x86_64");
  tree.file("proc/8/cgroup", "0::/system.slice/nvidia-persistenced.service\n");
  const HostFs host(tree.path());
  EXPECT_EQ(describe_process(host, 7, "/dev/nvidia0").service, "nvidia-persistenced.service");
  EXPECT_EQ(describe_process(host, 8, "/dev/nvidia0").service, "");
}

TEST(ProcessFacts, DescribeAVmInAPod) {
  const test::ScratchDirectory tree;
  tree.file("proc/412/comm", "qemu-system-x86\n");
  tree.file("proc/412/cmdline", std::string("/usr/bin/qemu-system-x86_64\0-name\0guest=default_a\0", 50));
  tree.file("proc/412/cgroup", "0::/kubepods/pod0f2c1d3e-1111-2222-3333-444455556666/x\n");
  const vfio::DeviceUser user = describe_process(HostFs(tree.path()), 412, "/dev/vfio/12");
  EXPECT_EQ(user.kind, vfio::DeviceUser::Kind::virtual_machine);
  EXPECT_EQ(user.text(),
            "VM default_a (pid 412) in pod 0f2c1d3e-1111-2222-3333-444455556666 holds /dev/vfio/12");
}

// Stopping it takes the device from whatever it is driven for.
TEST(ProcessFacts, TellNoServiceOfWhoHoldsANodeOfVfio) {
  const test::ScratchDirectory tree;
  tree.file("proc/7/comm", "packets\n");
  tree.file("proc/7/cmdline", "/usr/bin/packets");
  tree.file("proc/7/cgroup", "0::/system.slice/packets.service\n");
  const HostFs host(tree.path());
  EXPECT_EQ(describe_process(host, 7, "/dev/vfio/12").text(), "process packets (pid 7) holds /dev/vfio/12");
  EXPECT_EQ(describe_process(host, 7, "/dev/vfio/devices/vfio0").service, "");
  EXPECT_EQ(describe_process(host, 7, "/dev/nvidia0").service, "packets.service");
}

TEST(ProcessFacts, TellAVmByItsOtherThreadsWhereTheFirstHasEnded) {
  const test::ScratchDirectory tree;
  tree.file("proc/7/comm", "qemu\n");
  tree.file("proc/7/cmdline", "");
  tree.directory("proc/7/fd");
  tree.file("proc/7/task/8/cmdline", std::string("qemu-kvm\0-name\0guest=a\0", 23));
  const HostFs host(tree.path());
  EXPECT_EQ(describe_process(host, 7, "/dev/nvidia0").text(), "VM a (pid 7) holds /dev/nvidia0");
  tree.file("proc/7/task/8/cmdline", "program");
  tree.link("proc/7/task/8/fd/3", "anon_inode:kvm-vm");
  EXPECT_TRUE(runs_a_vm(host, 7));
  tree.remove("proc/7/task/8/fd/3");
  EXPECT_FALSE(runs_a_vm(host, 7));
}

TEST(ProcessFacts, TakeAProcessThatMayNotBeLookedAtForAVm) {
  const test::ScratchDirectory tree;
  tree.file("proc/7/cmdline", "program");
  const HostFs host(tree.path());
  EXPECT_FALSE(runs_a_vm(host, 7)) << "it has ended";
  tree.file("proc/7/fd", "");  // whatever the reason is: ENOTDIR here, EACCES for who is not root
  EXPECT_TRUE(runs_a_vm(host, 7));
}

// A process names itself, and root reads that on a terminal.
TEST(ProcessFacts, GiveATerminalNoOrdersByANameAndLeaveTheNameAsItIs) {
  using namespace std::string_literals;
  const test::ScratchDirectory tree;
  tree.file("proc/7/comm", "a\033[2J\nb\n");
  tree.file("proc/8/cmdline", "qemu-kvm\0-name\0guest=v\033]0;m\a\0"s);
  const HostFs host(tree.path());
  const vfio::DeviceUser process = describe_process(host, 7, "/dev/null");
  EXPECT_EQ(process.text(), R"(process a\x1b[2J\x0ab (pid 7) holds /dev/null)");
  EXPECT_EQ(process.name, "a\033[2J\nb");
  EXPECT_EQ(describe_process(host, 8, "/dev/null").text(), R"(VM v\x1b]0;m\x07 (pid 8) holds /dev/null)");
}

TEST(ProcessFacts, DescribeAProcessThatHasJustEnded) {
  const test::ScratchDirectory tree;
  EXPECT_EQ(describe_process(HostFs(tree.path()), 7, "/dev/null").text(),
            "process ? (pid 7) holds /dev/null");
}

TEST(DescribeProcess, SaysThatADriverContainersDaemonClosesOnRequest) {
  const test::ScratchDirectory scratch;
  const HostFs host(scratch.path());
  scratch.link("proc/1/root", "../..");
  scratch.file("run/nvidia/driver/run/nvidia-persistenced/socket", "");
  scratch.directory("run/other");
  const auto closes = [&](const std::string& root, const std::string& cgroup, const std::string& what) {
    scratch.file("proc/77/comm", "nvidia-persiste\n");
    scratch.file("proc/77/cgroup", cgroup);
    scratch.link("proc/77/root", root);
    return describe_process(host, 77, what).closes_on_request;
  };
  const std::string pod = "0::/kubepods/burstable/pod0f2c1d3e-1111-2222-3333-444455556666/1a\n";
  EXPECT_TRUE(closes("../../run/nvidia/driver", pod, "/dev/nvidia0"));
  EXPECT_FALSE(closes("../../run/other", pod, "/dev/nvidia0")) << "a pod may give any program that name";
  EXPECT_FALSE(closes("../../run/nvidia/driver", "0::/system.slice/a.service\n", "/dev/nvidia0"))
      << "a service can be stopped";
  EXPECT_FALSE(closes("../../run/nvidia/driver", pod, "/dev/vfio/7")) << "a VM may have the group";
}

}  // namespace
}  // namespace ferry::host
