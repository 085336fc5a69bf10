// SPDX-License-Identifier: Apache-2.0
// The number of vGPUs of a type that fit on a GPU: all verbs say the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/support/fake_vendor_vfio.h"
#include "tests/support/listings.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A GPU of vendor-specific VFIO with 16 virtual functions.
class VgpuCounts : public testing::Test {
 protected:
  static constexpr const char* kGpu = "0000:05:00.0";

  void add_gpu(const char* ids, const std::vector<test::FakeVgpuType>& types) {
    kernel_.add_driver({.name = "nvidia", .ids = {ids}, .sriov = true});
    kernel_.add_function({.address = kGpu,
                          .ids = ids,
                          .class_code = 0x030200,
                          .group = 5,
                          .driver = "nvidia",
                          .totalvfs = 16});
    kernel_.enable_vfs(kGpu, 16);
    vendor_.add_gpu(kGpu, types);
    kernel_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel_.directory("proc/1/fd");
  }
  /// A board that no table has. Its driver tells nothing but names.
  void add_unknown_gpu() {
    add_gpu("10de:3fff", {{"nvidia-1", "NVIDIA X9-12Q", 12288, 4}, {"nvidia-2", "NVIDIA X9-48Q", 49152, 1}});
  }
  test::ProgramResult ferry(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--host-root", kernel_.root().string(), "vgpu"});
    return test::run_ferry(arguments);
  }
  /// `verb` with a profile of its own for each map of types.
  test::ProgramResult of_profiles(std::vector<std::string> verb, const std::vector<std::string>& maps) {
    std::string text = "version: v1\nvgpu-configs:\n";
    for (std::size_t i = 0; i < maps.size(); ++i)
      text += fmt::format("  p{}:\n  - {{devices: all, vgpu-devices: {}}}\n", i, maps[i]);
    kernel_.file("p.yaml", text);
    verb.insert(verb.end(), {"-f", (kernel_.root() / "p.yaml").string()});
    return ferry(verb);
  }

  test::FakeKernel kernel_;
  test::FakeVendorVfio vendor_{kernel_};
};

TEST_F(VgpuCounts, OfABoardWithoutATableFollowTheNames) {
  add_unknown_gpu();
  EXPECT_THAT(ferry({"types"}).out, AllOf(HasSubstr("1   X9-12Q  NVIDIA X9-12Q  12288 MiB  4          4\n"),
                                          HasSubstr("2   X9-48Q  NVIDIA X9-48Q  49152 MiB  1          1\n")));
  const auto checked = of_profiles({"validate", "--host"}, {"{X9-12Q: 4}", "{X9-12Q: 5}", "{X9-48Q: 2}"});
  EXPECT_EQ(checked.status, 4);
  EXPECT_THAT(checked.out, AllOf(HasSubstr("profile p0: works\n"), HasSubstr("no room for 5 x X9-12Q: 4 fit"),
                                 HasSubstr("no room for 2 x X9-48Q: 1 fit")));
  EXPECT_EQ(of_profiles({"plan"}, {"{X9-12Q: 4}"}).status, 0);
  EXPECT_THAT(of_profiles({"plan"}, {"{X9-12Q: 5}"}).out, HasSubstr("no room for 5 x X9-12Q: 4 fit"));
  EXPECT_THAT(ferry({"choose", "--memory", "12GiB"}).out,
              HasSubstr("smallest: X9-12Q (about 12288 MiB), 4 can"));
}

// The vGPU hides the types of other sizes, so that nothing tells the memory of the GPU.
TEST_F(VgpuCounts, AreNotKnownWhereNothingTellsTheMemory) {
  add_unknown_gpu();
  vendor_.set("0000:05:00.4", "1");
  EXPECT_THAT(ferry({"types"}).out, HasSubstr("1   X9-12Q  NVIDIA X9-12Q  12288 MiB  up to 15   -\n"));
  EXPECT_THAT(ferry({"choose", "--memory", "1GiB"}).out, HasSubstr("up to 15 can still be made"));
  constexpr const char* kWhy = "GPU 0 (0000:05:00.0): whether 2 x X9-12Q fit shows only when they are made\n";
  const auto plan = of_profiles({"plan"}, {"{X9-12Q: 3}"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("would change"), HasSubstr(kWhy)));
  const auto checked = of_profiles({"validate", "--host"}, {"{X9-12Q: 3}"});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_THAT(checked.out, AllOf(HasSubstr("profile p0: not known whether it works on this host\n"),
                                 HasSubstr("GPU 0 (0000:05:00.0): not known, expected 3 x X9-12Q"),
                                 HasSubstr(kWhy), Not(HasSubstr(": works"))));
  EXPECT_THAT(
      of_profiles({"validate", "--host"}, {"{X9-12Q: 3}", "{X9-12Q: 1}"}).out,
      AllOf(HasSubstr(std::string("profile p0: not known: ") + kWhy), HasSubstr("profile p1: works\n")));
  const json host =
      json::parse(of_profiles({"validate", "--host", "-o", "json"}, {"{X9-12Q: 3}"}).out).at("host").at(0);
  EXPECT_TRUE(host.at("works").is_null());
  EXPECT_TRUE(host.at("gpus").at(0).at("works").is_null());
}

TEST_F(VgpuCounts, OfOneVgpuThatTheDriverOffersAreKnown) {
  add_gpu("10de:3fff",
          {{"nvidia-1", "NVIDIA X9-1-24Q", 24576, 4}, {"nvidia-2", "NVIDIA X9-4-96Q", 98304, 1}});
  const auto checked = of_profiles({"validate", "--host"}, {"{X9-4-96Q: 1}", "{X9-1-24Q: 1}", "{X9-1-24Q: 2}",
                                                            "{X9-1-24Q: 1, X9-4-96Q: 1}"});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_THAT(checked.out, AllOf(HasSubstr("profile p0: works\n"), HasSubstr("profile p1: works\n"),
                                 HasSubstr("profile p2: not known"), HasSubstr("profile p3: not known")));
  for (const char* verb : {"validate", "plan"}) {
    std::vector<std::string> words = {verb};
    if (words.front() == "validate") words.emplace_back("--host");
    const auto refused = of_profiles(words, {"{X9-4-96Q: 2}"});
    EXPECT_EQ(refused.status, 4) << verb;
    EXPECT_THAT(refused.out, HasSubstr("no room for 2 x X9-4-96Q: 1 fit")) << verb;
  }
  EXPECT_THAT(ferry({"types"}).out, AllOf(HasSubstr("X9-1-24Q  NVIDIA X9-1-24Q  24576 MiB  up to 7    -\n"),
                                          HasSubstr("X9-4-96Q  NVIDIA X9-4-96Q  98304 MiB  1          -\n")));
}

TEST_F(VgpuCounts, OfATypeThatNoFileCanNameHaveNoType) {
  add_gpu("10de:3fff", {{"nvidia-1", "NVIDIA X9-12Q", 12288, 4}, {"nvidia-2", "NVIDIA X9-48", 49152, 1}});
  const auto types = ferry({"types"});
  EXPECT_THAT(types.out, AllOf(HasSubstr("1   X9-12Q  NVIDIA X9-12Q  12288 MiB  4          4\n"),
                               HasSubstr("2   -       NVIDIA X9-48   49152 MiB  1          1\n"),
                               HasSubstr("note: no file can name the types without TYPE\n")));
  EXPECT_EQ(
      json::parse(ferry({"types", "-o", "json"}).out).at("gpus").at(0).at("offers").at(1).at("short_name"),
      "X9-48");
  EXPECT_THAT(
      ferry({"choose", "--memory", "48GiB"}).err,
      HasSubstr("X9-48 (49152 MiB) would do, but no file can name it; the largest other one is X9-12Q"));
}

// A board's own MIG-backed types may come with MIG mode, which the library alone sets.
TEST_F(VgpuCounts, OfATypeOfAnotherBoardAreNone) {
  add_gpu("10de:2335", {{"nvidia-1413", "NVIDIA H200X-1-18CME", 18432, 1}});
  const auto checked =
      of_profiles({"validate", "--host"}, {"{DC-1-5A: 30}", "{A30-1-6C: 1}", "{H200X-2-35C: 1}"});
  EXPECT_EQ(checked.status, 4);
  EXPECT_THAT(checked.out,
              AllOf(HasSubstr("offers no type DC-1-5A"), HasSubstr("offers no type A30-1-6C"),
                    HasSubstr("its vGPUs need GPU instances (MIG), which NVML alone can see to")));
}

TEST_F(VgpuCounts, OfAMigBackedTypeAreNoneOnABoardWithoutAny) {
  add_gpu("10de:26b9", test::l40s_types());
  for (const char* type : {"DC-1-5A", "A30-1-6C", "L4-1-6C"})
    EXPECT_THAT(of_profiles({"validate", "--host"}, {fmt::format("{{{}: 1}}", type)}).out,
                HasSubstr(fmt::format("offers no type {}", type)));
}

TEST_F(VgpuCounts, AreNotKnownBeforeTheDriverListsTypes) {
  add_unknown_gpu();
  kernel_.enable_vfs(kGpu, 0);
  kernel_.file("proc/driver/nvidia/gpus/0000:05:00.0/unbindLock", "0\n");
  const auto plan = of_profiles({"plan"}, {"{X9-12Q: 3}"});
  EXPECT_THAT(plan.out, HasSubstr("then, if its driver lists them: 3 x X9-12Q\n"));
  const auto checked = of_profiles({"validate", "--host"}, {"{X9-12Q: 3}"});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_THAT(checked.out,
              AllOf(HasSubstr("not known whether it works"), HasSubstr("no table lists X9-12Q")));
}

TEST_F(VgpuCounts, OfAGpuThatCarriesVgpusAreThoseThatAreLeft) {
  add_gpu("10de:26b9",
          {{"nvidia-1153", "NVIDIA L40S-12Q", 12288, 4}, {"nvidia-9", "NVIDIA L40S-12A", 12288, 4}});
  vendor_.set("0000:05:00.4", "1153");
  EXPECT_THAT(ferry({"types"}).out, HasSubstr("9     L40S-12A  NVIDIA L40S-12A  12288 MiB  3          4\n"));
  EXPECT_EQ(of_profiles({"plan"}, {"{L40S-12Q: 1, L40S-12A: 3}"}).status, 0);
  EXPECT_THAT(of_profiles({"plan"}, {"{L40S-12Q: 1, L40S-12A: 4}"}).out,
              HasSubstr("no room for 4 x L40S-12A: 4 fit, and 1 other is asked for"));
  for (const char* function : {"0000:05:00.5", "0000:05:00.6", "0000:05:00.7"}) vendor_.set(function, "9");
  EXPECT_THAT(ferry({"types"}).out, HasSubstr("full: none can be made now"));
}

TEST_F(VgpuCounts, OfNoVgpuAreNotFull) {
  add_gpu("10de:26b9", {});
  EXPECT_THAT(ferry({"types"}).out,
              AllOf(HasSubstr("its driver nvidia offers no vGPU types on its 16 virtual functions\n"),
                    Not(HasSubstr("full"))));
  EXPECT_THAT(of_profiles({"plan"}, {"{L40S-12Q: 1}"}).out,
              AllOf(HasSubstr("its driver nvidia offers no vGPU types on its 16 virtual functions\n"),
                    HasSubstr("in MIG mode it first needs GPU instances")));
}

TEST_F(VgpuCounts, DeleteSaysWhetherThereWasAVgpu) {
  add_gpu("10de:26b9", test::l40s_types());
  EXPECT_EQ(ferry({"delete", "--all", "--dry-run"}).out, "GPU 0 (0000:05:00.0): no vGPU\n");
  vendor_.set("0000:05:00.4", "1153");
  EXPECT_THAT(
      ferry({"delete", "--all", "--dry-run"}).out,
      AllOf(HasSubstr("GPU 0 (0000:05:00.0): nothing removed\n"), HasSubstr("--foreign takes it too")));
  EXPECT_THAT(ferry({"delete", "--all", "--foreign", "--dry-run"}).out,
              HasSubstr("GPU 0 (0000:05:00.0): would change\n"));
}

}  // namespace
}  // namespace ferry::cli
