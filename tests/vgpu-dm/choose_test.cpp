// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/choose.h"

#include <gmock/gmock.h>

#include "tests/vgpu-dm/gpu_node.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::vgpu {
namespace {

using test::at;
using test::code_of;
using test::GpuNode;
using test::hint_of;
using test::message_of;
using testing::HasSubstr;

constexpr const char* kA = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
constexpr const char* kB = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a11";

/// "T4-8Q (8192 MiB), 2 left"
std::string text(const std::optional<mdev::VgpuType>& fit) {
  if (!fit) return "none";
  return fit->short_name + " (" + std::to_string(fit->framebuffer_mib.value_or(0)) + " MiB), " +
         std::to_string(fit->available) + " left";
}

class Choose : public testing::Test {
 protected:
  Choice choose(std::uint32_t mib, std::optional<char> series = {},
                const std::set<vfio::PciAddress>& gpus = {}) {
    return choose_types(node.snapshot().inventory, gpus, {.framebuffer_mib = mib, .series = series});
  }
  Choice choose_on_first(std::uint32_t mib, std::optional<char> series = {}) {
    return choose(mib, series, {at(GpuNode::kFirst)});
  }
  GpuNode node;
};

TEST_F(Choose, TakesTheTypeWithTheLeastMemoryThatIsEnough) {
  EXPECT_EQ(text(choose_on_first(1).smallest), "T4-1Q (1024 MiB), 16 left");
  EXPECT_EQ(text(choose_on_first(1024).smallest), "T4-1Q (1024 MiB), 16 left");
  EXPECT_EQ(text(choose_on_first(1025).smallest), "T4-2Q (2048 MiB), 8 left");
  EXPECT_EQ(text(choose_on_first(6144).smallest), "T4-8Q (8192 MiB), 2 left");
  EXPECT_EQ(text(choose_on_first(16384).smallest), "T4-16Q (16384 MiB), 1 left");
}

TEST_F(Choose, KeepsToASeries) {
  EXPECT_EQ(text(choose_on_first(1, 'C').smallest), "T4-4C (4096 MiB), 4 left");
  EXPECT_EQ(text(choose_on_first(1025, 'B').smallest), "T4-2B (2048 MiB), 8 left");
  EXPECT_EQ(text(choose_on_first(1025, 'A').smallest), "T4-2A (2048 MiB), 8 left");
}

TEST_F(Choose, AnswersForEachGpuAndForAllTogether) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-233", kA);
  const Choice choice = choose(6144);
  ASSERT_EQ(choice.gpus.size(), 3U);
  EXPECT_EQ(text(choice.gpus[0].fit), "T4-8Q (8192 MiB), 1 left");
  EXPECT_EQ(text(choice.gpus[1].fit), "T4-8Q (8192 MiB), 2 left");
  EXPECT_EQ(text(choice.gpus[2].fit), "none");
  EXPECT_EQ(message_of(choice.gpus[2].reason),
            "GPU 2 (0000:07:00.0): its driver nouveau offers no vGPU types and is no vGPU host driver");
  EXPECT_EQ(text(choice.smallest), "T4-8Q (8192 MiB), 3 left");
  EXPECT_FALSE(choice.reason);
}

TEST_F(Choose, TakesWhatCanBeMadeBesideWhatIsThere) {
  // One 4 GiB vGPU hides the types of 2 GiB, which would be enough.
  node.mdev.add_device(GpuNode::kFirst, "nvidia-232", kA);
  EXPECT_EQ(text(choose_on_first(2048).smallest), "T4-4Q (4096 MiB), 3 left");
  const Choice both = choose(2048);
  EXPECT_EQ(text(both.smallest), "T4-2Q (2048 MiB), 8 left") << "of the other GPU alone";
}

TEST_F(Choose, SaysWhatIsInTheWay) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-233", kA);
  node.mdev.add_device(GpuNode::kFirst, "nvidia-320", kB);
  const Choice choice = choose_on_first(6144);
  EXPECT_FALSE(choice.smallest);
  EXPECT_EQ(code_of(choice.reason), Errc::refused);
  EXPECT_EQ(message_of(choice.reason),
            "GPU 0 (0000:05:00.0): T4-8Q (8192 MiB) would do, but the GPU is full: it carries 1 x T4-8C, "
            "1 x T4-8Q");
  EXPECT_THAT(hint_of(choice.reason), HasSubstr("remove its vGPUs"));
}

TEST_F(Choose, SaysWhichIsTheLargestWhereNoneIsEnough) {
  const Choice choice = choose(16385);
  EXPECT_FALSE(choice.smallest);
  EXPECT_EQ(code_of(choice.reason), Errc::unsupported);
  EXPECT_EQ(message_of(choice.reason),
            "no GPU asked has a vGPU type with 16385 MiB or more; the largest is T4-16C (16384 MiB)");
  EXPECT_EQ(
      message_of(choose(4096, 'B').reason),
      "no GPU asked has a vGPU type of series B with 4096 MiB or more; the largest is T4-2B (2048 MiB)");
  EXPECT_EQ(message_of(choose(4096, 'B').gpus[0].reason),
            "GPU 0 (0000:05:00.0): no vGPU type of series B has 4096 MiB; the largest is T4-2B (2048 MiB)");
}

TEST_F(Choose, SaysThatNoTypeIsAvailable) {
  const Choice choice = choose(1, {}, {at(GpuNode::kOther)});
  EXPECT_EQ(code_of(choice.reason), Errc::unsupported);
  EXPECT_EQ(message_of(choice.reason), "no GPU asked offers a vGPU type with 1 MiB or more");
  EXPECT_THAT(hint_of(choice.reason), HasSubstr("ferry vgpu types"));
  EXPECT_EQ(code_of(choose_types(mdev::VgpuInventory{}, {}, {.framebuffer_mib = 1, .series = {}}).reason),
            Errc::unsupported);
}

/// A GPU that says what each row says of itself.
class ChooseAmong : public testing::Test {
 protected:
  ChooseAmong() { gpu.parents.resize(1); }
  void offer(const std::string& name, std::uint32_t available,
             std::optional<std::uint32_t> framebuffer_mib = {}) {
    add_type(gpu.parents.front(), name, available, framebuffer_mib);
  }
  static mdev::VgpuType& add_type(mdev::VgpuParent& parent, const std::string& name, std::uint32_t available,
                                  std::optional<std::uint32_t> framebuffer_mib) {
    mdev::VgpuType& type = parent.types.emplace_back();
    type.id = "nvidia-" + std::to_string(parent.types.size());
    type.name = name;
    type.short_name = name.substr(name.find_last_of(' ') + 1);
    type.available = available;
    type.framebuffer_mib = framebuffer_mib;
    return type;
  }
  Choice choice_of(std::uint32_t mib) const {
    mdev::VgpuInventory all{.gpus = {gpu}, .notes = {}};
    fill_in(all.gpus);
    return choose_types(all, {}, {.framebuffer_mib = mib, .series = {}});
  }
  std::string chosen(std::uint32_t mib) const { return text(choice_of(mib).smallest); }
  mdev::VgpuGpu gpu;
};

TEST_F(ChooseAmong, TypesWithoutADescriptionGoesByTheirNames) {
  offer("GRID M60-0Q", 16);
  offer("GRID M60-2Q", 4);
  EXPECT_EQ(chosen(512), "M60-0Q (512 MiB), 16 left");
  EXPECT_EQ(chosen(513), "M60-2Q (2048 MiB), 4 left");
  const Choice choice = choice_of(1);
  EXPECT_TRUE(choice.smallest && choice.smallest->framebuffer_by_name);
}

TEST_F(ChooseAmong, TypesBelievesTheDriverBeforeTheName) {
  offer("NVIDIA H200-70C", 2, 70656);
  EXPECT_EQ(chosen(70656), "H200-70C (70656 MiB), 2 left");
  EXPECT_EQ(chosen(71680), "none") << "its name says 70";
}

TEST_F(ChooseAmong, TypesTakesNoneThatAProfileCannotName) {
  offer("GRID T4-2B4", 8, 2048);
  offer("NVIDIA One DC-4Q", 4, 4096);
  offer("NVIDIA Two DC-4Q", 4, 4096);
  offer("GRID T4-8Q", 2, 8192);
  EXPECT_EQ(chosen(1024), "T4-8Q (8192 MiB), 2 left");
}

/// A GPU that carries vGPUs, or offers names that no file can have.
struct NoFit {
  std::string name;
  std::vector<mdev::VgpuType> types;  ///< those without `available` cannot be made now
  std::vector<std::string> carried;
  std::error_code code;
  std::string message;
  std::string hint;
};
void PrintTo(const NoFit& row, std::ostream* out) {
  *out << row.name;
}
class ChooseSays : public ChooseAmong, public testing::WithParamInterface<NoFit> {};

mdev::VgpuType of_mib(const std::string& name, std::uint32_t mib, std::uint32_t available) {
  return {.id = name,
          .name = "NVIDIA " + name,
          .short_name = name.substr(name.find_last_of(' ') + 1),
          .available = available,
          .framebuffer_mib = mib};
}

TEST_P(ChooseSays, WhyNoTypeWith8192MibIsChosen) {
  gpu.parents.front().types = GetParam().types;
  for (const std::string& carried : GetParam().carried) {
    mdev::VgpuDevice& device = gpu.devices.emplace_back();
    device.type_id = carried;
    device.type_name = carried;
    device.short_name = carried;
  }
  const Choice choice =
      choose_types({.gpus = {gpu}, .notes = {}}, {}, {.framebuffer_mib = 8192, .series = {}});
  EXPECT_FALSE(choice.smallest);
  ASSERT_TRUE(choice.reason);
  EXPECT_EQ(choice.reason->code, GetParam().code);
  EXPECT_THAT(choice.reason->message, HasSubstr(GetParam().message));
  EXPECT_THAT(choice.reason->hint, HasSubstr(GetParam().hint));
}

INSTANTIATE_TEST_SUITE_P(
    All, ChooseSays,
    testing::Values(
        NoFit{.name = "full_of_that_size",
              .types = {of_mib("L40S-12Q", 12288, 0)},
              .carried = {"L40S-12Q", "L40S-12Q"},
              .code = Errc::refused,
              .message = "L40S-12Q (12288 MiB) would do, but the GPU is full: it carries 2 x L40S-12Q",
              .hint = "remove its vGPUs, or take another GPU"},
        NoFit{.name = "another_size",
              .types = {of_mib("T4-4Q", 4096, 3), of_mib("T4-8Q", 8192, 0)},
              .carried = {"T4-4Q"},
              .code = Errc::refused,
              .message = "T4-8Q (8192 MiB) would do, but none fits together with 1 x T4-4Q",
              .hint = "T4-4Q (4096 MiB) can still be made: ask for that size, or remove the GPU's vGPUs"},
        NoFit{
            .name = "mixed_sizes",
            .types = {of_mib("L40S-1Q", 1024, 9), of_mib("L40S-6Q", 6144, 1), of_mib("L40S-24Q", 24576, 0)},
            .carried = {"L40S-24Q", "L40S-6Q"},
            .code = Errc::refused,
            .message = "L40S-24Q (24576 MiB) would do, but none fits together with 1 x L40S-24Q, 1 x L40S-6Q",
            .hint = "L40S-6Q (6144 MiB) can still be made"},
        NoFit{
            .name = "on_gpu_instances",
            .types = {of_mib("DC-1-3Q", 3072, 6), of_mib("DC-1-12Q", 12288, 0)},
            .carried = {"DC-1-3Q", "DC-2-48Q"},
            .code = Errc::refused,
            .message = "DC-1-12Q (12288 MiB) would do, but none fits together with 1 x DC-1-3Q, 1 x DC-2-48Q",
            .hint = "DC-1-3Q (3072 MiB) can still be made"},
        NoFit{.name = "full_of_an_unknown_type",
              .types = {},
              .carried = {"1153"},
              .code = Errc::refused,
              .message = "the GPU is full: it carries 1 x 1153, and its driver lists no types now",
              .hint = "remove its vGPUs"},
        NoFit{
            .name = "a_name_for_no_file",
            .types = {of_mib("T4-1Q", 1024, 14), of_mib("T4-16", 16384, 1)},
            .carried = {},
            .code = Errc::unsupported,
            .message = "T4-16 (16384 MiB) would do, but no file can name it; the largest other one is T4-1Q "
                       "(1024 MiB)",
            .hint = "ask for less, or give the GPU away whole"},
        NoFit{.name = "a_name_for_no_file_alone",
              .types = {of_mib("T4-8B4", 8192, 1)},
              .carried = {},
              .code = Errc::unsupported,
              .message = "T4-8B4 (8192 MiB) would do, but no file can name it",
              .hint = "give the GPU away whole"},
        NoFit{.name = "a_name_that_two_types_share",
              .types = {of_mib("One DC-8Q", 8192, 1), of_mib("Two DC-8Q", 8192, 1)},
              .carried = {},
              .code = Errc::unsupported,
              .message = "DC-8Q (8192 MiB) would do, but no file can name it",
              .hint = "give the GPU away whole"},
        NoFit{.name = "only_small_names_for_no_file",
              .types = {of_mib("T4-2B4", 2048, 8)},
              .carried = {},
              .code = Errc::unsupported,
              .message = "no GPU asked offers a vGPU type with 8192 MiB or more",
              .hint = "`ferry vgpu types`"}),
    [](const auto& row) { return row.param.name; });

TEST_F(ChooseAmong, VirtualFunctionsCountsNoMoreThanTheGpuHas) {
  gpu.parents.clear();
  for (int i = 0; i < 16; ++i) {
    mdev::VgpuParent function;
    add_type(function, "NVIDIA L40S-12Q", 1, 12288).max_instances = 4;
    gpu.parents.push_back(function);
  }
  EXPECT_EQ(chosen(12288), "L40S-12Q (12288 MiB), 4 left");
  gpu.devices.resize(3);
  EXPECT_EQ(chosen(12288), "L40S-12Q (12288 MiB), 1 left");
}

TEST_F(ChooseAmong, TypesSaysWhenADriverMakesNoneOfThem) {
  offer("NVIDIA A100-1-5C", 0, 4864);
  const Choice choice = choose_types({.gpus = {gpu}, .notes = {}}, {}, {.framebuffer_mib = 1, .series = {}});
  EXPECT_EQ(code_of(choice.reason), Errc::unsupported);
  EXPECT_THAT(message_of(choice.reason), HasSubstr("makes none now, though it carries nothing"));
}

}  // namespace
}  // namespace ferry::vgpu
