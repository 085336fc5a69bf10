// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/profile/profile_yaml.h"

#include <gmock/gmock.h>

namespace ferry::vgpu {
namespace {

using testing::ElementsAre;

Result<ProfileFile> read(const std::string& text) {
  return read_profiles({.file = "p.yaml", .text = text, .first_line = 1, .one_line = false});
}

/// "T4-4Q=4 T4-8Q=1" of an item.
std::string counts(const ProfileItem& item) {
  std::string out;
  for (const VgpuCount& entry : item.vgpus) {
    out += (out.empty() ? "" : " ") + entry.type.text() + "=" + std::to_string(entry.count);
  }
  return out;
}

constexpr const char* kWorkedExample = R"(version: v1
vgpu-configs:
  render-mix:                      # 2x L40S in slots 0,1 and two T4 after them
    - device-filter: "0x26B910DE"
      devices: [0]
      vgpu-devices: {"L40S-12Q": 4}
    - device-filter: ["0x26B910DE"]
      devices: [1]
      vgpu-devices: {"L40S-48Q": 1}
    - device-filter: "0x1EB810DE:0x12A210DE"
      devices: all
      vgpu-devices: {"T4-4Q": 4}
  ml-slices:
    - devices: all
      vgpu-devices: {"H200-1-18C": 5, "H200-2-35C": 1}
  nothing:
    - devices: all
      vgpu-devices: {}
)";

TEST(ProfileFile, GivesAllOfTheWorkedExample) {
  const auto file = read(kWorkedExample);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_THAT(file->names(), ElementsAre("render-mix", "ml-slices", "nothing"));
  const Profile& mix = file->profiles[0];
  EXPECT_EQ(mix.place, "p.yaml:3");
  ASSERT_EQ(mix.items.size(), 3U);
  EXPECT_THAT(mix.items[0].filters, ElementsAre(DeviceFilter::parse("0x26B910DE").value()));
  EXPECT_THAT(mix.items[0].indices, ElementsAre(0));
  EXPECT_FALSE(mix.items[0].all_devices);
  EXPECT_EQ(counts(mix.items[0]), "L40S-12Q=4");
  EXPECT_EQ(mix.items[0].place, "p.yaml:4");
  EXPECT_EQ(mix.items[0].vgpus[0].place, "p.yaml:6");
  EXPECT_THAT(mix.items[1].indices, ElementsAre(1));
  EXPECT_EQ(counts(mix.items[1]), "L40S-48Q=1");
  EXPECT_TRUE(mix.items[2].all_devices);
  EXPECT_THAT(mix.items[2].filters, ElementsAre(DeviceFilter::parse("0x1EB810DE:0x12A210DE").value()));
  EXPECT_EQ(counts(file->profiles[1].items[0]), "H200-1-18C=5 H200-2-35C=1");
  EXPECT_EQ(counts(file->profiles[2].items[0]), "");
}

TEST(ProfileFile, AppliesAnchorsAndMergeKeys) {
  const auto file = read(R"(version: v1
vgpu-configs:
  a:
  - &t4
    device-filter: "0x1EB810DE"
    devices: all
    vgpu-devices: &counts {T4-4Q: 4}
  b:
  - <<: *t4
    devices: [1]
  - devices: [0]
    vgpu-devices: *counts
)");
  ASSERT_TRUE(file) << file.error().message;
  const Profile& b = file->profiles.at(1);
  EXPECT_THAT(b.items.at(0).indices, ElementsAre(1));
  EXPECT_EQ(b.items[0].filters.size(), 1U);
  EXPECT_EQ(counts(b.items[0]), "T4-4Q=4");
  EXPECT_EQ(counts(b.items.at(1)), "T4-4Q=4");
}

std::string choice(const std::string& text, const std::optional<std::string>& name) {
  const auto profile = select_profile(read(text).value(), name);
  if (profile) return profile->name;
  EXPECT_EQ(profile.error().code, Errc::invalid_config);
  return profile.error().message + " | " + profile.error().hint;
}

const std::string kOne = "version: v1\nvgpu-configs:\n  only: [{devices: all, vgpu-devices: {}}]\n";

TEST(ProfileChoice, NeedsNoNameWhereThereIsOne) {
  EXPECT_EQ(choice(kOne, {}), "only");
  EXPECT_EQ(choice(kOne, "only"), "only");
}

TEST(ProfileChoice, NeedsANameWhereThereAreMore) {
  EXPECT_EQ(
      choice(kWorkedExample, {}),
      "p.yaml: holds 3 configurations, and none was chosen | choose one of: render-mix, ml-slices, nothing");
  EXPECT_EQ(choice(kWorkedExample, "nothing"), "nothing");
}

TEST(ProfileChoice, SuggestsANameThatIsNear) {
  EXPECT_EQ(
      choice(kWorkedExample, "render-mixed"),
      "p.yaml: holds no configuration 'render-mixed'; did you mean 'render-mix'? | it holds: render-mix, "
      "ml-slices, nothing");
  EXPECT_EQ(choice(kWorkedExample, ""),
            "p.yaml: holds no configuration '' | it holds: render-mix, ml-slices, nothing");
}

TEST(ProfileChoice, SaysThatThereIsNothingToChoose) {
  EXPECT_EQ(
      choice("", "a"),
      "p.yaml: holds no configurations | it needs 'version: v1' and at least one entry under vgpu-configs");
  EXPECT_EQ(
      choice("version: v1\n", {}),
      "p.yaml: holds no configurations | it needs 'version: v1' and at least one entry under vgpu-configs");
}

}  // namespace
}  // namespace ferry::vgpu
