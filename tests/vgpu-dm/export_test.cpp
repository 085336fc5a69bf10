// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/export.h"

#include <ostream>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/gpu_node.h"
#include "vgpu-dm/plan/comparison.h"

namespace ferry::vgpu {
namespace {

using test::GpuNode;
using test::message_of;
using test::profile;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kA = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
constexpr const char* kB = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a11";
constexpr const char* kC = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a12";

class Export : public testing::Test {
 protected:
  std::string exported(const std::string& name = "current") {
    const auto result = export_profile(node.snapshot().inventory, name);
    return result ? profile_text(*result) : result.error().message;
  }
  std::optional<Error> refusal(const std::string& name = "current") {
    auto result = export_profile(node.snapshot().inventory, name);
    return result ? std::nullopt : std::optional<Error>(std::move(result).error());
  }
  /// The file that was exported, as `apply` and `assert` read it.
  static Profile read(const std::string& text) {
    const auto file =
        read_profiles({.file = "exported.yaml", .text = text, .first_line = 1, .one_line = false});
    EXPECT_TRUE(file) << message_of(file ? std::nullopt : std::optional<Error>(file.error()));
    return select_profile(file.value(), {}).value();
  }
  GpuNode node;
};

TEST_F(Export, HasAnItemForEachSetOfGpusThatHaveTheSame) {
  node.mdev.add_device(GpuNode::kSecond, "nvidia-319", kA);
  node.mdev.add_device(GpuNode::kSecond, "nvidia-232", kB);
  node.mdev.add_device(GpuNode::kSecond, "nvidia-232", kC);
  EXPECT_EQ(exported(),
            "version: v1\n"
            "vgpu-configs:\n"
            "  current:\n"
            "  - devices: [0, 2]\n"
            "    vgpu-devices: {}\n"
            "  - devices: [1]\n"
            "    vgpu-devices:\n"
            "      T4-4C: 1\n"
            "      T4-4Q: 2\n");
}

TEST_F(Export, PutsGpusThatHaveTheSameIntoOneItem) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  node.mdev.add_device(GpuNode::kSecond, "nvidia-232", kB);
  EXPECT_THAT(exported(), HasSubstr("  - devices: [0, 1]\n    vgpu-devices:\n      T4-4Q: 1\n"
                                    "  - devices: [2]\n    vgpu-devices: {}\n"));
}

TEST_F(Export, IsTakenBackWithoutAWrite) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-233", kA);
  node.make(profile("  - {devices: [1], vgpu-devices: {T4-4Q: 2, T4-4C: 1}}\n"));
  const Profile back = read(exported("no"));  // a word that YAML 1.1 takes for a boolean
  EXPECT_EQ(back.name, "no");
  const auto agrees = assert_profile(back, node.snapshot().inventory);
  EXPECT_TRUE(agrees) << agrees.error().message;
  const VgpuOutcome outcome = node.apply(back);
  EXPECT_EQ(outcome.status(), ExitStatus::done);
  for (const GpuOutcome& gpu : outcome.gpus) EXPECT_EQ(gpu.kind, GpuOutcome::Kind::already_so);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST_F(Export, SaysAllWhereEveryGpuHasTheSame) {
  EXPECT_THAT(exported(), HasSubstr("  - devices: all\n    vgpu-devices: {}\n"));
}

TEST_F(Export, OfANodeWithoutGpusWouldClearNoOtherNode) {
  const auto empty = export_profile(mdev::VgpuInventory{}, "current");
  ASSERT_TRUE(empty);
  const Profile back = read(profile_text(*empty));
  EXPECT_TRUE(assert_profile(back, mdev::VgpuInventory{}));
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  node.apply(back);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST_F(Export, LeavesNoGpuOutThatCannotBeRead) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  const std::string device = std::string("sys/devices/pci0000:00/0000:05:00.0/") + kA;
  node.kernel.remove(device + "/mdev_type");
  node.kernel.file(device + "/mdev_type", "");
  EXPECT_THAT(message_of(refusal()), HasSubstr("GPU 0 (0000:05:00.0): read link "));
}

TEST_F(Export, RefusesWhatNoDriverHasTaken) {
  node.mdev.leave_driverless = true;
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  const auto error = refusal();
  EXPECT_EQ(test::code_of(error), Errc::failed);
  EXPECT_THAT(message_of(error), HasSubstr(std::string("no driver has taken vGPU ") + kA + " (T4-4Q)"));
  EXPECT_THAT(test::hint_of(error), HasSubstr("vgpu delete --foreign --device 0000:05:00.0"));
}

TEST_F(Export, RefusesATypeThatNoFileCanName) {
  node.mdev.add_parent(GpuNode::kSecond, {{"nvidia-900", "GRID T4-2B4", 2048, 8}});
  node.mdev.add_device(GpuNode::kSecond, "nvidia-900", kA);
  const auto error = refusal();
  EXPECT_EQ(test::code_of(error), Errc::unsupported);
  EXPECT_EQ(message_of(error), std::string("GPU 1 (0000:06:00.0): carries vGPU ") + kA +
                                   " of type T4-2B4, which no file can name");
  EXPECT_THAT(test::hint_of(error), HasSubstr("vgpu delete --foreign --device 0000:06:00.0"));
}

TEST_F(Export, RefusesANameThatMayBeTwoTypes) {
  node.mdev.add_parent(GpuNode::kSecond, {{"nvidia-900", "NVIDIA One DC-16Q", 16384, 1},
                                          {"nvidia-901", "NVIDIA Two DC-16Q", 16384, 1}});
  node.mdev.add_device(GpuNode::kSecond, "nvidia-900", kA);
  const auto error = refusal();
  EXPECT_EQ(test::code_of(error), Errc::unsupported);
  EXPECT_THAT(message_of(error), HasSubstr("DC-16Q may be NVIDIA One DC-16Q (nvidia-900) or"));
}

TEST_F(Export, SaysWhatV1HasNoWordsFor) {
  EXPECT_THAT(unsaid_by_v1(node.snapshot().inventory), IsEmpty());
  Profile tuned = profile("  - {devices: [1], vgpu-devices: {T4-4Q: 2}}\n");
  tuned.items.front().vgpus.front().params = VgpuParams::parse("a=1").value();
  node.make(tuned);
  mdev::VgpuInventory inventory = node.snapshot().inventory;
  EXPECT_THAT(unsaid_by_v1(inventory),
              testing::ElementsAre(HasSubstr("GPU 1 (0000:06:00.0): its vGPUs have parameters")));
  inventory.gpus[1].devices[0].type_id = "nvidia-233";  // of another size
  inventory.gpus[1].devices[0].type_name = "GRID T4-8Q";
  inventory.gpus[1].devices[0].short_name = "T4-8Q";
  EXPECT_THAT(unsaid_by_v1(inventory),
              testing::ElementsAre(HasSubstr("GPU 1 (0000:06:00.0): carries vGPUs of several sizes"),
                                   HasSubstr("parameters")));
}

class ExportName : public testing::TestWithParam<std::pair<std::string, bool>> {};

TEST_P(ExportName, MustFitANodesLabel) {
  const auto& [name, fits] = GetParam();
  const auto result = export_profile(mdev::VgpuInventory{}, name);
  EXPECT_EQ(result.has_value(), fits);
  if (!fits) {
    EXPECT_EQ(result.error().code, Errc::usage);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ExportName,
                         testing::Values(std::pair("current", true), std::pair("4x.T4_4Q-b", true),
                                         std::pair("010", true), std::pair(std::string(63, 'a'), true),
                                         std::pair(std::string(64, 'a'), false), std::pair("", false),
                                         std::pair("-a", false), std::pair("a.", false),
                                         std::pair("a b", false), std::pair("a:\n", false),
                                         std::pair("\xc3\xa4", false)));

}  // namespace
}  // namespace ferry::vgpu
