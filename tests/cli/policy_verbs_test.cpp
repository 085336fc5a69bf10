// SPDX-License-Identifier: Apache-2.0
// `ferry assert`, `export` and `convert` as a user calls them.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/support/fake_mdev.h"
#include "tests/vfio/machines.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using test::run_ferry;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kT4 = "0000:05:00.0";

/// GPU 0 is a T4 that carries a vGPU, GPU 1 is given away.
class PolicyVerbs : public testing::Test {
 protected:
  PolicyVerbs() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_function(
        {.address = kT4, .ids = "10de:1eb8", .class_code = 0x030200, .group = 5, .driver = "nvidia"});
    kernel_.add_function(
        {.address = "0000:07:00.0", .group = 7, .driver = "vfio-pci", .driver_override = "vfio-pci"});
    mdev_.add_parent(kT4);
    mdev_.add_device(kT4, "nvidia-232", "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10");
    kernel_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel_.directory("proc/1/fd");
  }
  std::string path(const std::string& name) const { return (kernel_.root() / name).string(); }
  test::ProgramResult ferry(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--host-root", kernel_.root().string()});
    return run_ferry(arguments);
  }
  test::FakeKernel kernel_;
  test::FakeMdev mdev_{kernel_};
};

// What is taken away cannot be put back for the pod that was given it.
TEST_F(PolicyVerbs, ApplyTakesNoVgpuAwayWhileTheKubeletIsSilent) {
  kernel_.file("p.yaml", "version: v2\npolicies:\n  bare: [{devices: [0], mode: host}]\n");
  const std::vector<std::string> dry = {"apply", "-f",        path("p.yaml"), "-c",
                                        "bare",  "--dry-run", "--foreign"};
  EXPECT_EQ(ferry(dry).status, 0);
  kernel_.file("var/lib/kubelet/pod-resources/kubelet.sock", "");  // nobody answers
  const auto silent = ferry(dry);
  EXPECT_EQ(silent.status, 4) << silent.err;
  EXPECT_THAT(silent.out, HasSubstr("Ferry cannot find out whether its vGPUs are in use"));
}

TEST_F(PolicyVerbs, AssertSaysWhatDiffers) {
  kernel_.file("p.yaml",
               "version: v2\npolicies:\n"
               "  so: [{model: \"*T4*\", mode: vgpu, vgpu-devices: {T4-4Q: 1}}]\n"
               "  other:\n  - {devices: all, mode: host}\n"
               "  - {model: \"10de:1eb8\", mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
  const auto so = ferry({"assert", "-f", path("p.yaml"), "-c", "so"});
  EXPECT_EQ(so.status, 0) << so.out << so.err;
  EXPECT_EQ(so.out,
            "GPU 0 (0000:05:00.0): vgpu, 1 x T4-4Q\n"
            "GPU 1 (0000:07:00.0): passthrough; no item is for it\n"
            "policy so: the host agrees\n");
  const auto other = ferry({"assert", "-f", path("p.yaml"), "-c", "other"});
  EXPECT_EQ(other.status, 3);
  EXPECT_EQ(other.out,
            "GPU 0 (0000:05:00.0): expected 2 x T4-4Q, found 1 x T4-4Q\n"
            "GPU 1 (0000:07:00.0): expected host, found passthrough (driver vfio-pci)\n"
            "policy other: the host differs\n");
  const json document = json::parse(ferry({"assert", "-f", path("p.yaml"), "-c", "other", "-o", "json"}).out);
  EXPECT_EQ(document.at("agrees"), false);
  EXPECT_EQ(document.at("gpus").at(1).at("desired"), "host");
  EXPECT_EQ(document.at("gpus").at(0).at("desired_vgpus"), json({{"T4-4Q", 2}}));
  EXPECT_EQ(ferry({"assert", "-f", path("p.yaml")}).status, 2);
}

TEST_F(PolicyVerbs, AssertRefusesWhatApplyRefusesOnAnyHost) {
  kernel_.add_function(
      {.address = "0000:07:01.0", .group = 7, .driver = "vfio-pci", .driver_override = "vfio-pci"});
  kernel_.file("p.yaml",
               "version: v2\npolicies:\n"
               "  half:\n  - {devices: [1], mode: passthrough}\n  - {devices: [2], mode: host}\n"
               "  mixed:\n  - {devices: [1], mode: passthrough}\n  - {devices: [2], allocation: dra}\n"
               "  claimed:\n  - {devices: [1], allocation: dra}\n");
  for (const char* policy : {"half", "mixed", "claimed"})
    for (const std::vector<std::string>& verb :
         {std::vector<std::string>{"assert"}, {"apply", "--dry-run"}}) {
      std::vector<std::string> words = verb;
      words.insert(words.end(), {"-f", path("p.yaml"), "-c", policy});
      const auto said = ferry(words);
      EXPECT_EQ(said.status, 4) << policy << said.out << said.err;
      EXPECT_THAT(said.err, HasSubstr("but they share an IOMMU group")) << policy;
    }
}

TEST_F(PolicyVerbs, LeaveGpusForClaimsToTheirClaims) {
  kernel_.file("p.yaml", "version: v2\npolicies:\n  a: [{devices: all, allocation: dra}]\n");
  const auto asserted = ferry({"assert", "-f", path("p.yaml")});
  EXPECT_EQ(asserted.status, 0) << asserted.err;
  EXPECT_EQ(asserted.out,
            "GPU 0 (0000:05:00.0): vgpu, 1 x T4-4Q; its claims decide\n"
            "GPU 1 (0000:07:00.0): passthrough; its claims decide\n"
            "policy a: the host agrees\n");
  const json document = json::parse(ferry({"assert", "-f", path("p.yaml"), "-o", "json"}).out);
  EXPECT_EQ(document.at("gpus").at(1).at("allocation"), "dra");
  EXPECT_EQ(ferry({"apply", "-f", path("p.yaml"), "--dry-run"}).status, 0);
  kernel_.file("run/ferry/claims/gpus.json",
               R"({"version": 1, "gpus": [{"address": "0000:05:00.0", "iommu_group": 5, "vendor": 4318,)"
               R"("device": 7864, "memory_mib": 0, "for_dra": true, "whole": true, "framework": "mdev",)"
               R"("mixed_sizes": false, "types": [], "health": "ready"}]})");
  const auto exported = ferry({"export", "-c", "now"});
  EXPECT_EQ(exported.status, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("  - devices: [0]\n    allocation: dra\n"));
  kernel_.file("run/ferry/claims/gpus.json", "{");
  const auto unread = ferry({"export", "-c", "now"});
  EXPECT_EQ(unread.status, 0);
  EXPECT_THAT(unread.err,
              HasSubstr("warning: GPUs for ResourceClaims are not known: /run/ferry/claims/gpus"));
}

// One file is for many nodes: it agrees, and what it does not reach here is said.
TEST_F(PolicyVerbs, WarnOfItemsThatMatchNoGpuHere) {
  const std::string first =
      "version: v2\npolicies:\n  a:\n  - {devices: [0], mode: vgpu, vgpu-devices: {T4-4Q: 1}}\n";
  for (const char* item : {"devices: [9]", "devices: []", "vendor: 8086", "numa-node: 7", "model: '*H100*'",
                           "address: '0000:99:00.0'", "device-filter: '0x233010DE'"}) {
    kernel_.file("p.yaml", first + "  - {" + item + ", mode: host}\n");
    const std::string idle = path("p.yaml") + ":5: matches no GPU of this node";
    for (const std::vector<std::string>& verb :
         {std::vector<std::string>{"assert"}, {"apply", "--dry-run"}}) {
      std::vector<std::string> words = verb;
      words.insert(words.end(), {"-f", path("p.yaml")});
      const auto said = ferry(words);
      EXPECT_EQ(said.status, 0) << said.out << said.err;
      EXPECT_EQ(said.err, "warning: " + idle + "\n") << item;
      words.insert(words.end(), {"-o", "json"});
      EXPECT_EQ(json::parse(ferry(words).out).at("warnings"), json::array({idle})) << item;
    }
  }
  std::string many = first;
  for (int i = 0; i < 5; ++i) many += "  - {devices: [9], mode: host}\n";
  kernel_.file("p.yaml", many);
  EXPECT_EQ(ferry({"assert", "-f", path("p.yaml")}).err,
            "warning: " + path("p.yaml") + ":5: matches no GPU of this node; nor do 4 more\n");
  kernel_.file("v1.yaml",
               "version: v1\nvgpu-configs:\n  a:\n  - {devices: all, vgpu-devices: {T4-4Q: 1}}\n"
               "  - {devices: [9], vgpu-devices: {}}\n");
  const auto v1 = ferry({"vgpu", "assert", "-f", path("v1.yaml"), "-o", "json"});
  EXPECT_EQ(json::parse(v1.out).at("warnings").size(), 1U);
  EXPECT_EQ(v1.err, "warning: " + path("v1.yaml") + ":5: matches no GPU of this node\n");
}

TEST_F(PolicyVerbs, ExportInEveryFormIsTakenBack) {
  for (const char* form : {"table", "json", "yaml"}) {
    const auto exported = ferry({"export", "-c", "now", "-o", form});
    EXPECT_EQ(exported.status, 0) << exported.err;
    kernel_.file("exported", exported.out);
    const auto agrees = ferry({"assert", "-f", path("exported"), "-c", "now"});
    EXPECT_EQ(agrees.status, 0) << form << "\n" << exported.out << agrees.out << agrees.err;
    const auto applied = ferry({"apply", "-f", path("exported"), "--dry-run", "-o", "json"});
    EXPECT_EQ(applied.status, 0) << applied.out << applied.err;
    EXPECT_THAT(json::parse(applied.out).at("vgpus").at("gpus").at(0).at("steps"), IsEmpty()) << applied.out;
  }
  EXPECT_EQ(ferry({"export"}).out,
            "version: v2\npolicies:\n  current:\n"
            "  - devices: [0]\n    mode: vgpu\n    vgpu-devices:\n      T4-4Q: 1\n"
            "  - devices: [1]\n    mode: passthrough\n");
  EXPECT_EQ(ferry({"export", "-c", "two words"}).status, 2);
  EXPECT_THAT(kernel_.writes(), IsEmpty());
}

TEST_F(PolicyVerbs, ExportSaysTheParametersOfVgpusWhichV1CannotSay) {
  kernel_.file("sys/devices/pci0000:00/0000:05:00.0/5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10/nvidia/vgpu_params",
               "frame_rate_limiter=0\n");
  const auto exported = ferry({"export", "-o", "json"});
  EXPECT_EQ(exported.status, 0) << exported.err;
  EXPECT_EQ(exported.err, "");
  EXPECT_EQ(json::parse(exported.out).at("policies").at("current").at(0).at("vgpu-devices"),
            json({{"T4-4Q", {{"count", 1}, {"vgpu-params", "frame_rate_limiter=0"}}}}));
  const auto v1 = ferry({"vgpu", "export"});
  EXPECT_EQ(v1.status, 0) << v1.err;
  EXPECT_THAT(v1.err,
              HasSubstr("note: GPU 0 (0000:05:00.0): its vGPUs have parameters, which v1 cannot say"));
}

TEST_F(PolicyVerbs, ConvertMakesAPolicyOfAProfile) {
  kernel_.file("v1.yaml",
               "version: v1\nvgpu-configs:\n  a: [{devices: [0], vgpu-devices: {T4-4Q: 1}}]\n"
               "  b: [{devices: all, vgpu-devices: {}}]\n");
  const auto all = ferry({"convert", "-f", path("v1.yaml")});
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(all.out,
            "version: v2\npolicies:\n"
            "  a:\n  - devices: [0]\n    mode: vgpu\n    vgpu-devices:\n      T4-4Q: 1\n"
            "  b:\n  - devices: all\n    mode: vgpu\n    vgpu-devices: {}\n");
  const auto one = ferry({"convert", "-f", path("v1.yaml"), "-c", "b", "-o", "json"});
  EXPECT_EQ(json::parse(one.out), json::parse(R"({"version": "v2", "policies":
      {"b": [{"devices": "all", "mode": "vgpu", "vgpu-devices": {}}]}})"));
  kernel_.file("converted.yaml", all.out);
  EXPECT_EQ(ferry({"assert", "-f", path("converted.yaml"), "-c", "a"}).status, 0);
  const auto missing = ferry({"convert", "-f", path("v1.yaml"), "-c", "c"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("holds no policy 'c'"));
}

}  // namespace
}  // namespace ferry::cli
