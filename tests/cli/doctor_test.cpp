// SPDX-License-Identifier: Apache-2.0
// `ferry doctor` as a user meets it: exit status, what is printed, the shape of the document.
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/vfio/doctor_machines.h"

namespace ferry::cli {
namespace {

using test::FakeKernel;
using test::of_gpu;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

class Doctor : public testing::Test {
 protected:
  Doctor() { test::build_healthy(kernel_); }
  test::ProgramResult doctor(std::vector<std::string> arguments = {}) const {
    arguments.insert(arguments.begin(), {"--host-root", kernel_.root().string(), "doctor"});
    return test::run_ferry(arguments);
  }
  FakeKernel kernel_;
};

TEST_F(Doctor, ExitsWith0OnAHealthyHostAndSumsUp) {
  constexpr const char* kVerdict = "passthrough: ready (37 passed, 0 warnings, 0 failed, 0 unknown)\n";
  const auto result = doctor();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, std::string(kVerdict) + "`-v` also prints the checks that passed\n");
  const auto all = doctor({"-v"});
  EXPECT_THAT(all.out, StartsWith(std::string(kVerdict) +
                                  "host\n  pass     firmware-iommu-table    /sys/firmware/acpi/tables has "
                                  "DMAR\n"));
  EXPECT_THAT(all.out, HasSubstr("\n0000:65:00.0 AD102 [GeForce RTX 4090]\n  pass     function-readable "));
  EXPECT_THAT(all.out, Not(HasSubstr("why: ")));
  EXPECT_FALSE(kernel_.exists("run/ferry"));
}

TEST_F(Doctor, ExitsWith0OnWarningsAndOnWhatIsUnknown) {
  kernel_.file(of_gpu("boot_vga"), "1\n");
  kernel_.file(of_gpu("power_state"), "?\n");
  const auto result = doctor({"--for", "passthrough"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("  warn     boot-display "));
  EXPECT_THAT(result.out, HasSubstr("  unknown  power-state "));
  EXPECT_THAT(result.out,
              StartsWith("passthrough: ready, with remarks (35 passed, 1 warning, 0 failed, 1 unknown)\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("  pass ")));
}

TEST_F(Doctor, NamesNvSwitchesWithoutAFabricManager) {
  EXPECT_THAT(doctor({"-v"}).out, Not(HasSubstr("fabric-manager")));
  kernel_.add_function({.address = "0000:05:00.0", .ids = "10de:22a3", .class_code = 0x068000, .group = 2});
  kernel_.file("proc/1/comm", "systemd\n");
  EXPECT_THAT(doctor().out, HasSubstr("  warn     fabric-manager "));
  kernel_.file("proc/812/comm", "nv-fabricmanage\n");
  EXPECT_THAT(doctor({"-v"}).out, HasSubstr("  pass     fabric-manager "));
}

TEST_F(Doctor, NamesSwitchesOnVfioThatNoVmGets) {
  kernel_.add_driver({.name = "nvidia-nvswitch", .ids = {"10de:22a3"}});
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function(test::kinds::kNvSwitch, "0000:05:00.0", 2, "nvidia-nvswitch");
  kernel_.add_function({.address = "0000:06:00.0",
                        .ids = "10de:22a3",
                        .class_code = 0x068000,
                        .group = 3,
                        .driver = "vfio-pci",
                        .driver_override = "vfio-pci"});
  kernel_.file("proc/812/comm", "nv-fabricmanage\n");
  kernel_.file("usr/share/nvidia/nvswitch/fabricmanager.cfg", "FABRIC_MODE=0\n");
  EXPECT_THAT(doctor({"-v"}).out, HasSubstr("  pass     fabric-manager "));

  kernel_.file("usr/share/nvidia/nvswitch/fabricmanager.cfg", "FABRIC_MODE=1\n");
  const auto shared = doctor();
  EXPECT_THAT(shared.out, HasSubstr("  warn     fabric-manager "));
  EXPECT_THAT(shared.out, HasSubstr("shares those on vfio (0000:06:00.0) among VMs"));

  kernel_.file("sys/kernel/iommu_groups/3/reserved_regions",
               "0x000000007b000000 0x000000007f7fffff direct\n");
  const auto broken = doctor();
  EXPECT_THAT(broken.out, HasSubstr("passthrough: 1 of 1 GPU ready ("));
  EXPECT_THAT(broken.out, HasSubstr("\n0000:06:00.0 "));
  EXPECT_THAT(broken.out, HasSubstr("  fail     reserved-regions "));
}

TEST_F(Doctor, ExitsWith1WhenACheckFailsAndShowsTheFix) {
  kernel_.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
  const auto result = doctor();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, StartsWith("passthrough: not ready ("));
  EXPECT_THAT(result.out, HasSubstr("  fail     noiommu-mode "));
  EXPECT_THAT(result.out, HasSubstr("\n           fix: write N to it"));
}

TEST_F(Doctor, FitsTheTerminal) {
  kernel_.file(of_gpu("boot_vga"), "1\n");
  const auto result =
      test::run_ferry_as("ferry", {"--host-root", kernel_.root().string(), "doctor", "-v"}, {"COLUMNS=80"});
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST_F(Doctor, HasAVerdictForEachPurpose) {
  const auto result = doctor({"-v", "--for", "passthrough,kubevirt"});
  EXPECT_EQ(result.status, 1) << "one of them is not ready";
  EXPECT_THAT(result.out, StartsWith("passthrough: ready ("));
  EXPECT_THAT(result.out, HasSubstr("\nkubevirt: not ready ("));
}

TEST_F(Doctor, CountsTheGpusThatAreReady) {
  // The GPU of build_healthy() at 65:00.0 is ready. Another device shares the group of 66:00.0.
  kernel_.add_driver({.name = "i40e", .ids = {"8086:1572"}});
  kernel_.add_function({.address = "0000:66:00.0", .ids = "10de:1db4", .class_code = 0x030200, .group = 66});
  kernel_.add_function(
      {.address = "0000:67:00.0", .ids = "8086:1572", .class_code = 0x020000, .group = 66, .driver = "i40e"});
  const auto some = doctor();
  EXPECT_EQ(some.status, 0) << some.out;
  EXPECT_THAT(some.out, StartsWith("passthrough: 1 of 2 GPUs ready ("));
  EXPECT_THAT(some.out, HasSubstr("  fail     group-moves-whole "));
  const auto verdicts = nlohmann::json::parse(doctor({"-o", "json"}).out)["verdicts"];
  EXPECT_EQ(verdicts,
            (nlohmann::json{{{"for", "passthrough"}, {"ready", true}, {"gpus", 2}, {"gpus_ready", 1}}}));
  // A setting of the host is about all GPUs.
  kernel_.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
  const auto none = doctor();
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.out, StartsWith("passthrough: not ready ("));
}

TEST_F(Doctor, IsNotApplicableWhereNoGpuCounts) {
  kernel_.remove_function(test::kGpu);
  kernel_.add_driver({.name = "amdgpu", .ids = {"1002:1638"}});
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function({.address = "0000:04:00.0", .ids = "1002:1638", .group = 5, .driver = "amdgpu"});
  for (const char* const purpose : {"passthrough", "vgpu", "kubevirt", "dra"}) {
    const auto result = doctor({"--for", purpose});
    EXPECT_EQ(result.status, 0) << purpose;
    EXPECT_THAT(result.out, StartsWith(std::string(purpose) +
                                       ": not applicable: there are no GPUs of NVIDIA on this host; "
                                       "0000:04:00.0 (GPU, 1002:1638) counts where it is named ("));
  }
  const auto verdict = [this] { return nlohmann::json::parse(doctor({"-o", "json"}).out)["verdicts"][0]; };
  const nlohmann::json none = {{"for", "passthrough"}, {"ready", false}, {"gpus", 0}, {"gpus_ready", 0}};
  EXPECT_EQ(verdict(), none);
  kernel_.remove_function("0000:04:00.0");
  EXPECT_EQ(verdict(), none) << "there is no GPU at all";
  EXPECT_EQ(doctor().status, 0);

  // On vfio it is for VMs, whoever named it.
  kernel_.add_function({.address = "0000:04:00.0",
                        .ids = "1002:1638",
                        .group = 5,
                        .driver = "vfio-pci",
                        .driver_override = "vfio-pci"});
  EXPECT_EQ(verdict()["gpus"], 1);
  EXPECT_THAT(doctor({"--for", "kubevirt"}).out, StartsWith("kubevirt: not ready ("));
}

TEST_F(Doctor, PrintsTheFindingOfSeveralGpusOnce) {
  kernel_.add_driver({.name = "nvidia", .ids = {"10de:1db4"}});
  for (const char* const address : {"0000:66:00.0", "0000:67:00.0"})
    kernel_.add_function(
        {.address = address, .ids = "10de:1db4", .class_code = 0x030200, .driver = "nvidia"});
  const auto result = doctor({"--for", "vgpu"});
  EXPECT_EQ(result.status, 1) << "none has a vGPU host driver";
  EXPECT_THAT(result.out, HasSubstr("\n           also: 0000:67:00.0\n"));
  const auto count = [&result](std::string_view text) {
    std::size_t out = 0;
    for (auto at = result.out.find(text); at != std::string::npos; at = result.out.find(text, at + 1)) ++out;
    return out;
  };
  EXPECT_EQ(count("  fail     vgpu-host-driver "), 2U) << "nouveau, and nvidia once:\n" << result.out;
}

TEST_F(Doctor, PrintsTheSameForMachines) {
  kernel_.file(of_gpu("virtfn0"), "");
  const auto result = doctor({"-o", "json"});
  EXPECT_EQ(result.status, 1);
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["for"], nlohmann::json::array({"passthrough"}));
  EXPECT_EQ(document["summary"],
            (nlohmann::json{{"passed", 36}, {"warnings", 0}, {"failed", 1}, {"unknown", 0}}));
  ASSERT_EQ(document["checks"].size(), 37U);
  for (const auto& check : document["checks"]) {
    std::vector<std::string> keys;
    for (const auto& item : check.items()) keys.push_back(item.key());
    EXPECT_THAT(keys, UnorderedElementsAre("id", "subject", "verdict", "found", "why", "fix"));
    const bool failed = check["id"] == "virtual-functions-off";
    EXPECT_EQ(check["verdict"], failed ? "fail" : "pass") << check["id"];
    EXPECT_EQ(check["fix"].is_null(), !failed) << check["id"];
  }
  EXPECT_EQ(document["checks"][0]["subject"], "host");
  EXPECT_EQ(document["checks"][28]["subject"], "0000:65:00.0");
  EXPECT_THAT(doctor({"-o", "yaml"}).out, HasSubstr("verdict: \"fail\""));
}

TEST_F(Doctor, ChecksForClaims) {
  const auto bare = doctor({"--for", "dra"});
  EXPECT_EQ(bare.status, 0) << bare.err << bare.out;
  EXPECT_THAT(bare.out, HasSubstr("  unknown  dra-registered "));
  EXPECT_THAT(bare.out, HasSubstr("  warn     dra-gpus "));
  EXPECT_THAT(bare.out, HasSubstr("  unknown  cdi-enabled ")) << "there is no container runtime";
  kernel_.file("var/lib/kubelet/plugins_registry/gpu-ferry.io-reg.sock", "");
  kernel_.file("run/containerd/containerd.sock", "");
  kernel_.file("etc/containerd/config.toml", "version = 3\n");
  const auto all = doctor({"-v", "--for", "dra"});
  EXPECT_THAT(all.out, HasSubstr("  pass     dra-registered "));
  EXPECT_THAT(all.out, HasSubstr("  pass     cdi-enabled "));
  EXPECT_THAT(all.out, HasSubstr("\n0000:65:00.0 AD102 [GeForce RTX 4090]\n  pass     dra-iommu-group "));
}

TEST_F(Doctor, RefusesAPurposeThatItDoesNotKnow) {
  for (const char* purpose : {"passthrugh", "passthrough,passtrough", "Passthrougth"}) {
    const auto result = doctor({"--for", purpose});
    EXPECT_EQ(result.status, 2) << purpose;
    EXPECT_THAT(result.err, HasSubstr("did you mean 'passthrough'?")) << purpose;
    EXPECT_THAT(result.err, HasSubstr("hint: --for takes passthrough, vgpu")) << purpose;
    EXPECT_THAT(result.out, IsEmpty()) << purpose;
  }
  for (const char* purpose : {"", "qemu", "passthrough,", ","}) {
    const auto result = doctor({std::string("--for=") + purpose});
    EXPECT_EQ(result.status, 2) << purpose;
    EXPECT_THAT(result.err, HasSubstr("hint: ")) << purpose;
  }
}

TEST_F(Doctor, LooksForVgpusWhenAsked) {
  const auto result = doctor({"--for", "vgpu"});
  EXPECT_EQ(result.status, 1);  // nouveau makes none
  EXPECT_THAT(result.out, HasSubstr("  fail     vgpu-host-driver "));
  EXPECT_THAT(result.out, Not(HasSubstr("firmware-iommu-table")));
  const auto both = nlohmann::json::parse(doctor({"--for", "vgpu,passthrough", "-o", "json"}).out);
  EXPECT_EQ(both["for"], nlohmann::json::array({"passthrough", "vgpu"}));
}

TEST_F(Doctor, LooksForKataAndItsClassesWhenAsked) {
  const auto result = doctor({"--for", "kata"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("  fail     kvm-there "));
  EXPECT_THAT(result.out, Not(HasSubstr("\nclass ")));
  kernel_.file("classes.yaml",
               "runtimeClasses: [{name: kata-nvidia-gpu-snp, artifacts: {url: \"r/i:1\"}}]\n");
  const std::string classes = (kernel_.root() / "classes.yaml").string();
  const auto with = doctor({"--for", "kata", "--classes", classes});
  EXPECT_THAT(with.out, HasSubstr("\nclass kata-nvidia-gpu-snp\n"));
  EXPECT_THAT(with.out, HasSubstr("  fail     confidential-class "));
  EXPECT_EQ(doctor({"--for", "kata", "--classes", classes + "x"}).status, 2);
  const auto alone = doctor({"--classes", classes});
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err, HasSubstr("--classes: only the checks for kata look at classes"));
  const auto nowhere =
      test::run_ferry({"--host-root", (kernel_.root() / "proc").string(), "doctor", "--node-file", classes});
  EXPECT_EQ(nowhere.status, 2) << "what is asked for is wrong on every host";
  EXPECT_THAT(nowhere.err, HasSubstr("--node-file: only the checks for kata look at a Node"));
}

TEST_F(Doctor, FailsWhereThereIsNoHost) {
  const auto result = test::run_ferry({"--host-root", (kernel_.root() / "proc").string(), "doctor"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("scan PCI functions"));
  EXPECT_THAT(result.err, HasSubstr("hint: is "));
}

}  // namespace
}  // namespace ferry::cli
