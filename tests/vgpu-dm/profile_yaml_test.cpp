// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/profile_yaml.h"

#include <array>
#include <ostream>

#include <gmock/gmock.h>

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Result<ProfileFile> read(const std::string& text) {
  return read_profiles({.file = "p.yaml", .text = text, .first_line = 1, .one_line = false});
}

/// An item with the given lines under profile "a"; they begin on line 4.
std::string item(const std::string& lines) {
  return "version: v1\nvgpu-configs:\n  a:\n" + lines;
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

TEST(ProfileFile, MayHaveNoProfiles) {
  for (const char* text : {"", "# nothing\n", "---\n", "{}\n", "version: v1\n"}) {
    const auto file = read(text);
    ASSERT_TRUE(file) << text;
    EXPECT_THAT(file->profiles, IsEmpty()) << text;
  }
}

TEST(ProfileFile, MayBeJson) {
  const auto file = read(
      R"({"version": "v1", "vgpu-configs": {"a": [{"devices": [0, 3], "vgpu-devices": {"T4-4Q": 4}}]}})");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_THAT(file->profiles.at(0).items.at(0).indices, ElementsAre(0, 3));
  EXPECT_EQ(counts(file->profiles[0].items[0]), "T4-4Q=4");
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

TEST(ProfileFile, TakesWhatMatchesNoGpu) {
  const auto file =
      read(item("  - devices: []\n    vgpu-devices: {T4-4Q: 4}\n"
                "  - devices: [-1, 99999999999, 0, 0]\n    vgpu-devices:\n"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_THAT(file->profiles[0].items[0].indices, IsEmpty());
  EXPECT_THAT(file->profiles[0].items[1].indices, ElementsAre(-1, 99999999999, 0, 0));
}

TEST(ProfileFile, TakesAnEmptyFilterForNone) {
  for (const char* filter : {"", "\"\"", "[]", "~", "null"}) {
    const auto file = read(
        item(std::string("  - device-filter: ") + filter + "\n    devices: all\n    vgpu-devices: {}\n"));
    ASSERT_TRUE(file) << filter << ": " << file.error().message;
    EXPECT_THAT(file->profiles[0].items[0].filters, IsEmpty()) << filter;
  }
}

// Plain arrays of literals: the analyzer follows each temporary of a table of strings, for many minutes.
struct Bad {
  const char* name;
  const char* text;
  const char* message;
  const char* hint;
};

constexpr const char* kTop = "known here: version, vgpu-configs";
constexpr const char* kItem = "known here: device-filter, devices, vgpu-devices";
constexpr const char* kName =
    "names look like L40S-12Q, RTX6000-Ada-24Q or H100-1-10CME: board, size in GiB, one of A B C Q";
constexpr const char* kFilterForm =
    "write 0xDDDDVVVV or 0xDDDDVVVV:0xSSSSWWWW: device and vendor ID, then the board's subsystem IDs";

constexpr auto kTopRows = std::to_array<Bad>({
    {"NotAMap", "- a\n", "p.yaml:1: expected a map with version and vgpu-configs, found a list", ""},
    {"AWord", "hello\n", "p.yaml:1: expected a map with version and vgpu-configs, found the string 'hello'",
     ""},
    {"NoVersion", "# head\nvgpu-configs: {}\n", "p.yaml:2: version: the key is missing",
     "begin the file with 'version: v1'"},
    {"OtherVersion", "version: v2\n", "p.yaml:1: version: only v1 is known here, found the string 'v2'", ""},
    {"NumberAsVersion", "version: 1\n", "p.yaml:1: version: only v1 is known here, found 1", ""},
    {"NullVersion", "version:\n", "p.yaml:1: version: only v1 is known here, found nothing", ""},
    {"UpperCaseVersion", "version: V1\n", "p.yaml:1: version: only v1 is known here, found the string 'V1'",
     ""},
    {"UnknownTopKey", "version: v1\nvgpu-config:\n  a: []\n",
     "p.yaml:2: vgpu-config: unknown key; did you mean 'vgpu-configs'?", kTop},
    {"ForeignTopKey", "version: v1\nmig-configs: {}\n", "p.yaml:2: mig-configs: unknown key", kTop},
    {"FarTopKey", "version: v1\nx: {}\n", "p.yaml:2: x: unknown key", kTop},
    {"NullConfigs", "version: v1\nvgpu-configs:\n",
     "p.yaml:2: vgpu-configs: expected at least one named configuration, found nothing", ""},
    {"EmptyConfigs", "version: v1\nvgpu-configs: {}\n",
     "p.yaml:2: vgpu-configs: expected at least one named configuration, found none", ""},
    {"ListOfConfigs", "version: v1\nvgpu-configs: [a]\n",
     "p.yaml:2: vgpu-configs: expected at least one named configuration, found a list", ""},
    {"DuplicateTopKey", "version: v1\nversion: v1\n",
     "p.yaml:2: version: the key stands twice, first at p.yaml:1", ""},
    {"DuplicateConfig", "version: v1\nvgpu-configs:\n  a:\n  - {devices: all, vgpu-devices: {}}\n  a:\n",
     "p.yaml:5: a: the key stands twice, first at p.yaml:3", ""},
    {"BooleanName", "version: v1\nvgpu-configs:\n  no: []\n",
     "p.yaml:3: vgpu-configs.no: YAML readers do not agree on what this name is", "put it in quotes: \"no\""},
    {"NumberName", "version: v1\nvgpu-configs:\n  010: []\n",
     "p.yaml:3: vgpu-configs.010: YAML readers do not agree on what this name is",
     "put it in quotes: \"010\""},
    {"NullName", "version: v1\nvgpu-configs:\n  ~: []\n",
     "p.yaml:3: vgpu-configs.: YAML readers do not agree on what this name is", "put it in quotes: \"\""},
    {"ConfigIsAnEmptyList", "version: v1\nvgpu-configs:\n  a: []\n",
     "p.yaml:3: vgpu-configs.a: expected a list of at least one item, found an empty one", ""},
    {"MergedUnknownKey", "version: v1\nvgpu-configs:\n  a:\n  - <<: {mig-enabled: true}\n    devices: all\n",
     "p.yaml:4: vgpu-configs.a[0].mig-enabled: unknown key", kItem},
});

// The lines of profile "a", from line 4 on.
constexpr auto kItemRows = std::to_array<Bad>({
    {"ConfigIsNull", "", "p.yaml:3: vgpu-configs.a: expected a list of at least one item, found nothing", ""},
    {"ConfigIsAMap", "    devices: all\n",
     "p.yaml:3: vgpu-configs.a: expected a list of at least one item, found a map", ""},
    {"ItemIsAWord", "  - all\n",
     "p.yaml:4: vgpu-configs.a[0]: expected a map with devices and vgpu-devices, found the string 'all'", ""},
    {"ItemIsNull", "  -\n",
     "p.yaml:4: vgpu-configs.a[0]: expected a map with devices and vgpu-devices, found nothing", ""},
    {"NoDevices", "  - vgpu-devices: {}\n", "p.yaml:4: vgpu-configs.a[0].devices: the key is missing", ""},
    {"NoVgpuDevices", "  - devices: all\n", "p.yaml:4: vgpu-configs.a[0].vgpu-devices: the key is missing",
     ""},
    {"UnknownItemKey", "  - device: all\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].device: unknown key; did you mean 'devices'?", kItem},
    {"MisspeltSecondItem", "  - {devices: all, vgpu-devices: {}}\n  - devices: all\n    vgpu-device: {}\n",
     "p.yaml:6: vgpu-configs.a[1].vgpu-device: unknown key; did you mean 'vgpu-devices'?", kItem},
    {"NullDevices", "  - devices:\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].devices: expected 'all' or a list of GPU numbers, found nothing", ""},
    {"BareNumberAsDevices", "  - devices: 0\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].devices: expected 'all' or a list of GPU numbers, found 0", "write [0]"},
    {"WordAsDevices", "  - devices: ALL\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].devices: expected 'all' or a list of GPU numbers, found the string 'ALL'",
     ""},
    {"MapAsDevices", "  - devices: {}\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].devices: expected 'all' or a list of GPU numbers, found a map", ""},
    {"QuotedIndex", "  - devices: [\"0\"]\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].devices: expected a plain whole number such as 0 or 12, found the string "
     "'0'",
     ""},
    {"OctalIndex", "  - devices: [0, 010]\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].devices: expected a plain whole number such as 0 or 12, found 010", ""},
    {"FractionalIndex", "  - devices: [1.0]\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].devices: expected a plain whole number such as 0 or 12, found 1.0", ""},
    {"HugeIndex", "  - devices: [9223372036854775808]\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].devices: expected a plain whole number such as 0 or 12, found "
     "9223372036854775808",
     ""},
    {"AllInAList", "  - devices: [all]\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].devices: expected a plain whole number such as 0 or 12, found the string "
     "'all'",
     ""},
    {"UnquotedFilter", "  - device-filter: 0x26B910DE\n    devices: all\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].device-filter: expected a string, found 0x26B910DE",
     "put it in quotes: \"0x26B910DE\""},
    {"BareHexFilter", "  - device-filter: 26B910DE\n    devices: all\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].device-filter: '26B910DE' is not a device filter",
     "put 0x in front: 0x26B910DE"},
    {"MalformedFilterInAList",
     "  - device-filter:\n    - \"0x26B910DE\"\n    - \"10de:26b9\"\n    devices: all\n    "
     "vgpu-devices: {}\n",
     "p.yaml:6: vgpu-configs.a[0].device-filter: '10de:26b9' is not a device filter", kFilterForm},
    {"EmptyFilterInAList", "  - device-filter: [\"\"]\n    devices: all\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].device-filter: '' is not a device filter", kFilterForm},
    {"FilterIsAMap", "  - device-filter: {}\n    devices: all\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].device-filter: expected a string or a list of them, found a map", ""},
    {"FilterListHoldsAList", "  - device-filter: [[]]\n    devices: all\n    vgpu-devices: {}\n",
     "p.yaml:4: vgpu-configs.a[0].device-filter: expected a string, found a list", ""},
    {"DuplicateType",
     "  - devices: all\n"
     "    vgpu-devices:\n      T4-4Q: 1\n      T4-4Q: 1\n",
     "p.yaml:7: T4-4Q: the key stands twice, first at p.yaml:6", ""},
});

// The value of vgpu-devices on line 5, and the end of the message.
constexpr auto kVgpuRows = std::to_array<Bad>({
    {"VgpusAreAList", "[T4-4Q]", ": expected a map from type name to count, found a list",
     "write {} for no vGPUs at all"},
    {"VgpusAreAWord", "T4-4Q", ": expected a map from type name to count, found the string 'T4-4Q'",
     "write {} for no vGPUs at all"},
    {"NoTypeName", "{GRID T4-4Q: 1}", ": 'GRID T4-4Q' is not the name of a vGPU type", kName},
    {"LowerCaseType", "{t4-4q: 1}", ": 't4-4q' is not the name of a vGPU type", kName},
    {"NullType", "{~: 1}", ": '' is not the name of a vGPU type", kName},
    {"CountIsZero", "{T4-4Q: 0}", ".T4-4Q: the count must be above 0, found 0",
     "leave the type out for none of it"},
    {"CountIsNegative", "{T4-4Q: -1}", ".T4-4Q: the count must be above 0, found -1",
     "leave the type out for none of it"},
    {"CountIsQuoted", "{T4-4Q: \"4\"}",
     ".T4-4Q: the count must be a plain whole number such as 4, found the string '4'", ""},
    {"CountIsAFraction", "{T4-4Q: 4.0}",
     ".T4-4Q: the count must be a plain whole number such as 4, found 4.0", ""},
    {"CountIsAnExponent", "{T4-4Q: 4e0}",
     ".T4-4Q: the count must be a plain whole number such as 4, found 4e0", ""},
    {"CountIsOctal", "{T4-4Q: 010}", ".T4-4Q: the count must be a plain whole number such as 4, found 010",
     ""},
    {"CountIsHex", "{T4-4Q: 0x4}", ".T4-4Q: the count must be a plain whole number such as 4, found 0x4", ""},
    {"CountHasAPlus", "{T4-4Q: +4}", ".T4-4Q: the count must be a plain whole number such as 4, found +4",
     ""},
    {"CountIsYes", "{T4-4Q: yes}", ".T4-4Q: the count must be a plain whole number such as 4, found yes", ""},
    {"CountIsNull", "{T4-4Q: }", ".T4-4Q: the count must be a plain whole number such as 4, found nothing",
     ""},
    {"CountIsAList", "{T4-4Q: [4]}", ".T4-4Q: the count must be a plain whole number such as 4, found a list",
     ""},
    {"CountIsHuge", "{T4-4Q: 65537}", ".T4-4Q: no GPU carries 65537 vGPUs", ""},
    {"CountIsHugerThanNumbers", "{T4-4Q: 99999999999999999999}",
     ".T4-4Q: the count must be a plain whole number such as 4, found 99999999999999999999", ""},
    {"TimeSlicedBesideMig", "{H200-1-18C: 1, H200-70C: 1}",
     ".H200-70C: a GPU cannot carry it beside H200-1-18C: one is MIG-backed, the other time-sliced",
     "give each kind an item of its own, for other GPUs"},
    {"TwoNamesOfOneType", "{DC-2-48Q: 1, DC-2-48QGFX: 1}", ".DC-2-48QGFX: means the same type as DC-2-48Q",
     "keep one of them, with the sum of the counts"},
});

void expect_refusal(const std::string& text, const std::string& message, const char* hint) {
  const auto file = read(text);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Errc::invalid_config);
  EXPECT_EQ(file.error().message, message);
  EXPECT_EQ(file.error().hint, hint);
}

TEST(BadProfileFile, IsRefusedWithPlaceKeyAndReason) {
  for (const Bad& row : kTopRows) {
    SCOPED_TRACE(row.name);
    expect_refusal(row.text, row.message, row.hint);
  }
}

TEST(BadProfileItem, IsRefusedWithPlaceKeyAndReason) {
  for (const Bad& row : kItemRows) {
    SCOPED_TRACE(row.name);
    expect_refusal(item(row.text), row.message, row.hint);
  }
}

TEST(BadVgpuCount, IsRefusedWithPlaceKeyAndReason) {
  for (const Bad& row : kVgpuRows) {
    SCOPED_TRACE(row.name);
    expect_refusal(item(std::string("  - devices: all\n    vgpu-devices: ") + row.text + "\n"),
                   std::string("p.yaml:5: vgpu-configs.a[0].vgpu-devices") + row.message, row.hint);
  }
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
}  // namespace ferry
