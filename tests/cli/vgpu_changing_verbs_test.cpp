// SPDX-License-Identifier: Apache-2.0
// The verbs that change vGPUs, as a user calls them: plan, apply, delete, and the release of a claim.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "api/claimable_gpus.h"
#include "api/files.h"
#include "cli/verbs/question.h"
#include "dra/checkpoint.h"
#include "hostfs/locks.h"
#include "tests/cli/run_program.h"
#include "tests/cli/vgpu_hosts.h"
#include "tests/support/must.h"
#include "tests/vfio/machines.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using test::kA;
using test::kT4;
using test::VgpuVerbs;
using test::VgpuVerbsOnFunctions;
using test::VgpuVerbsOnWholeFunctions;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(VgpuVerbs, DeleteAsksAPersonAboutAllVgpus) {
  mdev_.add_device(kT4, "nvidia-232", kA);
  const auto on_terminal = [this](std::vector<std::string> arguments, const std::string& typed) {
    arguments.insert(arguments.begin(), {"--host-root", kernel_.root().string()});
    return test::run_ferry_on_terminal(arguments, typed);
  };
  for (const char* const typed : {"n\n", "\n", "\x04"}) {
    const auto asked = on_terminal({"vgpu", "delete", "--all", "--foreign"}, typed);
    EXPECT_EQ(asked.status, 4) << asked.out;
    EXPECT_THAT(asked.out, AllOf(HasSubstr("remove 1 vGPU? [y/N] "),
                                 HasSubstr("nothing was changed: the answer is not yes")));
  }
  EXPECT_THAT(mdev_.devices_on(kT4), testing::ElementsAre(std::string("T4-4Q ") + kA));
  const auto none = on_terminal({"vgpu", "delete", "--all"}, "");
  EXPECT_THAT(none.out, testing::Not(HasSubstr("[y/N]"))) << "Ferry made none";
  const std::string remove = fmt::format("sys/devices/pci0000:00/{}/{}/remove", kT4, kA);
  const auto written = [&] { return kernel_.read_file(remove).value_or("unreadable"); };
  const auto dry = on_terminal({"vgpu", "delete", "--all", "--foreign", "--dry-run"}, "");
  EXPECT_EQ(dry.status, 0) << dry.out;
  EXPECT_THAT(dry.out, testing::Not(HasSubstr("[y/N]")));
  EXPECT_EQ(written(), "");
  // The kernel of this host takes the write, and removes nothing.
  const auto agreed = on_terminal({"vgpu", "delete", "--all", "--foreign"}, "y\n");
  EXPECT_EQ(agreed.status, 1) << agreed.out;
  EXPECT_THAT(agreed.out, HasSubstr("remove 1 vGPU? [y/N] "));
  EXPECT_THAT(written(), testing::StartsWith("1"));
  kernel_.file(remove, "");
  const auto unasked = on_terminal({"vgpu", "delete", "--all", "--foreign", "--yes"}, "n\n");
  EXPECT_EQ(unasked.status, 1) << unasked.out;
  EXPECT_THAT(unasked.out, testing::Not(HasSubstr("[y/N]")));
  EXPECT_THAT(written(), testing::StartsWith("1"));
}

TEST(Answer, IsAboutTheDevicesOfTheQuestion) {
  const AskedDevices agreed = {"a", "b"};
  EXPECT_TRUE(check_answer(agreed, agreed, "vGPU"));
  EXPECT_TRUE(check_answer(agreed, {"b"}, "vGPU")) << "fewer are no surprise";
  const auto another = check_answer(agreed, {"b", "c"}, "vGPU");
  ASSERT_FALSE(another);
  EXPECT_EQ(another.error().code, Errc::refused);
  EXPECT_EQ(another.error().message,
            "the host has changed since the question: now it is about 2 vGPUs, and 1 of them is new");
  EXPECT_FALSE(check_answer({}, {"a"}, "vGPU"));
}

TEST_F(VgpuVerbs, SpareWhatFerryHasNotMadeUnlessAsked) {
  mdev_.add_device(kT4, "nvidia-232", kA);
  kernel_.file("p.yaml", "version: v1\nvgpu-configs:\n  a:\n  - {devices: [0], vgpu-devices: {T4-8Q: 1}}\n");
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"-f", path("p.yaml")});
    return ferry(words);
  };
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"vgpu", "plan"}, {"vgpu", "apply"}, {"apply", "--dry-run"}, {"apply"}}) {
    const auto refused = run(words);
    EXPECT_EQ(refused.status, 4) << refused.out << refused.err;
    EXPECT_THAT(refused.out,
                AllOf(HasSubstr(std::string("not made by Ferry: ") + kA), HasSubstr("--foreign")));
  }
  EXPECT_THAT(mdev_.devices_on(kT4), testing::ElementsAre(std::string("T4-4Q ") + kA));
  for (const auto& words : std::vector<std::vector<std::string>>{{"vgpu", "plan", "--foreign"},
                                                                 {"apply", "--dry-run", "--foreign"}}) {
    const auto planned = run(words);
    EXPECT_EQ(planned.status, 0) << planned.out << planned.err;
    EXPECT_THAT(planned.out, HasSubstr(std::string("remove T4-4Q ") + kA));
  }
}

/// hostd's record with a claim that has vGPU kA.
void record_claim(test::FakeKernel& kernel) {
  kernel.file("proc/sys/kernel/random/boot_id", "b\n");
  kernel.file("run/ferry/hostd/claims.json", fmt::format(R"({{"version": 1, "boot_id": "b", "claims": [
      {{"uid": "u", "namespace": "studio", "name": "render-a", "phase": "done", "devices": [
        {{"gpu": "{0}", "type": "nvidia-232", "placement": null, "was_on_vfio": false,
          "gpus": [{{"address": "{0}", "functions": 0}}], "mdev_uuid": "{1}", "function": null,
          "nodes": []}}]}}], "missing_functions": []}})",
                                                         kT4, kA));
}

TEST_F(VgpuVerbs, SpareVgpusOfClaims) {
  mdev_.add_device(kT4, "nvidia-232", kA);
  record_claim(kernel_);
  kernel_.file("p.yaml", "version: v1\nvgpu-configs:\n  a:\n  - {devices: [0], vgpu-devices: {T4-8Q: 1}}\n");
  const std::string remove = fmt::format("sys/devices/pci0000:00/{}/{}/remove", kT4, kA);
  const std::string file = path("p.yaml");
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"vgpu", "plan", "-f", file, "--foreign"},
                                             {"vgpu", "apply", "-f", file, "--foreign"},
                                             {"vgpu", "delete", "--device", kT4, "--foreign"}}) {
    const auto refused = ferry(words);
    EXPECT_EQ(refused.status, 4) << refused.out << refused.err;
    EXPECT_THAT(refused.out, HasSubstr("ResourceClaim studio/render-a has it"));
    EXPECT_EQ(kernel_.read_file(remove).value_or("unreadable"), "");
  }
  for (const auto& words : std::vector<std::vector<std::string>>{{"apply", "-f", file, "--foreign"},
                                                                 {"apply", "-f", file, "--dry-run"}}) {
    const auto spared = ferry(words);
    EXPECT_EQ(spared.status, 0) << spared.out << spared.err;
    EXPECT_THAT(spared.err, HasSubstr("warning: GPU 0000:05:00.0 has a ResourceClaim, and stays as it is\n"));
    EXPECT_EQ(kernel_.read_file(remove).value_or("unreadable"), "");
  }
}

TEST_F(VgpuVerbs, ListAClaimAndReleaseIt) {
  EXPECT_EQ(ferry({"claims", "list"}).out, "no ResourceClaim has a device of this host\n");
  mdev_.add_device(kT4, "nvidia-232", kA);
  record_claim(kernel_);
  const auto listed = ferry({"claims", "list"});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_THAT(listed.out, AllOf(HasSubstr("studio/render-a"), HasSubstr("nvidia-232"), HasSubstr(kA)));
  EXPECT_EQ(json::parse(ferry({"claims", "list", "-o", "json"}).out),
            (json{{"claims",
                   json::array({{{"uid", "u"},
                                 {"namespace", "studio"},
                                 {"name", "render-a"},
                                 {"phase", "prepared"},
                                 {"devices",
                                  json::array({{{"gpu", kT4}, {"kind", "nvidia-232"}, {"id", kA}}})}}})}}));
  const auto record = kernel_.read_file("run/ferry/hostd/claims.json").value_or("");
  const auto planned = ferry({"claims", "release", "u", "--dry-run"});
  EXPECT_EQ(planned.status, 0) << planned.err;
  EXPECT_EQ(planned.out, fmt::format("claim studio/render-a: would release nvidia-232 {}\n", kA));
  EXPECT_EQ(kernel_.read_file("run/ferry/hostd/claims.json").value_or(""), record);

  mdev_.remove_device(kT4, kA);  // the files of this test remove none
  const auto released = ferry({"claims", "release", "u"});
  EXPECT_EQ(released.status, 0) << released.err;
  EXPECT_EQ(released.out, fmt::format("claim studio/render-a: released nvidia-232 {}\n", kA));
  EXPECT_EQ(ferry({"claims", "list"}).out, "no ResourceClaim has a device of this host\n");
  const auto again = ferry({"claims", "release", "u"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.out, "claim u has no device of this host: there is nothing to release\n");
}

TEST_F(VgpuVerbs, ReleaseNoClaimOfARunningDriver) {
  mdev_.add_device(kT4, "nvidia-232", kA);
  record_claim(kernel_);
  kernel_.file(api::kCheckpointFile,
               dra::checkpoint_text(
                   {.boot_id = "b", .claims = {{.uid = "u", .space = "studio", .name = "render-a"}}}));
  {
    const auto runs = test::must(InstanceLock::claim(kernel_, api::kDraLock));
    const auto refused = ferry({"claims", "release", "u"});
    EXPECT_EQ(refused.status, 4) << refused.out;
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("`ferry dra` runs on this node and has it"), HasSubstr("hint: ")));
  }
  const auto planned = ferry({"claims", "release", "u", "--dry-run"});
  EXPECT_EQ(planned.status, 0) << planned.err;
  EXPECT_THAT(planned.err, HasSubstr("warning: /run/ferry/dra/claims.json still has claim u"));
}

TEST_F(VgpuVerbs, KnowNoClaimsByABrokenRecord) {
  kernel_.file("run/ferry/hostd/claims.json", "{");
  kernel_.file("p.yaml", "version: v1\nvgpu-configs:\n  a:\n  - {devices: [0], vgpu-devices: {T4-8Q: 1}}\n");
  const std::string file = path("p.yaml");
  for (const auto& words : std::vector<std::vector<std::string>>{{"claims", "list"},
                                                                 {"claims", "release", "u"},
                                                                 {"apply", "-f", file},
                                                                 {"apply", "--dry-run", "-f", file}}) {
    const auto result = ferry(words);
    EXPECT_NE(result.status, 0) << words[0];
    EXPECT_THAT(result.err, AllOf(HasSubstr("/run/ferry/hostd/claims.json: not JSON"), HasSubstr("hint: ")));
  }
}

TEST_F(VgpuVerbs, SayWhyAGpuMayHaveAClaim) {
  kernel_.file("proc/sys/kernel/random/boot_id", "b\n");
  kernel_.file("run/ferry/hostd/claims.json", "{");
  const std::vector<api::ClaimableGpu> gpus = {{.address = test::must(vfio::PciAddress::parse(kT4))}};
  kernel_.file(api::kClaimableGpusFile, api::claimable_gpus_text(gpus));
  kernel_.file("p.yaml", "version: v1\nvgpu-configs:\n  a:\n  - {devices: [0], vgpu-devices: {T4-8Q: 1}}\n");
  const auto spared = ferry({"apply", "--dry-run", "-f", path("p.yaml")});
  EXPECT_THAT(spared.err, AllOf(HasSubstr("/run/ferry/hostd/claims.json: not JSON: each GPU for DRA"),
                                HasSubstr("hint: "), HasSubstr("warning: GPU 0000:05:00.0 has")));
}

// hostd keeps this profile, and has counted before GPU 0 was unplugged.
TEST_F(VgpuVerbs, KnowTheNumbersThatHostdHasCounted) {
  kernel_.file("v1.yaml",
               "version: v1\nvgpu-configs:\n  a:\n  - {devices: [0], vgpu-devices: {T4-4Q: 1}}\n"
               "  - {devices: [1], vgpu-devices: {}}\n");
  kernel_.file("other.yaml", "version: v1\nvgpu-configs:\n  a:\n  - {devices: [0], vgpu-devices: {}}\n");
  const auto asserted = [&] { return ferry({"vgpu", "assert", "-f", path("v1.yaml")}).out; };
  EXPECT_THAT(asserted(), HasSubstr("GPU 0 (0000:05:00.0): expected 1 x T4-4Q, found none"));
  kernel_.file("var/lib/ferry-hostd/gpus/numbers.json",
               R"({"version": 1, "gpus": {"0": "0000:03:00.0", "1": "0000:05:00.0"}, "policy": )"
               R"("version: v2\npolicies:\n  policy:\n  - devices: [0]\n    mode: vgpu\n    vgpu-devices:\n)"
               R"(      T4-4Q: 1\n  - devices: [1]\n    mode: vgpu\n    vgpu-devices: {}\n"})");
  EXPECT_THAT(asserted(), AllOf(HasSubstr("GPU 0 is gone: the policy means the one at 0000:03:00.0"),
                                HasSubstr("GPU 0 (0000:05:00.0): none\n")));
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"vgpu", "plan"}, {"vgpu", "apply", "--dry-run"}}) {
    for (const char* file : {"v1.yaml", "other.yaml"}) {
      std::vector<std::string> words = verb;
      words.insert(words.end(), {"-f", path(file)});
      const bool is_kept = std::string(file) == "v1.yaml";
      const std::string said = ferry(words).err;
      for (const char* warning : {"GPU 0 was 0000:03:00.0 for hostd; counted anew it is 0000:05:00.0",
                                  "GPU 1 was 0000:05:00.0 for hostd; counted anew it is 0000:07:00.0"})
        EXPECT_EQ(said.find(warning) != std::string::npos, is_kept) << said;
    }
  }
}

// The status is the same whatever the reason is, and whatever another GPU gets.
TEST_F(VgpuVerbs, ExitsFourWheneverAGpuIsRefused) {
  kernel_.file("p.yaml",
               "version: v1\nvgpu-configs:\n"
               "  another-driver:\n  - {devices: [1], vgpu-devices: {T4-4Q: 1}}\n"
               "  unknown-type:\n  - {devices: [0], vgpu-devices: {A40-8Q: 1}}\n"
               "  no-room:\n  - {devices: [0], vgpu-devices: {T4-8Q: 3}}\n"
               "  two-sizes:\n  - {devices: [0], vgpu-devices: {T4-8Q: 1, T4-4Q: 1}}\n");
  for (const char* name : {"another-driver", "unknown-type", "no-room", "two-sizes"}) {
    const std::vector<std::string> profile = {"-f", path("p.yaml"), "-c", name};
    const auto run = [&](std::vector<std::string> verb) {
      verb.insert(verb.end(), profile.begin(), profile.end());
      return ferry(verb);
    };
    for (const auto& verb : {run({"vgpu", "plan"}), run({"vgpu", "apply"}), run({"apply", "--dry-run"})}) {
      EXPECT_EQ(verb.status, 4) << name << "\n" << verb.out << verb.err;
      EXPECT_THAT(verb.out, HasSubstr(": refused\n")) << name;
    }
    EXPECT_EQ(run({"vgpu", "validate", "--host"}).status, 4) << name;
  }
  EXPECT_THAT(kernel_.writes(), IsEmpty());
}

TEST_F(VgpuVerbsOnFunctions, ADryRunSaysWhatComesThen) {
  vendor_.set("0000:05:00.5", "1155");
  const auto result = ferry({"vgpu", "apply", "--dry-run", "-f", profile()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("  remove L40S-24Q from 0000:05:00.5\n"),
                                HasSubstr("  then, if its driver lists them: 2 x L40S-12Q\n")));
  kernel_.enable_vfs(kGpu, 0);
  const auto before = ferry({"vgpu", "apply", "--dry-run", "-f", profile(), "-o", "json"});
  const json gpu = json::parse(before.out).at("gpus").at(0);
  EXPECT_EQ(gpu.at("steps").at(0).at("text"), "enable 4 virtual functions of 0000:05:00.0");
  EXPECT_EQ(gpu.at("steps").at(0).at("kind"), "enable_virtual_functions");
  EXPECT_EQ(gpu.at("then"), json({{"L40S-12Q", 2}}));
}

TEST_F(VgpuVerbsOnFunctions, PlansToReleaseWhatIsListedAndRefusesTheRest) {
  kernel_.enable_vfs(kGpu, 0);
  kernel_.file("run/systemd/private", "");  // that it is there is enough to plan
  kernel_.file("sys/bus/pci/devices/0000:05:00.0/drm/card0/dev", "1:3\n");
  kernel_.file("proc/77/comm", "nv-hostengine\n");
  kernel_.file("proc/77/cmdline", "nv-hostengine");
  kernel_.file("proc/77/cgroup", "0::/system.slice/nvidia-dcgm.service\n");
  kernel_.file("proc/77/maps", "");
  kernel_.link("proc/77/fd/3", "/dev/null");  // a device with that number
  const auto refused = ferry({"vgpu", "plan", "-f", profile()});
  EXPECT_EQ(refused.status, 4) << refused.err;
  EXPECT_THAT(refused.out, AllOf(HasSubstr("process nv-hostengine (pid 77) of nvidia-dcgm.service holds"),
                                 HasSubstr("--release nvidia-dcgm.service")));

  const auto plan = ferry({"vgpu", "plan", "-f", profile(), "--release", "nvidia-dcgm", "-o", "json"});
  EXPECT_EQ(plan.status, 0) << plan.out << plan.err;
  const json steps = json::parse(plan.out).at("gpus").at(0).at("steps");
  ASSERT_EQ(steps.size(), 3U) << steps;
  EXPECT_EQ(steps.at(0).at("text"), "stop nvidia-dcgm.service");
  EXPECT_EQ(steps.at(0).at("kind"), "let_go");
  EXPECT_EQ(steps.at(0).at("service"), "nvidia-dcgm.service");
  EXPECT_EQ(steps.at(1).at("kind"), "enable_virtual_functions");
  EXPECT_EQ(steps.at(2).at("text"), "start nvidia-dcgm.service");
  EXPECT_EQ(steps.at(2).at("kind"), "take_hold");

  const auto explained =
      ferry({"vgpu", "apply", "--dry-run", "--explain", "-f", profile(), "--release", "nv-hostengine"});
  EXPECT_THAT(explained.out, AllOf(HasSubstr("  stop nvidia-dcgm.service  because it holds a device"),
                                   HasSubstr("  in the end start nvidia-dcgm.service  because")));

  kernel_.file("policy.yaml",
               "version: v2\nrelease: [nvidia-dcgm]\npolicies:\n  two:\n"
               "  - {devices: all, mode: vgpu, vgpu-devices: {L40S-12Q: 2}}\n");
  const auto by_policy = ferry({"apply", "--dry-run", "-f", (kernel_.root() / "policy.yaml").string()});
  EXPECT_EQ(by_policy.status, 0) << by_policy.out << by_policy.err;
  EXPECT_THAT(by_policy.out, HasSubstr("  stop nvidia-dcgm.service\n"));
}

TEST_F(VgpuVerbsOnFunctions, TakesTheReleaseListOfRebinds) {
  for (const char* name : {"libvirtd", "docker.socket"}) {
    const auto refused = ferry({"vgpu", "plan", "-f", profile(), "--release", name});
    EXPECT_EQ(refused.status, 2) << name;
    EXPECT_THAT(refused.err, HasSubstr("--release: "));
  }
}

TEST_F(VgpuVerbsOnFunctions, ADryRunSaysWhatAnEarlierRunLeftStopped) {
  kernel_.file("proc/sys/kernel/random/boot_id", "b\n");
  kernel_.file("run/ferry/hostd/stopped-services.json",
               R"({"version":1,"boot_id":"b","services":{"nvidia-dcgm.service":"to start"}})");
  EXPECT_THAT(ferry({"vgpu", "plan", "-f", profile()}).out,
              HasSubstr("nvidia-dcgm.service was stopped by an earlier run: the next one starts it"));
}

TEST_F(VgpuVerbsOnFunctions, DeleteLeavesWhatMayBeSomebodyElses) {
  vendor_.set("0000:05:00.5", "1155");
  const auto result = ferry({"vgpu", "delete", "--dry-run", "--all"});
  EXPECT_THAT(result.out, HasSubstr("has no UUID that would tell whether Ferry made it: left"));
  EXPECT_THAT(ferry({"vgpu", "delete", "--dry-run", "--all", "--foreign"}).out,
              HasSubstr("  remove L40S-24Q from 0000:05:00.5\n"));
}

TEST_F(VgpuVerbsOnWholeFunctions, PlanCountsThem) {
  const auto none = ferry({"vgpu", "plan", "-f", profile()});
  EXPECT_EQ(none.status, 0) << none.out << none.err;
  EXPECT_THAT(none.out, AllOf(HasSubstr("  enable 2 virtual functions of 0000:05:00.0\n"),
                              HasSubstr("2 x 1002:75b3\n")));
  EXPECT_EQ(ferry({"vgpu", "validate", "--host", "-f", profile()}).status, 0);
  kernel_.enable_vfs(kGpu, 2);
  EXPECT_THAT(ferry({"vgpu", "plan", "-f", profile()}).out,
              HasSubstr("  create 1002:75b3 on 0000:05:00.4\n"));
  const auto differs = ferry({"vgpu", "assert", "-f", profile()});
  EXPECT_EQ(differs.status, 3) << differs.out << differs.err;
  EXPECT_THAT(differs.out, HasSubstr("expected 2 x 1002:75b3, found none\n"));
}

TEST_F(VgpuVerbsOnWholeFunctions, DeleteNeedsTheGpusNameAndForeign) {
  bind_first();
  EXPECT_THAT(ferry({"vgpu", "delete", "--dry-run", "--all", "--foreign"}).out,
              testing::Not(HasSubstr(kFirst)));
  EXPECT_THAT(ferry({"vgpu", "delete", "--dry-run", "--device", kGpu}).out,
              HasSubstr("vGPU 0000:05:00.4 (1002:75b3) was not made by Ferry: left; --foreign takes it too"));
  EXPECT_THAT(ferry({"vgpu", "delete", "--dry-run", "--device", kGpu, "--foreign"}).out,
              HasSubstr("  remove 1002:75b3 from 0000:05:00.4\n"));
}

}  // namespace
}  // namespace ferry::cli
