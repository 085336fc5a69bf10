// SPDX-License-Identifier: Apache-2.0
// The vGPU verbs that only look, as a user calls them: types, choose, validate, assert, export.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/cli/vgpu_hosts.h"
#include "tests/support/listings.h"
#include "tests/vfio/machines.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using test::kA;
using test::kT4;
using test::run_ferry;
using test::VgpuVerbs;
using test::VgpuVerbsOnFunctions;
using test::VgpuVerbsOnWholeFunctions;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(VgpuTypes, SaysWhyAHostHasNone) {
  test::FakeKernel kernel;
  kernel.add_function({.address = "0000:05:00.0", .ids = "8086:1521", .class_code = 0x020000});
  const auto types = [&](const char* form) {
    return run_ferry({"--host-root", kernel.root().string(), "vgpu", "types", "-o", form});
  };
  const auto table = types("table");
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_EQ(table.out,
            "no vGPU types: this host has no GPU of NVIDIA, and no other vendor's GPU on a driver that makes "
            "virtual functions for VMs\n");
  EXPECT_TRUE(json::parse(types("json").out).at("gpus").empty());
}

TEST_F(VgpuVerbs, ExportInEveryFormIsTakenBackByAssertAndApply) {
  mdev_.add_device(kT4, "nvidia-232", kA);
  for (const char* form : {"table", "json", "yaml"}) {
    const auto exported = ferry({"vgpu", "export", "-c", "010", "-o", form});
    EXPECT_EQ(exported.status, 0) << exported.err;
    EXPECT_THAT(exported.err, IsEmpty());
    kernel_.file("exported", exported.out);
    const auto agrees = ferry({"vgpu", "assert", "-f", path("exported"), "-c", "010"});
    EXPECT_EQ(agrees.status, 0) << form << "\n" << exported.out << agrees.out << agrees.err;
    const auto applied = ferry({"vgpu", "apply", "-f", path("exported"), "--explain"});
    EXPECT_EQ(applied.status, 0) << applied.err;
    EXPECT_EQ(applied.out, "GPU 0 (0000:05:00.0): already so\nGPU 1 (0000:07:00.0): already so\n") << form;
  }
  EXPECT_THAT(mdev_.devices_on(kT4), testing::ElementsAre(std::string("T4-4Q ") + kA));
}

TEST_F(VgpuVerbs, ExportPrintsAProfileFile) {
  mdev_.add_device(kT4, "nvidia-232", kA);
  EXPECT_EQ(ferry({"vgpu", "export"}).out,
            "version: v1\n"
            "vgpu-configs:\n"
            "  current:\n"
            "  - devices: [0]\n"
            "    vgpu-devices:\n"
            "      T4-4Q: 1\n"
            "  - devices: [1]\n"
            "    vgpu-devices: {}\n");
  EXPECT_EQ(json::parse(ferry({"vgpu", "export", "-o", "json"}).out), json::parse(R"({"version": "v1",
      "vgpu-configs": {"current": [{"devices": [0], "vgpu-devices": {"T4-4Q": 1}},
                                   {"devices": [1], "vgpu-devices": {}}]}})"));
}

TEST_F(VgpuVerbs, ExportPrintsNothingThatIsNotTheWholeTruth) {
  mdev_.leave_driverless = true;
  mdev_.add_device(kT4, "nvidia-232", kA);
  const auto result = ferry({"vgpu", "export"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("GPU 0 (0000:05:00.0): no driver has taken vGPU"), HasSubstr("hint: ")));
  const auto name = ferry({"vgpu", "export", "-c", "two words"});
  EXPECT_EQ(name.status, 2);
  EXPECT_THAT(name.err, AllOf(HasSubstr("'two words' cannot name a configuration"), HasSubstr("hint: ")));
}

TEST_F(VgpuVerbs, ChooseNamesTheSmallestTypeAndHowManyAreLeft) {
  mdev_.add_device(kT4, "nvidia-233", kA);
  const auto result = ferry({"vgpu", "choose", "--memory", "6GiB"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out,
            "GPU                   TYPE   NAME        MEMORY    AVAILABLE\n"
            "GPU 0 (0000:05:00.0)  T4-8Q  GRID T4-8Q  8192 MiB  1\n"
            "GPU 1 (0000:07:00.0)  -      -           -         -\n"
            "GPU 1 (0000:07:00.0): its driver nouveau offers no vGPU types and is no vGPU host driver\n"
            "smallest: T4-8Q (8192 MiB), 1 can still be made\n");
  EXPECT_EQ(
      json::parse(
          ferry({"vgpu", "choose", "--memory", "6G", "--series", "C", "--device", kT4, "-o", "json"}).out),
      json::parse(R"({"memory_mib": 5723, "series": "C",
                "gpus": [{"index": 0, "address": "0000:05:00.0", "reason": null,
                          "type": {"id": "nvidia-320", "name": "GRID T4-8C", "short_name": "T4-8C",
                                   "framebuffer_mib": 8192, "framebuffer_source": "driver", "left": 1}}],
                "smallest": {"id": "nvidia-320", "name": "GRID T4-8C", "short_name": "T4-8C",
                             "framebuffer_mib": 8192, "framebuffer_source": "driver", "left": 1}})"));
}

TEST_F(VgpuVerbs, ChooseExitsByWhyNothingFits) {
  const auto large = ferry({"vgpu", "choose", "--memory", "17GiB"});
  EXPECT_EQ(large.status, 1);
  EXPECT_THAT(large.err, AllOf(HasSubstr("the largest is T4-16C (16384 MiB)"), HasSubstr("hint: ")));
  mdev_.add_device(kT4, "nvidia-234", kA);
  const auto full = ferry({"vgpu", "choose", "--memory", "6GiB", "-o", "json"});
  EXPECT_EQ(full.status, 4);
  EXPECT_THAT(full.err, HasSubstr("T4-8Q (8192 MiB) would do, but the GPU is full: it carries 1 x T4-16Q"));
  EXPECT_EQ(json::parse(full.out).at("smallest"), nullptr);
}

TEST_F(VgpuVerbs, ChooseWantsATypeOnEachGpuThatIsNamed) {
  EXPECT_EQ(ferry({"vgpu", "choose", "--memory", "6GiB", "--device", kT4}).status, 0);
  EXPECT_EQ(ferry({"vgpu", "choose", "--memory", "6GiB", "--device", kT4, "--device", "0000:07:00.0"}).status,
            1);
}

TEST_F(VgpuVerbs, ValidateWarnsOfNamesThatNoLabelCanSay) {
  kernel_.file("p.yaml",
               "version: v1\nvgpu-configs:\n  fine.1_a-b: [{devices: all, vgpu-devices: {}}]\n"
               "  two words: [{devices: all, vgpu-devices: {}}]\n");
  const auto valid = ferry({"vgpu", "validate", "-f", path("p.yaml"), "-o", "json"});
  EXPECT_EQ(valid.status, 0);
  const std::string warning =
      path("p.yaml") +
      ":4: 'two words' can be chosen by no node's label: at most 63 letters, digits, - _ "
      "and ., the first and the last a letter or a digit";
  EXPECT_EQ(valid.err, "warning: " + warning + "\n");
  EXPECT_EQ(json::parse(valid.out).at("warnings"), json::array({warning}));
  EXPECT_EQ(ferry({"convert", "-f", path("p.yaml")}).err, "warning: " + warning + "\n");
  EXPECT_EQ(ferry({"convert", "-f", path("p.yaml"), "-c", "fine.1_a-b"}).err, "");
}

TEST_F(VgpuVerbs, ValidateHoldsAFileAgainstTheHost) {
  kernel_.file("p.yaml",
               "version: v1\nvgpu-configs:\n  fits:\n  - {devices: [0], vgpu-devices: {T4-4Q: 4}}\n"
               "  too-many:\n  - {devices: [0], vgpu-devices: {T4-4Q: 5}}\n"
               "  elsewhere:\n  - {devices: [9], vgpu-devices: {T4-4Q: 5}}\n"
               "  bare:\n  - {devices: [1], vgpu-devices: {L40S-4Q: 1}}\n");
  const auto validate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"vgpu", "validate", "-f", path("p.yaml")});
    return ferry(more);
  };
  EXPECT_EQ(validate({}).status, 0);  // the file alone says nothing of hosts
  const auto fits = validate({"--host", "-c", "fits"});
  EXPECT_EQ(fits.status, 0) << fits.err;
  EXPECT_EQ(fits.out, path("p.yaml") +
                          ": valid, 4 profiles\nprofile fits: works on this host\n"
                          "  GPU 0 (0000:05:00.0): works, expected 4 x T4-4Q, found none\n"
                          "  GPU 1 (0000:07:00.0): no item is for it\n");
  const auto elsewhere = validate({"--host", "-c", "elsewhere"});
  EXPECT_EQ(elsewhere.status, 0);
  EXPECT_THAT(elsewhere.out, HasSubstr("profile elsewhere: is for no GPU of this host\n"));
  EXPECT_EQ(validate({"--host", "-c", "too-many"}).status, 4);
  const auto bare = validate({"--host", "-c", "bare", "-o", "json"});
  EXPECT_EQ(bare.status, 4) << bare.out;
  const json host = json::parse(bare.out).at("host").at(0);
  EXPECT_EQ(host.at("works"), false);
  EXPECT_THAT(host.at("gpus").at(1).at("fault").at("message").get<std::string>(), HasSubstr("GPU 1 (0000:"));
  const auto all = validate({"--host"});
  EXPECT_EQ(all.status, 4);
  EXPECT_THAT(all.out, AllOf(HasSubstr("profile fits: works\n"),
                             HasSubstr("profile too-many: would not work: " + path("p.yaml") +
                                       ":6: GPU 0 (0000:05:00.0): no room for 5 x T4-4Q: 4 fit\n"),
                             HasSubstr("profile elsewhere: is for no GPU of this host\n")));
  EXPECT_THAT(kernel_.writes(), IsEmpty());
}

TEST_F(VgpuVerbs, ExplainDoesNotCallAVgpuFreeThatNoVmCanBeGiven) {
  mdev_.leave_driverless = true;
  mdev_.add_device(kT4, "nvidia-232", kA);
  const auto explanation = ferry({"explain", kA});
  EXPECT_THAT(explanation.out, AllOf(HasSubstr("state       broken: no VM can be given it\n"),
                                     testing::Not(HasSubstr("free\n"))));
  mdev_.leave_driverless = false;
  constexpr const char* kB = "11111111-3b1d-4f0e-9a57-2f6f5f1f7a10";
  mdev_.add_device(kT4, "nvidia-232", kB);
  EXPECT_THAT(ferry({"explain", kB}).out, HasSubstr("state       free\n"));
}

TEST_F(VgpuVerbs, OfAPolicyFileSayWhatChecksIt) {
  kernel_.file("p.yaml", "version: v2\npolicies:\n  a: [{devices: all, mode: host}]\n");
  for (const char* verb : {"validate", "plan", "apply", "assert"}) {
    const auto result = ferry({"vgpu", verb, "-f", path("p.yaml")});
    EXPECT_EQ(result.status, 2) << verb;
    EXPECT_THAT(result.err, AllOf(HasSubstr("only v1 is known here, found the string 'v2'"),
                                  HasSubstr("`ferry convert -f FILE` checks a policy file (v2)")));
  }
  EXPECT_EQ(ferry({"convert", "-f", path("p.yaml")}).status, 0);
}

TEST_F(VgpuVerbs, ExplainSaysWhatTakesVgpusOfOthersAway) {
  mdev_.add_device(kT4, "nvidia-232", kA);
  for (const char* what : {kT4, kA})
    EXPECT_THAT(ferry({"explain", what}).out, HasSubstr("vgpu delete --device 0000:05:00.0 --foreign`"));
}

TEST_F(VgpuVerbs, LenientWarnsWhereStrictRefuses) {
  kernel_.file("p.yaml",
               "version: v1\nvgpu-configs:\n  a:\n  - device-filter: L40S\n    devices: all\n"
               "    vgpu-devices: {T4-4Q: 4}\n");
  for (const char* verb : {"validate", "plan", "apply", "assert"}) {
    const auto strict = ferry({"vgpu", verb, "-f", path("p.yaml")});
    EXPECT_EQ(strict.status, 2) << verb;
    const auto lenient = ferry({"vgpu", verb, "-f", path("p.yaml"), "--lenient"});
    EXPECT_EQ(lenient.status, std::string(verb) == "assert" ? 3 : 0) << verb << lenient.err;
    EXPECT_THAT(lenient.err, HasSubstr("warning: " + path("p.yaml") +
                                       ":4: vgpu-configs.a[0].device-filter: 'L40S' is not a device filter: "
                                       "it matches nothing\n"));
  }
  // Nothing and not everything.
  EXPECT_THAT(mdev_.devices_on(kT4), IsEmpty());
}

TEST_F(VgpuVerbsOnFunctions, TypesHasARowForEachTypeOfAGpu) {
  EXPECT_EQ(ferry({"vgpu", "types"}).out,
            "GPU 0 (0000:05:00.0), AD102GL [L40S]: vendor-specific VFIO\n"
            "ID    TYPE      NAME             MEMORY     AVAILABLE  MAX\n"
            "1153  L40S-12Q  NVIDIA L40S-12Q  12288 MiB  4          4\n"
            "1155  L40S-24Q  NVIDIA L40S-24Q  24576 MiB  2          2\n");
  const json gpu = json::parse(ferry({"vgpu", "types", "-o", "json"}).out).at("gpus").at(0);
  EXPECT_EQ(gpu.at("types").size(), 8U) << "one for each function";
  EXPECT_EQ(gpu.at("types").at(0).at("parent"), "0000:05:00.4");
  EXPECT_EQ(gpu.at("offers").size(), 2U);
  EXPECT_EQ(gpu.at("offers").at(1).at("available_instances"), 2);
  EXPECT_TRUE(gpu.at("not_offered_yet").empty());
}

TEST_F(VgpuVerbsOnFunctions, TypesNamesThoseThatTheDriverDoesNotOfferYet) {
  kernel_.enable_vfs(kGpu, 0);
  const std::string out = ferry({"vgpu", "types"}).out;
  EXPECT_THAT(
      out, testing::StartsWith(
               "GPU 0 (0000:05:00.0), AD102GL [L40S]: its driver nvidia offers no vGPU types; none of its 4 "
               "virtual functions is enabled\n"
               "not offered yet: the driver lists types only while the GPU has virtual functions. Ferry's "
               "table has these types of the board:\n"
               "TYPE      NAME             MEMORY     MAX\n"));
  EXPECT_THAT(out, HasSubstr("\nL40S-12Q  NVIDIA L40S-12Q  12288 MiB  4\n"));
  EXPECT_THAT(out, testing::Not(HasSubstr("GeForce"))) << "no profile can name it";
  const json gpu = json::parse(ferry({"vgpu", "types", "-o", "json"}).out).at("gpus").at(0);
  EXPECT_TRUE(gpu.at("types").empty());
  EXPECT_TRUE(gpu.at("offers").empty());
  ASSERT_FALSE(gpu.at("not_offered_yet").empty());
  for (const json& type : gpu.at("not_offered_yet")) EXPECT_FALSE(type.contains("available_instances"));
}

TEST_F(VgpuVerbsOnFunctions, TypesSaysThatAGpuIsFull) {
  vendor_.set("0000:05:00.4", "1155");
  vendor_.set("0000:05:00.5", "1155");
  EXPECT_THAT(ferry({"vgpu", "types"}).out, HasSubstr("full: none can be made now"));
  const auto result = ferry({"vgpu", "choose", "--memory", "12GiB"});
  EXPECT_EQ(result.status, 4) << result.out;
}

TEST_F(VgpuVerbsOnWholeFunctions, TypesNamesTheTypeBeforeThereIsOne) {
  EXPECT_THAT(ferry({"vgpu", "types"}).out,
              HasSubstr("none of its 4 virtual functions is enabled; each would be a 1002:75b3\n"));
  kernel_.enable_vfs(kGpu, 2);
  EXPECT_THAT(ferry({"vgpu", "types"}).out,
              AllOf(HasSubstr(": whole virtual functions\n"),
                    HasSubstr("1002:75b3  1002:75b3  virtual function 1002:75b3")));
}

TEST_F(VgpuVerbsOnWholeFunctions, TypesScansTheHostOnce) {
  test::Listings scans(kernel_.root() / "sys/bus/pci/devices");
  ASSERT_TRUE(scans.work());
  ASSERT_EQ(ferry({"vgpu", "types"}).status, 0);
  EXPECT_EQ(scans.count(), 1U);
}

TEST_F(VgpuVerbsOnWholeFunctions, ExportIsTakenBackByAssert) {
  bind_first();
  for (const char* form : {"table", "json", "yaml"}) {
    const auto exported = ferry({"vgpu", "export", "-o", form});
    EXPECT_EQ(exported.status, 0) << exported.err;
    kernel_.file("exported", exported.out);
    const auto agrees = ferry({"vgpu", "assert", "-f", (kernel_.root() / "exported").string()});
    EXPECT_EQ(agrees.status, 0) << form << "\n" << exported.out << agrees.out << agrees.err;
  }
  const auto policy = ferry({"export"});
  EXPECT_THAT(policy.out, AllOf(HasSubstr("address: \"0000:05:00.0\"\n"), HasSubstr("\"1002:75b3\": 1\n")))
      << policy.err;
}

}  // namespace
}  // namespace ferry::cli
