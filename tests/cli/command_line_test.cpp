// SPDX-License-Identifier: Apache-2.0
// The executable as a user meets it: exit status, one clear line and what to do for every kind of bad input,
// and nothing changed.
#include <fstream>
#include <map>
#include <ostream>
#include <set>
#include <sstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/version.h"
#include "tests/cli/run_program.h"
#include "tests/vfio/machines.h"

namespace ferry::cli {
namespace {

using test::FakeKernel;
using test::run_ferry;
using test::run_ferry_redirected;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

/// A host tree that the program is pointed at. Its kernel does not react to another process's writes, so what
/// runs here looks, or is refused.
class CommandLine : public testing::Test {
 protected:
  CommandLine() {
    test::add_host_drivers(kernel_);
    test::add_four_function_card(kernel_);
    kernel_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel_.directory("proc/1/fd");
    kernel_.file("good.yaml", "version: v1\nvgpu-configs:\n  one:\n  - devices: all\n    vgpu-devices: {}\n");
  }
  std::string path(const std::string& name) const { return (kernel_.root() / name).string(); }
  test::ProgramResult ferry(std::vector<std::string> arguments) {
    for (std::string& argument : arguments) {
      if (argument.starts_with("@")) argument = path(argument.substr(1));
    }
    arguments.insert(arguments.begin(), {"--host-root", kernel_.root().string()});
    return run_ferry(arguments);
  }
  FakeKernel kernel_;
};

struct BadInput {
  std::string name;
  std::vector<std::string> arguments;  ///< "@x": the file x of the host tree
  int status = 2;
  std::string message;
  std::string hint;
};
void PrintTo(const BadInput& row, std::ostream* out) {
  *out << row.name;
}

class BadInputTest : public CommandLine, public testing::WithParamInterface<BadInput> {};

TEST_P(BadInputTest, GetsOneClearLineAndWhatToDo) {
  kernel_.file("empty.yaml", "");
  kernel_.file("malformed.yaml", "version: v1\nvgpu-configs:\n  one: [\n");
  kernel_.file("v2.yaml", "version: v2\nvgpu-configs:\n  one:\n  - devices: all\n    vgpu-devices: {}\n");
  kernel_.file("typo.yaml", "version: v1\nvgpu-configs:\n  one:\n  - device: all\n    vgpu-devices: {}\n");
  kernel_.file("node.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: node-1, labels: {a: b}}\n");
  const auto result = ferry(GetParam().arguments);
  EXPECT_EQ(result.status, GetParam().status) << result.err;
  EXPECT_THAT(result.err, StartsWith("ferry: "));
  EXPECT_THAT(result.err, HasSubstr(GetParam().message));
  EXPECT_THAT(result.err, HasSubstr("hint: "));
  EXPECT_THAT(result.err, HasSubstr(GetParam().hint));
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_FALSE(kernel_.exists("run/ferry/hostd/moves"));
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadInputTest,
    testing::Values(
        BadInput{"NoVerb", {}, 2, "a verb is missing", "--help"},
        BadInput{"NoVerbBelowAGroup", {"vfio"}, 2, "a verb is missing", "ferry vfio --help"},
        BadInput{"VerbBelowAGroupLikeNoOther",
                 {"vfio", "xyzzy"},
                 2,
                 "there is no verb 'vfio xyzzy'",
                 "ferry vfio"},
        BadInput{"NoDeviceToExplain",
                 {"explain"},
                 2,
                 "ferry: name a device\n",
                 "for example `ferry explain 0000:3b:00.0`"},
        BadInput{"NoVerbBelowClaims", {"claims"}, 2, "a verb is missing", "ferry claims --help"},
        BadInput{"NoClaimToRelease",
                 {"claims", "release"},
                 2,
                 "ferry: name the UID of a claim\n",
                 "ferry claims release --help"},
        BadInput{"ClaimByItsName",
                 {"claims", "release", "studio/render-a"},
                 2,
                 "'studio/render-a' is not the UID of a ResourceClaim",
                 "`ferry claims list` prints the UIDs"},
        BadInput{"ClaimWithoutAName", {"claims", "release", ""}, 2, "'' is not the UID", "ferry claims list"},
        BadInput{"NoShell", {"completion"}, 2, "name a shell", "completion --help"},
        BadInput{"UnknownOptionWithAValue",
                 {"vfio", "bind", "--devcie", "0000:01:00.0"},
                 2,
                 "unknown option --devcie; did you mean '--device'?",
                 "ferry vfio bind --help"},
        BadInput{"UnexpectedWord", {"status", "now"}, 2, "unexpected word 'now'", "ferry status --help"},
        BadInput{"NoHelpForThat",
                 {"help", "vfio", "bnd"},
                 2,
                 "there is no verb 'vfio bnd'; did you mean 'bind'?",
                 "ferry help"},
        BadInput{"NothingOnThisHost",
                 {"explain", "nvidia.com/AD102GL_L40S"},
                 2,
                 "ferry plugin has not advertised 'nvidia.com/AD102GL_L40S' on this host yet",
                 "ferry kubevirt-cr"},
        BadInput{
            "NothingForVmsYet", {"kubevirt-cr"}, 4, "this host has no device for VMs yet", "ferry vfio bind"},
        BadInput{"UnknownVerb", {"stauts"}, 2, "did you mean 'status'?", "ferry --help"},
        BadInput{"VerbLikeNoOther", {"xyzzy"}, 2, "there is no verb 'xyzzy'", "ferry --help"},
        BadInput{"GlobalOptionMistyped",
                 {"status", "--outptu", "json"},
                 2,
                 "did you mean '--output'?",
                 "ferry status"},
        BadInput{"UnknownField",
                 {"kubevirt-cr", "--name-template", "{devise}"},
                 2,
                 "did you mean '{device}'?",
                 "{vendor}"},
        BadInput{"FieldOfAnother",
                 {"kubevirt-cr", "--vgpu-name-template", "x-{device}"},
                 2,
                 "there is no {device}",
                 "{name}"},
        BadInput{"BraceAlone", {"kubevirt-cr", "--name-template", "{name"}, 2, "there is no {name", "{name}"},
        BadInput{"TwoAliases",
                 {"kubevirt-cr", "--alias", "10de:1eb8=a", "--alias", "10de:1eb8=b"},
                 2,
                 "another one",
                 ""},
        BadInput{"UnknownVfioVerb",
                 {"vfio", "bnid"},
                 2,
                 "there is no verb 'vfio bnid'; did you mean 'bind'?",
                 "ferry vfio --help"},
        BadInput{
            "UnknownOption", {"vfio", "bind", "--al"}, 2, "did you mean '--all'?", "ferry vfio bind --help"},
        BadInput{"UnknownOutput",
                 {"-o", "jsn", "status"},
                 2,
                 "--output: 'jsn' is none of json, table, wide, yaml; did you mean 'json'?",
                 "--help"},
        BadInput{"CaptureIsGone",
                 {"status", "--capture=there"},
                 2,
                 "`ferry status --capture` was removed",
                 "scripts/capture-host DIR"},
        BadInput{"UnknownLogLevel",
                 {"--log-level", "loud", "status"},
                 2,
                 "unknown log level 'loud'",
                 "levels are"},
        BadInput{"OptionWithoutItsValue",
                 {"vfio", "bind", "--device"},
                 2,
                 "--device needs a value: ADDRESS\n",
                 "ferry vfio bind --help"},
        BadInput{"NoDevice", {"vfio", "bind"}, 2, "no device is named", "--device ADDRESS"},
        BadInput{"MalformedAddress",
                 {"vfio", "bind", "--device", "65:00.0"},
                 2,
                 "'65:00.0' is not a PCI address",
                 "did you mean 0000:65:00.0?"},
        BadInput{"UnknownAddress",
                 {"vfio", "bind", "--device", "0000:99:00.0"},
                 2,
                 "there is no PCI function 0000:99:00.0",
                 "ferry status"},
        BadInput{"UnknownAddressOfADryRun",
                 {"vfio", "plan", "--device", "0000:99:00.0"},
                 2,
                 "there is no PCI function 0000:99:00.0",
                 "ferry status"},
        BadInput{"PolicyThatIsNotThere",
                 {"apply", "-f", "/nowhere/policy.yaml"},
                 2,
                 "/nowhere/policy.yaml: No such file or directory",
                 "a file that can be read"},
        BadInput{
            "MalformedVendor", {"vfio", "plan", "--vendor", "nvida"}, 2, "did you mean 'nvidia'?", "10de"},
        BadInput{"ModelThatIsNotHere",
                 {"vfio", "bind", "--all", "--model", "*4091*"},
                 2,
                 "no accelerator on this host is of model '*4091*'",
                 "AD102 [GeForce RTX 4090]"},
        BadInput{"FilterBesideADevice",
                 {"vfio", "unbind", "--device", "0000:65:00.0", "--class", "vga"},
                 2,
                 "--class goes without --device",
                 "--device ADDRESS"},
        BadInput{"ReleaseOfWhatRunsVms",
                 {"vfio", "bind", "--all", "--release", "nvidia-dcgm", "--release", "libvirtd"},
                 2,
                 "--release: libvirtd.service is never stopped: it runs VMs or containers",
                 "stop the VM or delete the pod"},
        BadInput{"ReleaseOfWhatRunsContainers",
                 {"vfio", "plan", "--all", "--release", "docker.service"},
                 2,
                 "docker.service is never stopped",
                 "stop the VM or delete the pod"},
        BadInput{"ReleaseOfNoService",
                 {"vfio", "bind", "--all", "--release", "docker.socket"},
                 2,
                 "'docker.socket' is not the name of a service",
                 "(nvidia-dcgm), or nvidia_drm"},
        BadInput{"ReleaseOnTheWayBack",
                 {"vfio", "unbind", "--all", "--release", "nvidia-dcgm"},
                 2,
                 "--release",
                 "ferry vfio unbind --help"},
        BadInput{"ProfileMissing", {"vgpu", "apply", "-f", "@none.yaml"}, 2, "none.yaml", ""},
        BadInput{"ProfileEmpty", {"vgpu", "apply", "-f", "@empty.yaml"}, 2, "empty.yaml", ""},
        BadInput{"ProfileMalformed", {"vgpu", "apply", "-f", "@malformed.yaml"}, 2, "malformed.yaml:", ""},
        BadInput{"ProfileOfAnotherVersion", {"vgpu", "apply", "-f", "@v2.yaml"}, 2, "v2.yaml:1", "v1"},
        BadInput{"ProfileWithATypo", {"vgpu", "validate", "-f", "@typo.yaml"}, 2, "typo.yaml:4", "devices"},
        BadInput{"ProfileLacksTheName", {"vgpu", "apply", "-f", "@good.yaml", "-c", "on"}, 2, "on", "one"},
        BadInput{"NodeWithoutTheLabel",
                 {"vgpu", "apply", "-f", "@good.yaml", "--node", "@node.yaml"},
                 2,
                 "nvidia.com/vgpu.config",
                 ""},
        BadInput{"ExportUnderANameForNoLabel",
                 {"vgpu", "export", "-c", "two words"},
                 2,
                 "'two words' cannot name a configuration",
                 "at most 63"},
        BadInput{"ChoiceWithoutAnAmount", {"vgpu", "choose"}, 2, "--memory is required", "choose --help"},
        BadInput{"AmountWithoutAUnit",
                 {"vgpu", "choose", "--memory", "6"},
                 2,
                 "--memory: '6' is not an amount of memory: it has no unit",
                 "6GiB"},
        BadInput{"AmountInAnUnknownUnit",
                 {"vgpu", "choose", "--memory", "6gib"},
                 2,
                 "did you mean 'GiB'?",
                 "6GiB"},
        BadInput{"SeriesThatIsNone",
                 {"vgpu", "choose", "--memory", "6GiB", "--series", "X"},
                 2,
                 "--series: 'X' is not a series of vGPU types",
                 "C (compute)"},
        BadInput{"ChoiceOnAGpuThatIsNotHere",
                 {"vgpu", "choose", "--memory", "6GiB", "--device", "0000:99:00.0"},
                 2,
                 "there is no GPU 0000:99:00.0 on this host",
                 "ferry vgpu types"},
        BadInput{
            "KubeletsDirectoryMissing", {"plugin"}, 2, "var/lib/kubelet/device-plugins does not exist", ""},
        BadInput{"DirectoryOfItsPluginWatcherMissing",
                 {"plugin", "--plugin-watcher"},
                 2,
                 "var/lib/kubelet/plugins_registry does not exist",
                 ""},
        BadInput{"SelftestIsGone",
                 {"selftest", "--device", "0000:65:00.0", "--kernel", "k", "--initrd", "i"},
                 2,
                 "`ferry selftest` was removed",
                 "tests/node/run tests/node/scenarios/selftest.toml"}),
    [](const auto& row) { return row.param.name; });

TEST_F(CommandLine, PlansToReleaseWhatIsListedAndRefusesTheRest) {
  kernel_.file("run/systemd/private", "");  // that it is there is enough to plan
  kernel_.file("sys/bus/pci/devices/0000:65:00.0/drm/card0/dev", "1:3\n");
  kernel_.file("proc/77/comm", "nvidia-persiste\n");
  kernel_.file("proc/77/cmdline", "nvidia-persistenced");
  kernel_.file("proc/77/cgroup", "0::/system.slice/nvidia-persistenced.service\n");
  kernel_.file("proc/77/maps", "");
  kernel_.link("proc/77/fd/3", "/dev/null");  // a device with that number
  const auto plan = ferry({"-o", "json", "vfio", "plan", "--device", "0000:65:00.0"});
  ASSERT_EQ(plan.status, 0) << plan.out << plan.err;
  const auto steps = nlohmann::json::parse(plan.out).at("results").at(0).at("steps");
  EXPECT_EQ(steps.front().at("text"), "stop nvidia-persistenced.service");
  EXPECT_EQ(steps.front().at("service"), "nvidia-persistenced.service");
  EXPECT_FALSE(steps.front().contains("address"));
  EXPECT_EQ(steps.back().at("text"), "start nvidia-persistenced.service");

  const auto explained = ferry({"vfio", "plan", "--explain", "--device", "0000:65:00.0"});
  EXPECT_THAT(explained.out, HasSubstr("stop nvidia-persistenced.service  because it holds a device"));
  EXPECT_THAT(explained.out, Not(HasSubstr("because so that")));

  const auto refused = ferry({"vfio", "plan", "--device", "0000:65:00.0", "--release", "none"});
  EXPECT_EQ(refused.status, 4);
  EXPECT_THAT(refused.out,
              HasSubstr("process nvidia-persiste (pid 77) of nvidia-persistenced.service holds"));
  EXPECT_THAT(refused.out, HasSubstr("--release nvidia-persistenced.service"));

  kernel_.file("proc/77/cgroup", "0::/user.slice/user-0.slice/session-1.scope\n");
  EXPECT_EQ(ferry({"vfio", "plan", "--device", "0000:65:00.0"}).status, 4);
}

TEST_F(CommandLine, BindAsksAPersonAboutAllAccelerators) {
  const std::string root = kernel_.root().string();
  const auto asked = test::run_ferry_on_terminal({"--host-root", root, "vfio", "bind", "--all"}, "no\n");
  EXPECT_EQ(asked.status, 4) << asked.out;
  EXPECT_THAT(asked.out, AllOf(HasSubstr("bind 1 accelerator to vfio? Containers then cannot use it. [y/N] "),
                               HasSubstr("nothing was changed: the answer is not yes"),
                               HasSubstr("--yes asks no question")));
  EXPECT_EQ(kernel_.driver_of("0000:65:00.0"), "nouveau");
  // A dry run writes nothing, and a command without a terminal has no person to ask.
  const auto dry =
      test::run_ferry_on_terminal({"--host-root", root, "vfio", "bind", "--all", "--dry-run"}, "");
  EXPECT_THAT(dry.out, Not(HasSubstr("[y/N]")));
  EXPECT_THAT(ferry({"vfio", "plan", "--all"}).err, Not(HasSubstr("[y/N]")));
}

TEST_F(CommandLine, SaysThatAHostHasNoIommu) {
  FakeKernel bare;
  test::add_host_drivers(bare);
  bare.directory("proc/1/fd");
  bare.add_function({.address = "0000:01:00.0", .driver = "nouveau"});
  const auto result = run_ferry({"--host-root", bare.root().string(), "vfio", "bind", "--all"});
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(result.out, HasSubstr("no active IOMMU"));
  EXPECT_THAT(result.out,
              HasSubstr("hint: switch the IOMMU (Intel VT-d, AMD-Vi, Arm SMMU) on in the firmware setup"));
}

TEST_F(CommandLine, MakesNoHostRootThatIsNotThere) {
  const auto nowhere = kernel_.root() / "nowhere";
  for (const std::vector<std::string>& verb : {std::vector<std::string>{"status"},
                                               {"doctor"},
                                               {"vfio", "bind", "--all"},
                                               {"vgpu", "delete", "--all"}}) {
    auto arguments = verb;
    arguments.insert(arguments.begin(), {"--host-root", nowhere.string()});
    const auto result = run_ferry(arguments);
    EXPECT_EQ(result.status, 2) << verb[0];
    EXPECT_THAT(result.err, HasSubstr("--host-root")) << verb[0];
    EXPECT_FALSE(std::filesystem::exists(nowhere)) << verb[0];
  }
}

TEST_F(CommandLine, NeedsRootToChangeThisHostAndSaysSo) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  constexpr unsigned kNobody = 65534;
  for (const std::vector<std::string>& verb : {std::vector<std::string>{"vfio", "bind", "--all"},
                                               {"vfio", "unbind", "--all"},
                                               {"vfio", "restore"},
                                               {"claims", "release", "u"},
                                               {"vgpu", "delete", "--all"}}) {
    const auto result = run_ferry(verb, kNobody);
    EXPECT_EQ(result.status, 1) << verb[1];
    EXPECT_THAT(result.err, HasSubstr("needs root")) << verb[1];
    EXPECT_THAT(result.err, HasSubstr("hint: run it with sudo")) << verb[1];
  }
}

TEST_F(CommandLine, ShowsAHostWithoutChangingIt) {
  const auto result = ferry({"status"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0000:65:00.0     AD102 [GeForce RTX 4090]  41     nouveau"));
  EXPECT_THAT(result.out, HasSubstr("|- 0000:65:00.1  audio                            snd_hda_intel"));
  EXPECT_FALSE(kernel_.exists("run/ferry"));
  EXPECT_THAT(ferry({"status", "-o", "wide"}).out,
              HasSubstr("ACCELERATOR      MODEL                     GROUP  NUMA"));
  EXPECT_THAT(ferry({"status", "--color=always"}).out, HasSubstr("\033[1mACCELERATOR"));
  EXPECT_THAT(ferry({"status", "--color", "sometimes"}).err,
              HasSubstr("'sometimes' is none of always, auto, never"));
  const auto json = nlohmann::json::parse(ferry({"status", "-o", "json"}).out);
  EXPECT_EQ(json["accelerators"][0]["address"], "0000:65:00.0");
  EXPECT_EQ(json["accelerators"][0]["iommu_group"], 41);
  EXPECT_EQ(json["accelerators"][0]["members"].size(), 4U);
}

TEST_F(CommandLine, ShowsMachinesWhatAnAcceleratorTellsOfItself) {
  const std::string gpu = "sys/devices/pci0000:00/0000:65:00.0/";
  kernel_.file(gpu + "reset_method", "flr bus\n");
  kernel_.file(gpu + "power_state", "D0\n");
  kernel_.file(gpu + "resource", "0x0000000091000000 0x0000000091ffffff 0x0000000000040200\nrubbish\n");
  kernel_.file(gpu + "resource1_resize", "0000000000000300\n");
  kernel_.file("dev/iommu", "");
  const auto json = nlohmann::json::parse(ferry({"status", "-o", "json"}).out);
  EXPECT_EQ(json["iommufd"], true);
  const auto& facts = json["accelerators"][0]["facts"];
  EXPECT_EQ(facts["reset"], nlohmann::json::parse(R"({"methods":["flr","bus"],"offered":false})"));
  EXPECT_EQ(facts["power"]["state"], "D0");
  EXPECT_EQ(facts["power"]["d3cold_allowed"], nullptr) << "absent is null";
  EXPECT_EQ(facts["link"]["max_speed"], nullptr);
  EXPECT_EQ(facts["bars"], nlohmann::json::parse(R"([{"index":0,"kind":"memory","start":"0x91000000",
      "size":16777216,"is_64bit":false,"prefetchable":false,"flags":"0x40200"}])"));
  EXPECT_EQ(facts["resizable_bars"], nlohmann::json::parse(R"([{"index":1,"sizes_mib":[256,512]}])"));
  EXPECT_EQ(facts["notes"], nlohmann::json::parse(R"(["resource: line 2 is no address range"])"));
  EXPECT_THAT(ferry({"status", "-o", "yaml"}).out, HasSubstr("iommufd: true"));
}

TEST_F(CommandLine, ShowsMachinesTheKernelsRuleAndOurs) {
  auto gpu = nlohmann::json::parse(ferry({"status", "-o", "json"}).out)["accelerators"][0];
  EXPECT_EQ(gpu["group_viable"], false);
  EXPECT_EQ(gpu["group_blockers"],
            nlohmann::json::parse(R"(["0000:65:00.0","0000:65:00.1","0000:65:00.2"])"));
  EXPECT_EQ(gpu["movable"], true);
  EXPECT_THAT(gpu["movable_reasons"], IsEmpty());

  kernel_.add_function(
      {.address = "0000:66:00.0", .ids = "144d:a80a", .class_code = 0x010802, .group = 41, .driver = "nvme"});
  gpu = nlohmann::json::parse(ferry({"status", "-o", "json"}).out)["accelerators"][0];
  EXPECT_EQ(gpu["movable"], false);
  ASSERT_EQ(gpu["movable_reasons"].size(), 1U);
  EXPECT_THAT(gpu["movable_reasons"][0].get<std::string>(), HasSubstr("0000:66:00.0 (144d:a80a"));
  const auto plan = nlohmann::json::parse(ferry({"vfio", "plan", "--all", "-o", "json"}).out)["results"][0];
  EXPECT_EQ(plan["group_viable"], false);
  EXPECT_EQ(plan["group_blockers"], nlohmann::json::parse(R"(["0000:66:00.0"])"));
}

TEST_F(CommandLine, ShowsThatTheKernelAllowsWhatFerryDoesNot) {
  // Nothing in the group has a driver, so the kernel has no objection; that the GPU has VFs is ours.
  kernel_.add_function({.address = "0000:70:00.0",
                        .ids = "10de:2330",
                        .class_code = 0x030200,
                        .group = 70,
                        .totalvfs = 16,
                        .numvfs = 2});
  const auto gpu = nlohmann::json::parse(ferry({"status", "-o", "json"}).out)["accelerators"][1];
  EXPECT_EQ(gpu["address"], "0000:70:00.0");
  EXPECT_EQ(gpu["group_viable"], true);
  EXPECT_THAT(gpu["group_blockers"], IsEmpty());
  EXPECT_EQ(gpu["movable"], false);
  EXPECT_EQ(gpu["movable_reasons"],
            nlohmann::json::parse(R"(["0000:70:00.0 has 2 virtual functions enabled"])"));
}

TEST_F(CommandLine, ShowsThatNothingRebindsWithoutAnIommu) {
  FakeKernel bare;
  bare.directory("proc/1/fd");
  bare.add_function({.address = "0000:01:00.0"});
  const auto status = run_ferry({"--host-root", bare.root().string(), "status", "-o", "json"});
  const auto gpu = nlohmann::json::parse(status.out)["accelerators"][0];
  EXPECT_EQ(gpu["group_viable"], false);
  EXPECT_EQ(gpu["movable"], false);
  EXPECT_THAT(gpu["movable_reasons"][0].get<std::string>(), HasSubstr("no active IOMMU"));
  const auto table = run_ferry({"--host-root", bare.root().string(), "status"});
  EXPECT_THAT(table.out, HasSubstr("nothing here can be given to a VM: this host has no active IOMMU"));
}

TEST_F(CommandLine, ShowsThatNothingRebindsInVfiosNoIommuMode) {
  kernel_.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
  const auto gpu = nlohmann::json::parse(ferry({"status", "-o", "json"}).out)["accelerators"][0];
  EXPECT_THAT(gpu["movable_reasons"][0].get<std::string>(), HasSubstr("no-IOMMU mode"));
  const auto table = ferry({"status"});
  EXPECT_THAT(table.out,
              HasSubstr("VM: vfio runs in its no-IOMMU mode, which isolates nothing\nhint: unset"));
  EXPECT_THAT(table.out, testing::Not(HasSubstr("no active IOMMU")));
}

TEST_F(CommandLine, RestoresAnNvSwitchThatWasTakenOnRequest) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function({.address = "0000:83:00.0",
                        .ids = "10de:22a3",
                        .class_code = 0x068000,
                        .group = 83,
                        .driver = "vfio-pci",
                        .driver_override = "vfio-pci"});
  ASSERT_TRUE(vfio::write_undo_journal(
      kernel_, 83,
      {{test::at("0000:83:00.0"),
        {.ids = "10de:22a3", .driver = {}, .driver_override = {}, .role = "accelerator"}}}));
  const auto result = ferry({"vfio", "restore", "--dry-run"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0000:83:00.0  vfio-pci -> the kernel's choice (accelerator)"));
  EXPECT_THAT(ferry({"vfio", "unbind", "--all", "--dry-run"}).out, HasSubstr("nothing to do"));
}

TEST_F(CommandLine, RestoresWhatIsChosenOfWhatWasRebound) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  for (const unsigned group : {80U, 81U, 82U}) {
    const std::string address = "0000:" + std::to_string(group) + ":00.0";
    kernel_.add_function({.address = address,
                          .ids = group == 81 ? "10de:20b5" : "10de:2330",
                          .group = group,
                          .driver = "vfio-pci",
                          .driver_override = "vfio-pci"});
    if (group == 82) continue;  // by somebody else
    ASSERT_TRUE(vfio::write_undo_journal(kernel_, group,
                                         {{test::at(address),
                                           {.ids = group == 81 ? "10de:20b5" : "10de:2330",
                                            .driver = "nouveau",
                                            .driver_override = {},
                                            .role = "accelerator"}}}));
  }
  const auto restored = [&](std::vector<std::string> choice) {
    choice.insert(choice.begin(), {"vfio", "restore", "--dry-run", "-o", "json"});
    const auto result = ferry(choice);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  constexpr const char* kFirst = "nouveau";
  EXPECT_THAT(
      restored({"--device", "0000:80:00.0"}),
      testing::AllOf(HasSubstr("0000:80:00.0"), HasSubstr(kFirst), testing::Not(HasSubstr("0000:81:00.0"))));
  EXPECT_THAT(restored({"--model", "10de:20b5"}),
              testing::AllOf(HasSubstr("0000:81:00.0"), testing::Not(HasSubstr("0000:80:00.0"))));
  EXPECT_THAT(restored({"--all"}), testing::AllOf(HasSubstr("0000:80:00.0"), HasSubstr("0000:81:00.0"),
                                                  testing::Not(HasSubstr("0000:82:00.0"))));
  EXPECT_THAT(restored({"--group", "82"}), testing::Not(HasSubstr("unbind"))) << "Ferry has not bound it";
  const auto wrong = ferry({"vfio", "restore", "--device", "0000:99:00.0"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("there is no PCI function 0000:99:00.0"));
}

TEST_F(CommandLine, PlansWithReasonsAndWritesNothing) {
  const auto result = ferry({"vfio", "plan", "--all", "--explain"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0000:65:00.0 (group 41): would bind"));
  EXPECT_THAT(result.out, HasSubstr("0000:65:00.1  snd_hda_intel -> vfio-pci (companion)"));
  EXPECT_THAT(result.out,
              HasSubstr("unbind 0000:65:00.0 from nouveau  because the host's driver must release it"));
  EXPECT_FALSE(kernel_.exists("run/ferry"));
  EXPECT_EQ(kernel_.driver_of("0000:65:00.0"), "nouveau");
}

TEST_F(CommandLine, ExitsWith4WhenSomethingCannotRebind) {
  kernel_.add_function(
      {.address = "0000:66:00.0", .ids = "144d:a80a", .class_code = 0x010802, .group = 41, .driver = "nvme"});
  const auto plan = ferry({"vfio", "plan", "--all"});
  EXPECT_EQ(plan.status, 4);
  EXPECT_THAT(plan.out, HasSubstr("0000:65:00.0 (group 41): refused"));
  EXPECT_THAT(plan.out, HasSubstr("0000:66:00.0 (144d:a80a, class 0108, driver nvme) shares the group"));
  EXPECT_THAT(plan.out,
              HasSubstr("the kernel's own rule is against it too: 0000:66:00.0 would still not be on vfio"));
  EXPECT_EQ(ferry({"vfio", "bind", "--all"}).status, 4);
  EXPECT_THAT(ferry({"status"}).out, HasSubstr("not viable"));
  const auto json = nlohmann::json::parse(ferry({"vfio", "plan", "--all", "-o", "json"}).out);
  EXPECT_EQ(json["results"][0]["status"], "refused");
}

TEST_F(CommandLine, SaysWhereTheKernelWouldAllowWhatItRefuses) {
  kernel_.add_function({.address = "0000:70:00.0",
                        .ids = "10de:2330",
                        .class_code = 0x030200,
                        .group = 70,
                        .driver = "nouveau",
                        .totalvfs = 16,
                        .numvfs = 2});
  const auto plan = ferry({"vfio", "plan", "--device", "0000:70:00.0"});
  EXPECT_EQ(plan.status, 4);
  EXPECT_THAT(plan.out, HasSubstr("the kernel's own rule would let a VM have all that is asked for"));
  const auto json =
      nlohmann::json::parse(ferry({"vfio", "plan", "--device", "0000:70:00.0", "-o", "json"}).out)["results"];
  EXPECT_EQ(json[0]["group_viable"], true);
}

TEST_F(CommandLine, SaysNothingGoodOfTheKernelWhereItRefusesToo) {
  const std::map<std::string, std::string> reasons = {{"0000:70:00.0", "the firmware reserves"},
                                                      {"0000:71:00.0", "the device is off the bus"},
                                                      {"0000:72:00.0", "cannot be read"},
                                                      {"0000:73:00.0", "is in no IOMMU group"}};
  unsigned group = 70;
  for (const auto& [address, reason] : reasons)
    kernel_.add_function({.address = address,
                          .ids = "10de:2330",
                          .class_code = 0x030200,
                          .group = group++,
                          .driver = "nouveau"});
  kernel_.file("sys/kernel/iommu_groups/70/reserved_regions",
               "0x0000000080000000 0x0000000080ffffff direct\n");
  kernel_.file("sys/devices/pci0000:00/0000:71:00.0/config", std::string(64, '\xff'));
  kernel_.file("sys/devices/pci0000:00/0000:72:00.0/config", "short");
  kernel_.add_function(
      {.address = "0000:73:00.1", .ids = "10de:22ba", .class_code = 0x040300, .driver = "snd_hda_intel"});
  for (const auto& [address, reason] : reasons) {
    const auto plan = ferry({"vfio", "plan", "--device", address});
    EXPECT_EQ(plan.status, 4) << address;
    EXPECT_THAT(plan.out, AllOf(HasSubstr(reason), Not(HasSubstr("the kernel's own rule"))));
    const auto json = nlohmann::json::parse(ferry({"vfio", "plan", "--device", address, "-o", "json"}).out);
    EXPECT_EQ(json["results"][0]["group_viable"], false) << address;
  }
}

TEST_F(CommandLine, PrintsTheSameDocumentAsYaml) {
  const auto result = ferry({"-o", "yaml", "vgpu", "validate", "-f", "@good.yaml"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("profiles:\n  - \"one\"\n"));
}

// docs/command-line.md has the table of verbs. The program's help has those that exist.
TEST_F(CommandLine, HasTheVerbsThatItsPageLists) {
  std::ifstream page(FERRY_COMMAND_LINE_PAGE);
  std::map<std::string, std::set<std::string>> listed;  // of `vfio` and the like what stands below them
  for (std::string line; std::getline(page, line);) {
    constexpr std::string_view kStart = "| `ferry ";
    if (!line.starts_with(kStart)) continue;
    std::istringstream words(line.substr(kStart.size(), line.find('`', kStart.size()) - kStart.size()));
    std::string verb;
    words >> verb;
    listed[""].insert(verb);
    for (std::string word; words >> word && !word.starts_with('-');) {
      listed[verb].insert(word.substr(0, word.find(',')));
    }
  }
  const auto in_help = [](const std::string& verb) {
    const auto help = verb.empty() ? run_ferry({"--help"}) : run_ferry({verb, "--help"});
    std::set<std::string> out;
    std::istringstream lines(help.out.substr(help.out.find("\nSubcommands:\n") + 1));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line) && line.starts_with("  ")) {
      if (line[2] != ' ') out.insert(line.substr(2, line.find(' ', 2) - 2));
    }
    return out;
  };
  ASSERT_THAT(listed, testing::SizeIs(testing::Gt(1U)));
  for (const auto& [verb, below] : listed) EXPECT_EQ(in_help(verb), below) << "ferry " << verb;
}

TEST_F(CommandLine, NoticesThatNotAllWasWritten) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--host-root", kernel_.root().string(), "status"},
        {"--help"},
        {"completion", "bash"}}) {
    const auto result = run_ferry_redirected(">/dev/full", words);
    EXPECT_EQ(result.status, 1) << words.back();
    EXPECT_THAT(result.err, HasSubstr("ferry: write standard output: No space left on device"))
        << words.back();
  }
}

TEST_F(CommandLine, EndsAsItWouldWhereNobodyHearsWhy) {
  for (const char* nowhere : {"2>/dev/full", "2>&-", ">&- 2>&- <&-"}) {
    EXPECT_EQ(run_ferry_redirected(nowhere, {"stauts"}).status, 2) << nowhere;
    EXPECT_EQ(run_ferry_redirected(nowhere, {"apply", "-f", "/no/such/file"}).status, 2) << nowhere;
  }
}

TEST_F(CommandLine, AClosedStreamIsNoFileOfItsOwn) {
  const auto in = run_ferry_redirected("<&-", {"assert", "-f", "-"});
  EXPECT_EQ(in.status, 2);
  EXPECT_THAT(in.err, HasSubstr("Bad file descriptor"));
  EXPECT_EQ(run_ferry_redirected(">&-", {"--host-root", kernel_.root().string(), "status"}).status, 1);
}

TEST_F(CommandLine, ListsItsVerbsAndItsVersion) {
  const auto help = run_ferry({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* verb : {"status", "vfio", "vgpu", "plugin", "kata"})
    EXPECT_THAT(help.out, HasSubstr(verb));
  EXPECT_THAT(help.out, HasSubstr("\nExit status:\n  0  done"));
  EXPECT_THAT(help.out, HasSubstr("-o,--output FORMAT")) << "and not a table of numbers";
  for (const char* word : {"--version", "version"})
    EXPECT_EQ(run_ferry({word}).out, std::string("ferry ") + kVersion + "\n");
  EXPECT_EQ(run_ferry({"help"}).out, help.out);
  EXPECT_EQ(run_ferry({"help", "vfio", "bind"}).out, run_ferry({"vfio", "bind", "--help"}).out);
  EXPECT_THAT(run_ferry({"--host-root", "status"}).err, HasSubstr("--host-root took 'status' as its folder"));
}

}  // namespace
}  // namespace ferry::cli
