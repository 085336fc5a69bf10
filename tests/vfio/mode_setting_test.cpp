// SPDX-License-Identifier: Apache-2.0
#include "vfio/confidential/mode_setting.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/child_libraries.h"
#include "tests/vfio/register_host.h"
#include "vfio/registers/register_reading.h"

namespace ferry::vfio {
namespace {

using test::address;
using test::kGpu;
using test::kNext;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

const bool kAdded = [] {
  test::child_libraries().push_back({.name = kModeLibrary, .answer = answer_mode_call});
  return true;
}();

/// A host with GPUs on vfio-pci, whose security processors never answer: registers are a file.
class Host : public test::RegisterHost {
 public:
  Host() {
    add(kGpu);
    add(kNext);
    give_group(kGpu, 7);
    give_group(kNext, 8);
  }
  void give_group(const std::string& gpu, unsigned group) {
    tree().link(path(gpu, "iommu_group"), fmt::format("../../../../kernel/iommu_groups/{}", group));
    tree().file(fmt::format("dev/vfio/{}", group), "");
  }
  ModeOutcome set(const std::vector<std::string>& gpus, WantedMode mode = WantedMode::on) {
    std::vector<PciAddress> addresses;
    for (const std::string& gpu : gpus) addresses.push_back(address(gpu));
    return set_modes(writer(), fs(), addresses, mode);
  }
  void expect_untouched() {
    EXPECT_FALSE(has_interrupted_mode_change(fs()));
    EXPECT_FALSE(has_unfinished_reading(fs()));
    for (const char* gpu : {kGpu, kNext}) {
      EXPECT_EQ(text(gpu, "power/control"), "auto");
      EXPECT_EQ(command(gpu), 0U);
    }
  }
};

std::string record_of(const std::string& gpu, const std::string& ids = "10de:2330") {
  return fmt::format(
      R"({{"version": 1, "devices": [{{"address": "{}", "ids": "{}", "wanted": "on", "mode": "off",
          "reset_methods": "flr bus", "knobs": [{{"knob": 8, "value": 0}}]}}]}})",
      gpu, ids);
}

TEST(ModeSetting, ASilentProcessorLeavesEverythingAsItWas) {
  Host host;
  const ModeOutcome outcome = host.set({kGpu});
  EXPECT_THAT(outcome.problem,
              HasSubstr("0000:17:00.0: read knob 2: its security processor took more than 5 s"));
  ASSERT_THAT(outcome.devices, SizeIs(1));
  EXPECT_EQ(outcome.devices[0].before, "off");
  EXPECT_EQ(outcome.devices[0].result, ModeResult::kept);
  host.expect_untouched();
}

struct Refused {
  std::string name;
  void (*set_up)(Host& host);
  std::string problem;
};
void PrintTo(const Refused& row, std::ostream* out) {
  *out << row.name;
}
class ModeSettingRefuses : public testing::TestWithParam<Refused> {};

TEST_P(ModeSettingRefuses, BeforeAnythingIsTouched) {
  Host host;
  GetParam().set_up(host);
  EXPECT_THAT(host.set({kGpu, kNext}).problem, HasSubstr(GetParam().problem));
  EXPECT_FALSE(has_unfinished_reading(host.fs()));
  EXPECT_EQ(host.text(kGpu, "power/control"), "auto");
}

INSTANTIATE_TEST_SUITE_P(
    All, ModeSettingRefuses,
    testing::Values(Refused{"another_driver",
                            [](Host& host) {
                              host.tree().remove(Host::path(kNext, "driver"));
                              host.tree().link(Host::path(kNext, "driver"), "../../drivers/nvidia");
                            },
                            "0000:3b:00.0 is not on vfio-pci"},
                    Refused{"no_driver", [](Host& host) { host.tree().remove(Host::path(kNext, "driver")); },
                            "0000:3b:00.0 is not on vfio-pci"},
                    Refused{"no_group",
                            [](Host& host) { host.tree().remove(Host::path(kNext, "iommu_group")); },
                            "0000:3b:00.0 is not on vfio-pci"},
                    Refused{"no_node", [](Host& host) { host.tree().remove("dev/vfio/8"); },
                            "0000:3b:00.0: its IOMMU group has no node in /dev/vfio"},
                    Refused{"interrupted",
                            [](Host& host) { host.tree().file(kModeRecordFile, record_of(kNext)); },
                            "0000:3b:00.0: an earlier change of its mode is not undone yet"}),
    [](const auto& row) { return row.param.name; });

TEST(ModeSetting, ItsRecordKeepsItsDevicesFromVms) {
  Host host;
  host.add("0000:5e:00.0", {.vendor = 0x1002});
  const auto withheld = [&] { return open_modes(host.fs(), test::must(scan(host.fs()))); };
  EXPECT_THAT(withheld(), IsEmpty());
  host.tree().file(kModeRecordFile, record_of(kNext));
  EXPECT_THAT(withheld(), ElementsAre(Pair(address(kNext),
                                           "a change of the confidential mode of 0000:3b:00.0 is recorded in "
                                           "/var/lib/ferry-hostd/gpus/mode-change.json and has not ended; "
                                           "`ferry cc set` undoes an interrupted one (docs/cc.md)")));
  host.tree().remove(Host::path(kNext, "driver"));
  EXPECT_THAT(withheld(),
              ElementsAre(Pair(address(kNext), HasSubstr("; once the device is bound to vfio-pci, "
                                                         "`ferry cc set` undoes"))));
  host.tree().file(kModeRecordFile, "[[[[");
  EXPECT_THAT(withheld(),
              ElementsAre(Pair(address(kGpu), HasSubstr("may name 0000:17:00.0, and cannot be read: "
                                                        "/var/lib/ferry-hostd/gpus/mode-change.json: ")),
                          Pair(address(kNext), HasSubstr("may name 0000:3b:00.0"))))
      << "all of NVIDIA's";
}

TEST(ModeSetting, ABadRecordNamesItsFault) {
  const auto with = [](const std::string& device) {
    return R"({"version": 1, "devices": [)" + device + "]}";
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "/var/lib/ferry-hostd/gpus/mode-change.json"},
      {"{", "/var/lib/ferry-hostd/gpus/mode-change.json"},
      {"[]", "/var/lib/ferry-hostd/gpus/mode-change.json"},
      {"\x7f", "/var/lib/ferry-hostd/gpus/mode-change.json"},
      {R"({"devices": []})", "version"},
      {R"({"version": 2, "devices": []})", "version"},
      {R"({"version": 1})", "devices"},
      {R"({"version": 1, "devices": {}})", "devices"},
      {with("7"), "devices"},
      {with(R"({"address": "17", "ids": "", "wanted": "on", "mode": "off", "knobs": []})"), "address"},
      {with(R"({"address": "0000:17:00.0", "wanted": "on", "mode": "off", "knobs": []})"), "ids"},
      {with(R"({"address": "0000:17:00.0", "ids": "", "wanted": "yes", "mode": "off", "knobs": []})"),
       "wanted"},
      {with(R"({"address": "0000:17:00.0", "ids": "", "wanted": "on", "mode": 1, "knobs": []})"), "mode"},
      {with(R"({"address": "0000:17:00.0", "ids": "", "wanted": "on", "mode": "off"})"), "knobs"},
      {with(
           R"({"address": "0000:17:00.0", "ids": "", "wanted": "on", "mode": "off", "knobs": [{"knob": 8}]})"),
       "value"},
      {with(R"({"address": "0000:17:00.0", "ids": "", "wanted": "on", "mode": "off",
                "knobs": [{"knob": -1, "value": 0}]})"),
       "knob"},
      {with(R"({"address": "0000:17:00.0", "ids": "", "wanted": "on", "mode": "off",
                "knobs": [{"knob": 8, "value": 4294967296}]})"),
       "value"},
  };
  for (const auto& [text, names] : cases) {
    const auto read = read_mode_record(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, Errc::malformed_host) << text;
    EXPECT_THAT(read.error().message, HasSubstr(names)) << text;
  }
}

TEST(ModeSetting, AnUnreadableRecordIsKept) {
  Host host;
  host.tree().file(kModeRecordFile, "[[[[");
  const ModeOutcome undone = undo_interrupted_mode_change(host.writer(), host.fs());
  EXPECT_THAT(undone.problem, HasSubstr("mode-change.json"));
  EXPECT_TRUE(has_interrupted_mode_change(host.fs()));
}

TEST(ModeSetting, ADeviceThatIsGoneStaysRecorded) {
  Host host;
  host.tree().file(kModeRecordFile, record_of("0000:99:00.0"));
  const ModeOutcome undone = undo_interrupted_mode_change(host.writer(), host.fs());
  ASSERT_THAT(undone.devices, SizeIs(1));
  EXPECT_EQ(undone.devices[0].result, ModeResult::unknown);
  EXPECT_THAT(undone.devices[0].problem, HasSubstr("there is no PCI function"));
  EXPECT_THAT(interrupted_mode_changes(host.fs()), ElementsAre(address("0000:99:00.0")));
}

TEST(ModeSetting, AnEmptyRecordIsNoInterruptedChange) {
  Host host;
  host.tree().file(kModeRecordFile, R"({"version": 1, "devices": []})");
  EXPECT_FALSE(has_interrupted_mode_change(host.fs()));
  const ModeOutcome undone = undo_interrupted_mode_change(host.writer(), host.fs());
  EXPECT_EQ(undone.problem, "");
  EXPECT_THAT(undone.devices, IsEmpty());
}

struct Replaced {
  std::string name;
  std::vector<std::string> before;  ///< entries beside the replaced one
  std::vector<std::string> after;   ///< entries that stay
  void (*set_up)(Host& host) = nullptr;
};
void PrintTo(const Replaced& row, std::ostream* out) {
  *out << row.name;
}
class ModeSettingDrops : public testing::TestWithParam<Replaced> {};

TEST_P(ModeSettingDrops, TheEntryOfABoardThatAnotherOneHasReplaced) {
  Host host;
  if (GetParam().set_up != nullptr) GetParam().set_up(host);
  ModeRecord record = test::must(read_mode_record(record_of(kGpu, "10de:2335")));
  for (const std::string& gpu : GetParam().before)
    record.devices.push_back(test::must(read_mode_record(record_of(gpu))).devices.front());
  host.tree().file(kModeRecordFile, mode_record_text(record));
  std::vector<PciAddress> left;
  for (const std::string& gpu : GetParam().after) left.push_back(address(gpu));

  EXPECT_FALSE(open_modes(host.fs(), std::vector{address(kGpu)}).contains(address(kGpu)));
  EXPECT_EQ(interrupted_mode_changes(host.fs()), left);
  EXPECT_TRUE(has_interrupted_mode_change(host.fs())) << "the next undo writes the record";
  const ModeOutcome undone = undo_interrupted_mode_change(host.writer(), host.fs());
  EXPECT_THAT(undone.problem,
              HasSubstr("0000:17:00.0: a change of the confidential mode of a board 10de:2335 "
                        "was interrupted, and a board 10de:2330 is there now"));
  EXPECT_THAT(undone.devices, SizeIs(left.size())) << "nothing is written to the new board";
  EXPECT_EQ(interrupted_mode_changes(host.fs()), left);
  EXPECT_EQ(has_interrupted_mode_change(host.fs()), !left.empty());
  EXPECT_EQ(host.fs().exists(kModeRecordFile), !left.empty());
}

INSTANTIATE_TEST_SUITE_P(All, ModeSettingDrops,
                         testing::Values(Replaced{.name = "alone", .before = {}, .after = {}},
                                         Replaced{.name = "beside_a_board_that_is_gone",
                                                  .before = {"0000:99:00.0"},
                                                  .after = {"0000:99:00.0"}},
                                         Replaced{.name = "on_another_driver",
                                                  .before = {},
                                                  .after = {},
                                                  .set_up =
                                                      [](Host& host) {
                                                        host.tree().remove(Host::path(kGpu, "driver"));
                                                        host.tree().link(Host::path(kGpu, "driver"),
                                                                         "../../drivers/nvidia");
                                                      }}),
                         [](const auto& row) { return row.param.name; });

// The kernel still has the ids of the board that was there.
TEST(ModeSetting, ABoardThatCannotBeReadStaysRecorded) {
  Host host;
  host.tree().file(Host::path(kGpu, "config"), std::string(64, '\xff'));
  host.tree().file(kModeRecordFile, record_of(kGpu, "10de:2335"));
  EXPECT_TRUE(open_modes(host.fs(), std::vector{address(kGpu)}).contains(address(kGpu)));
  const ModeOutcome undone = undo_interrupted_mode_change(host.writer(), host.fs());
  ASSERT_THAT(undone.devices, SizeIs(1));
  EXPECT_THAT(undone.devices[0].problem, HasSubstr("the device is off the bus"));
  EXPECT_THAT(interrupted_mode_changes(host.fs()), ElementsAre(address(kGpu)));
}

TEST(ModeSetting, ASilentDeviceStaysRecordedAndHasItsMethodsOfResetsBack) {
  Host host;
  host.tree().file(Host::path(kGpu, "reset_method"), "bus\n");
  host.tree().file(kModeRecordFile, record_of(kGpu));
  const ModeOutcome undone = undo_interrupted_mode_change(host.writer(), host.fs());
  ASSERT_THAT(undone.devices, SizeIs(1));
  EXPECT_EQ(undone.devices[0].result, ModeResult::unknown);
  EXPECT_THAT(undone.devices[0].problem, HasSubstr("its security processor took more than 5 s"));
  EXPECT_THAT(interrupted_mode_changes(host.fs()), ElementsAre(address(kGpu)));
  EXPECT_EQ(host.text(kGpu, "reset_method"), "flr bus");
}

}  // namespace
}  // namespace ferry::vfio
