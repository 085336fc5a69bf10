// SPDX-License-Identifier: Apache-2.0
#include "vfio/confidential/mode_change.h"

#include <functional>
#include <ostream>
#include <string>
#include <type_traits>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/vfio/mode_board.h"
#include "vfio/registers/register_facts.h"

namespace ferry::vfio {
namespace {

using test::BarModel;
using test::FspModel;
using test::ModelBoard;
using Kind = BarModel::Kind;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr unsigned kDevtools = BarModel::kDevtools;
constexpr unsigned kConfidential = BarModel::kConfidential;
constexpr unsigned kFilter = BarModel::kDecoupler;
constexpr unsigned kPpcie = BarModel::kProtectedPcie;

// "off->on changed; off->off kept: why | the problem of all"
std::string described(const ModeOutcome& outcome) {
  std::string out;
  for (const DeviceOutcome& device : outcome.devices) {
    if (!out.empty()) out += "; ";
    out += fmt::format("{}->{} {}", device.before, device.after, word_for(kModeResults, device.result));
    if (!device.problem.empty()) out += ": " + device.problem;
  }
  if (!outcome.problem.empty()) out += " | " + outcome.problem;
  return out;
}

using Knobs = std::map<unsigned, std::uint32_t>;
const Knobs kOn = {{kConfidential, 1}, {kFilter, 2}};
const Knobs kDevtoolsOn = {{kConfidential, 1}, {kDevtools, 1}};
const Knobs kPpcieOn = {{kPpcie, 1}, {kFilter, 2}};
const Knobs kInvalid = {{kDevtools, 1}};

void start_in(ModelBoard::Device& device, const Knobs& knobs) {
  for (const auto& [knob, value] : knobs) device.model->set_knob(knob, value);
  device.model->reset();
}

BarModel& first(ModelBoard& board) {
  return *board.at(0).model;
}

/// Makes a board ready for a change.
using SetUp = std::function<void(ModelBoard&)>;

SetUp starts_in(const Knobs& knobs) {
  return [knobs](ModelBoard& board) { start_in(board.at(0), knobs); };
}
void leaves_message(ModelBoard& board) {
  first(board).fsp.leave_message({1, 2, 3, 4, 5, 6});
}
void second_refuses(ModelBoard& board) {
  board.at(1).model->fsp.refuses = {{kConfidential, 0x9}};
}
/// A value in the model of the first device, or in its security processor's.
template <typename Value>
SetUp model(Value BarModel::*member, std::type_identity_t<Value> value) {
  return [=](ModelBoard& board) { first(board).*member = value; };
}
template <typename Value>
SetUp fsp(Value FspModel::*member, std::type_identity_t<Value> value) {
  return [=](ModelBoard& board) { first(board).fsp.*member = value; };
}

struct Case {
  std::string name;
  std::vector<Kind> devices;
  WantedMode mode = WantedMode::on;
  SetUp set_up;
  std::string outcome;
  bool keeps_record = false;  ///< a device is not as before, so the next start tries again
};
void PrintTo(const Case& row, std::ostream* out) {
  *out << row.name;
}

struct NameOf {
  template <typename Row>
  std::string operator()(const testing::TestParamInfo<Row>& row) const {
    return row.param.name;
  }
};

/// The outcome for one device that is not changed, and of which the mode is known or not.
std::string kept(const std::string& why, bool is_known = true) {
  return fmt::format("{} kept: {} | 0000:01:00.0: {}", is_known ? "off->off" : "->", why, why);
}
/// The same if the device is the second one, and the first one had this mode.
std::string kept_for_second(const std::string& why, const std::string& mode = "off") {
  return fmt::format("{}->off kept; off->off kept: {} | 0000:02:00.0: {}", mode, why, why);
}

const std::string kQueueSilent =
    "its security processor took more than 5 s to answer (register 0x8f2c90 reads 0x800)";
const std::string kDead =
    "register 0x0 reads 0xffffffff: the function sleeps (D3), is dead, or its firewall is up";
const std::string kRecovery = "its firmware is in recovery mode";
const std::string kRefused = "write 1 to knob 8: its security processor refused with status 0x9";

class ModeChangeTable : public testing::TestWithParam<Case> {};

TEST_P(ModeChangeTable, HasItsOutcome) {
  const Case& row = GetParam();
  ModelBoard board;
  for (const Kind kind : row.devices) board.add(kind);
  if (row.set_up) row.set_up(board);
  EXPECT_EQ(described(change_modes(board, board.addresses(), row.mode)), row.outcome);
  EXPECT_EQ(!board.recorded.empty(), row.keeps_record);
}

INSTANTIATE_TEST_SUITE_P(
    Works, ModeChangeTable,
    testing::Values(
        Case{"hopper_on", {Kind::gh100}, WantedMode::on, {}, "off->on changed"},
        Case{"hopper_devtools", {Kind::gh100}, WantedMode::devtools, {}, "off->devtools changed"},
        Case{"hopper_ppcie", {Kind::gh100}, WantedMode::ppcie, {}, "off->ppcie changed"},
        Case{"blackwell_on", {Kind::gb100}, WantedMode::on, {}, "off->on changed"},
        Case{"blackwell_devtools", {Kind::gb100}, WantedMode::devtools, {}, "off->devtools changed"},
        Case{"workstation_on", {Kind::gb202}, WantedMode::on, {}, "off->on changed"},
        Case{"switch_ppcie", {Kind::ls10}, WantedMode::ppcie, {}, "off->ppcie changed"},
        Case{"nothing_to_do", {Kind::gh100}, WantedMode::off, {}, "off->off unchanged"},
        Case{"on_to_off", {Kind::gh100}, WantedMode::off, starts_in(kOn), "on->off changed"},
        Case{"ppcie_to_off", {Kind::gh100}, WantedMode::off, starts_in(kPpcieOn), "ppcie->off changed"},
        Case{"ppcie_to_on", {Kind::gh100}, WantedMode::on, starts_in(kPpcieOn), "ppcie->on changed"},
        Case{"on_to_ppcie", {Kind::gh100}, WantedMode::ppcie, starts_in(kOn), "on->ppcie changed"},
        Case{"devtools_to_on", {Kind::gb100}, WantedMode::on, starts_in(kDevtoolsOn), "devtools->on changed"},
        Case{"invalid_to_off", {Kind::gh100}, WantedMode::off, starts_in(kInvalid), "invalid->off changed"},
        Case{"invalid_to_on", {Kind::gh100}, WantedMode::on, starts_in(kInvalid), "invalid->on changed"},
        Case{"invalid_to_devtools",
             {Kind::gb100},
             WantedMode::devtools,
             starts_in(kInvalid),
             "invalid->devtools changed"},
        Case{"another_tool_has_staged_it",
             {Kind::gh100},
             WantedMode::off,
             [](ModelBoard& board) { first(board).set_knob(kConfidential, 1); },
             "off->off changed"},
        Case{"it_needs_only_the_reset",
             {Kind::gb100},
             WantedMode::on,
             [](ModelBoard& board) { first(board).set_knob(kConfidential, 1); },
             "off->on changed"},
        Case{"firmware_without_ppcie",
             {Kind::gh100},
             WantedMode::on,
             fsp(&FspModel::unknown, {kPpcie}),
             "off->on changed"},
        Case{"garbage_above_a_value",
             {Kind::gh100},
             WantedMode::on,
             fsp(&FspModel::garbage, 0xdead),
             "off->on changed"},
        Case{"stale_message_in_the_queue", {Kind::gh100}, WantedMode::on, leaves_message, "off->on changed"},
        Case{"stale_request_in_the_queue",
             {Kind::gh100},
             WantedMode::on,
             [](ModelBoard& board) { first(board).fsp.leave_request(4); },
             "off->on changed"},
        Case{"late_answer", {Kind::gh100}, WantedMode::on, fsp(&FspModel::repeats, 1), "off->on changed"},
        Case{
            "stale_message_in_the_mailbox", {Kind::gb100}, WantedMode::on, leaves_message, "off->on changed"},
        Case{"slow_boot",
             {Kind::gh100},
             WantedMode::on,
             model(&BarModel::polls_until_boot, 400),
             "off->on changed"},
        Case{"slow_boot_with_bad_reads",
             {Kind::gb202},
             WantedMode::on,
             [](ModelBoard& board) {
               first(board).polls_until_boot = 900;
               first(board).boot_reads_bad = true;
             },
             "off->on changed"},
        Case{"second_reset_takes",
             {Kind::gh100},
             WantedMode::on,
             model(&BarModel::resets_without_effect, 1),
             "off->on changed"},
        Case{"one_of_two_needs_nothing",
             {Kind::gb100, Kind::gb100},
             WantedMode::on,
             [](ModelBoard& board) {
               start_in(board.at(1), {{kConfidential, 1}});
             },
             "off->on changed; on->on unchanged"}),
    NameOf());

INSTANTIATE_TEST_SUITE_P(
    NothingIsWritten, ModeChangeTable,
    testing::Values(
        Case{"switch_has_no_on", {Kind::ls10}, WantedMode::on, {}, kept("its chip ls10 has no mode 'on'")},
        Case{"blackwell_has_no_ppcie",
             {Kind::gb100},
             WantedMode::ppcie,
             {},
             kept("its chip gb100 has no mode 'ppcie'")},
        Case{"old_switch",
             {Kind::lr10},
             WantedMode::ppcie,
             {},
             kept("this chip has no confidential mode, and no registers that are known", false)},
        Case{"firmware_without_the_mode",
             {Kind::gh100},
             WantedMode::ppcie,
             fsp(&FspModel::unknown, {kPpcie}),
             kept("its firmware has no mode 'ppcie' (it does not know knob 45)")},
        Case{"dead", {Kind::gh100}, WantedMode::on, model(&BarModel::dead, true), kept(kDead, false)},
        Case{"recovery",
             {Kind::gh100},
             WantedMode::on,
             model(&BarModel::recovery, true),
             kept(kRecovery, false)},
        Case{"never_boots",
             {Kind::gb100},
             WantedMode::on,
             [](ModelBoard& board) {
               first(board).polls_until_boot = 1'000'000;
               first(board).reset();
             },
             kept("it has not booted", false)},
        Case{"processor_is_gone",
             {Kind::gh100},
             WantedMode::on,
             fsp(&FspModel::gone, true),
             kept("its security processor does not answer: register 0x8f2c10 reads 0xbadf1301")},
        Case{"knob_cannot_be_read",
             {Kind::gh100},
             WantedMode::on,
             fsp(&FspModel::unreadable, {{kConfidential, 0x5}}),
             kept("read knob 8: its security processor refused with status 0x5")},
        Case{"record_cannot_be_stored",
             {Kind::gh100, Kind::gh100},
             WantedMode::on,
             [](ModelBoard& board) {
               board.store_fails =
                   Error{.code = make_error_code(Errc::failed), .message = "the disk is full"};
             },
             "off->off kept; off->off kept | the disk is full"},
        Case{"second_device_cannot",
             {Kind::gh100, Kind::gb100},
             WantedMode::ppcie,
             {},
             kept_for_second("its chip gb100 has no mode 'ppcie'")}),
    NameOf());

// Faults of the way to the processor: nothing is written, since knobs are read before.
struct WayCase {
  std::string name;
  Kind kind;
  SetUp fault;
  std::string problem;
};
void PrintTo(const WayCase& row, std::ostream* out) {
  *out << row.name;
}
class FspFaults : public testing::TestWithParam<WayCase> {};

TEST_P(FspFaults, EndTheChangeBeforeItsFirstWrite) {
  const WayCase& row = GetParam();
  ModelBoard board;
  auto& device = board.add(row.kind);
  row.fault(board);
  const ModeOutcome outcome = change_modes(board, board.addresses(), WantedMode::on);
  EXPECT_EQ(outcome.problem, "0000:01:00.0: read knob " + row.problem);
  EXPECT_THAT(device.model->fsp.stored, IsEmpty());
  EXPECT_EQ(board.resets(), 0U);
  EXPECT_THAT(board.recorded, IsEmpty());
}

const std::string kSlow = ": its security processor took more than ";
const std::string kWrong = ": its security processor gave a wrong answer: ";
INSTANTIATE_TEST_SUITE_P(
    All, FspFaults,
    testing::Values(
        WayCase{"queue_is_never_taken", Kind::gh100, fsp(&FspModel::deaf, true),
                "2" + kSlow + "5 s to answer (register 0x8f2c90 reads 0x0)"},
        WayCase{"queue_is_silent", Kind::gh100, fsp(&FspModel::silent, true),
                "2" + kSlow + "5 s to answer (register 0x8f2c90 reads 0x0)"},
        WayCase{"queue_keeps_the_message_before", Kind::gh100, fsp(&FspModel::keeps_messages, true),
                "4" + kSlow + "1 s to take the message before (register 0x8f2c10 reads 0x800)"},
        WayCase{"queue_answer_is_short", Kind::gh100, fsp(&FspModel::answer_words, 4),
                "2" + kWrong + "4 words"},
        WayCase{"queue_answer_has_no_value", Kind::gh100, fsp(&FspModel::answer_words, 5),
                "2: the answer has no value"},
        WayCase{"queue_answer_is_too_long", Kind::gh100, fsp(&FspModel::answer_bytes, 4096),
                "2: its queue holds no message: head 0x800, tail 0x17fc"},
        WayCase{"queue_answer_is_odd", Kind::gh100, fsp(&FspModel::answer_bytes, 22),
                "2: its queue holds no message: head 0x800, tail 0x812"},
        WayCase{"answer_of_another_type", Kind::gh100, fsp(&FspModel::answer, {{1, 0x1410de7e}}),
                "2" + kWrong + "its header is 0xc0000000 0x1410de7e"},
        WayCase{"answer_in_several_packets", Kind::gh100, fsp(&FspModel::answer, {{0, 0x80000000}}),
                "2" + kWrong + "its header is 0x80000000 0x1510de7e"},
        WayCase{"answer_to_another_request", Kind::gh100, fsp(&FspModel::answer, {{3, 0x14}}),
                "2" + kWrong + "it answers a request of type 0x14"},
        WayCase{"unknown_status", Kind::gh100, fsp(&FspModel::answer, {{4, 0x77}}),
                "2: its security processor refused with status 0x77"},
        WayCase{"mailbox_is_deaf", Kind::gb100, fsp(&FspModel::deaf, true),
                "2" + kSlow + "5 s to take a message (register 0x8f1f84 reads 0x4000000)"},
        WayCase{"mailbox_gives_no_credit", Kind::gb100, fsp(&FspModel::no_credit, true),
                "2" + kSlow + "1 s to take a part of a message (register 0x8f1f84 reads 0x1000000)"},
        WayCase{"mailbox_has_an_error", Kind::gb100, fsp(&FspModel::mailbox_error, true),
                "2: its mailbox shows an error: 0x8f1f84 reads 0x7000000"},
        WayCase{"mailbox_is_silent", Kind::gb202, fsp(&FspModel::silent, true),
                "2" + kSlow + "5 s to answer (register 0x8f1f04 reads 0x0)"},
        WayCase{"mailbox_answer_is_odd", Kind::gb100, fsp(&FspModel::answer_bytes, 21),
                "2: its mailbox offers 21 bytes"},
        WayCase{"mailbox_answer_is_too_long", Kind::gb100, fsp(&FspModel::answer_bytes, 8192),
                "2: its mailbox offers 8192 bytes"},
        WayCase{"mailbox_answer_is_short", Kind::gb100, fsp(&FspModel::answer_words, 2),
                "2" + kWrong + "2 words"}),
    NameOf());

// Faults after the first write: all devices go back, and a device that does not is named.
INSTANTIATE_TEST_SUITE_P(
    IsUndone, ModeChangeTable,
    testing::Values(Case{"host_may_not_set_it",
                         {Kind::gh100},
                         WantedMode::on,
                         fsp(&FspModel::refuses, {{kConfidential, 0x9}}),
                         kept(kRefused)},
                    Case{"write_is_forgotten",
                         {Kind::gb100},
                         WantedMode::on,
                         fsp(&FspModel::forgets, {kConfidential}),
                         kept("write 1 to knob 8: it still reads 0")},
                    Case{"second_device_refuses",
                         {Kind::gh100, Kind::gh100, Kind::gh100},
                         WantedMode::on,
                         second_refuses,
                         "off->off kept; off->off kept: " + kRefused +
                             "; off->off kept | 0000:02:00.0: " + kRefused},
                    Case{"processor_falls_silent_for_good",
                         {Kind::gh100},
                         WantedMode::on,
                         fsp(&FspModel::writes_until_silent, 1),
                         "off->off unknown: write 1 to knob 8: " + kQueueSilent +
                             "; it could not be brought back: read knob 2: " + kQueueSilent +
                             " | 0000:01:00.0: write 1 to knob 8: " + kQueueSilent,
                         true},
                    Case{"reset_is_not_possible",
                         {Kind::gh100},
                         WantedMode::on,
                         [](ModelBoard& board) {
                           board.at(0).reset_fails =
                               Error{.code = make_error_code(Errc::failed), .message = "ENOTTY"};
                         },
                         kept("ENOTTY")},
                    Case{"resets_do_not_take",
                         {Kind::gh100},
                         WantedMode::on,
                         model(&BarModel::resets_without_effect, 2),
                         kept("after two resets its register shows the mode 'off' in place of 'on'")},
                    Case{"dead_after_its_reset",
                         {Kind::gh100, Kind::gh100},
                         WantedMode::on,
                         [](ModelBoard& board) { board.at(1).reset_kills_it = true; },
                         "off->off kept; off-> unknown: " + kDead +
                             "; it could not be brought back: " + kDead + " | 0000:02:00.0: " + kDead,
                         true},
                    Case{"recovery_after_its_reset",
                         {Kind::gh100},
                         WantedMode::on,
                         [](ModelBoard& board) { board.at(0).reset_into_recovery = true; },
                         "off-> unknown: " + kRecovery + "; it could not be brought back: " + kRecovery +
                             " | 0000:01:00.0: " + kRecovery,
                         true},
                    Case{"invalid_is_turned_off",
                         {Kind::gh100, Kind::gh100},
                         WantedMode::on,
                         [](ModelBoard& board) {
                           start_in(board.at(0), kInvalid);
                           second_refuses(board);
                         },
                         kept_for_second(kRefused, "invalid")},
                    Case{"staged_by_another_tool",
                         {Kind::gh100, Kind::gh100},
                         WantedMode::devtools,
                         [](ModelBoard& board) {
                           first(board).set_knob(kConfidential, 1);
                           second_refuses(board);
                         },
                         kept_for_second(kRefused)}),
    NameOf());

TEST(ModeChangeTest, ABoardWhoseFifthDeviceFailsIsAsBefore) {
  ModelBoard board;
  for (int i = 0; i < 8; ++i) board.add(Kind::gh100);
  for (int i = 0; i < 4; ++i) board.add(Kind::ls10);
  board.at(4).model->resets_without_effect = 2;
  const ModeOutcome outcome = change_modes(board, board.addresses(), WantedMode::ppcie);
  EXPECT_EQ(outcome.problem,
            "0000:05:00.0: after two resets its register shows the mode 'off' in place of 'ppcie'");
  ASSERT_EQ(outcome.devices.size(), 12U);
  for (const DeviceOutcome& device : outcome.devices) {
    EXPECT_EQ(device.result, ModeResult::kept) << device.address.text();
    EXPECT_EQ(device.after, "off") << device.address.text();
  }
  // No device has a mode left that its next reset would give it.
  board.power_cycle();
  for (const DeviceOutcome& device : change_modes(board, board.addresses(), WantedMode::off).devices)
    EXPECT_EQ(device.result, ModeResult::unchanged) << device.address.text();
}

TEST(ModeChangeTest, EveryDeviceIsStagedBeforeTheFirstReset) {
  ModelBoard board;
  board.add(Kind::gh100);
  board.add(Kind::ls10);
  board.at(1).model->fsp.refuses = {{kPpcie, 0x9}};
  const ModeOutcome outcome = change_modes(board, board.addresses(), WantedMode::ppcie);
  EXPECT_FALSE(outcome.problem.empty());
  EXPECT_EQ(board.resets(), 0U);
}

TEST(ModeChangeTest, TheSecondTimeNothingIsWritten) {
  ModelBoard board;
  board.add(Kind::gh100);
  ASSERT_EQ(change_modes(board, board.addresses(), WantedMode::on).problem, "");
  const unsigned before = board.writes;
  EXPECT_EQ(described(change_modes(board, board.addresses(), WantedMode::on)), "on->on unchanged");
  EXPECT_EQ(board.writes, before);
}

TEST(ModeChangeTest, TheSecondResetIsOfTheBus) {
  ModelBoard board;
  auto& device = board.add(Kind::gh100);
  device.model->resets_without_effect = 1;
  EXPECT_EQ(described(change_modes(board, board.addresses(), WantedMode::on)), "off->on changed");
  EXPECT_EQ(device.resets, 2U);
  EXPECT_EQ(device.bus_resets, 1U);
  EXPECT_EQ(device.reset_methods, "flr bus");
}

// Killed at each write, also in the undo: the next process restores the kernel's methods.
TEST(ModeChangeTest, AKillInAResetOfTheBusLeavesNoOtherMethod) {
  unsigned left = 0;
  unsigned undos_killed = 0;
  for (unsigned at = 0;; ++at) {
    SCOPED_TRACE(at);
    ModelBoard board;
    for (int i = 0; i < 2; ++i) board.add(Kind::gh100).model->resets_without_effect = 1;
    const auto is_left = [&] {
      return board.at(0).reset_methods != "flr bus" || board.at(1).reset_methods != "flr bus";
    };
    board.killed_at = at;
    try {
      change_modes(board, board.addresses(), WantedMode::on);
      break;
    } catch (const test::Killed&) {
      if (is_left()) ++left;
    }
    board.killed_at = board.writes + at % 5;
    try {
      undo_mode_change(board, board.recorded);
    } catch (const test::Killed&) {
      ++undos_killed;
    }
    board.killed_at.reset();
    for (const DeviceOutcome& device : undo_mode_change(board, board.recorded).devices)
      EXPECT_NE(device.result, ModeResult::unknown) << device.problem;
    EXPECT_THAT(board.recorded, IsEmpty());
    EXPECT_FALSE(is_left());
  }
  EXPECT_GT(undos_killed, 4U);
  EXPECT_EQ(left, 4U) << "before and after the reset of each device";
}

using Write = FspModel::Write;

TEST(ModeChangeTest, DevtoolsIsNeverSetAlone) {
  ModelBoard board;
  auto& device = board.add(Kind::gh100);
  change_modes(board, board.addresses(), WantedMode::devtools);
  EXPECT_THAT(device.model->fsp.stored, ElementsAre(Write{kConfidential, 1}, Write{kDevtools, 1}));
  device.model->fsp.stored.clear();
  change_modes(board, board.addresses(), WantedMode::ppcie);
  EXPECT_THAT(device.model->fsp.stored,
              ElementsAre(Write{kDevtools, 0}, Write{kConfidential, 0}, Write{kFilter, 2}, Write{kPpcie, 1}));
  device.model->fsp.stored.clear();
  change_modes(board, board.addresses(), WantedMode::off);
  EXPECT_THAT(device.model->fsp.stored, ElementsAre(Write{kFilter, 0}, Write{kPpcie, 0}));
}

TEST(ModeChangeTest, UnnamedKnobsComeBackAfterTheModeIsOff) {
  ModelBoard board;
  auto& device = board.add(Kind::gh100);
  start_in(device, {{2, 1}, {34, 1}});
  device.model->resets_without_effect = 2;
  EXPECT_FALSE(change_modes(board, board.addresses(), WantedMode::on).problem.empty());
  EXPECT_THAT(device.model->fsp.stored,
              ElementsAre(Write{2, 0}, Write{34, 0}, Write{kFilter, 2}, Write{kConfidential, 1},
                          Write{kFilter, 0}, Write{kConfidential, 0}, Write{2, 1}, Write{34, 1}));
}

TEST(ModeChangeTest, ADeviceThatCannotBeResetIsNotTouched) {
  ModelBoard board;
  board.add(Kind::gh100);
  board.add(Kind::gh100).has_no_reset = true;
  EXPECT_EQ(change_modes(board, board.addresses(), WantedMode::on).problem, "0000:02:00.0: no method");
  EXPECT_EQ(board.writes, 0U);
}

TEST(ModeChangeTest, OnlyDevicesThatAreNotBackStayRecorded) {
  ModelBoard board;
  for (int i = 0; i < 3; ++i) board.add(Kind::gb100);
  board.at(1).model->fsp.writes_until_silent = 1;
  board.at(1).model->fsp.refuses = {{kConfidential, 0x9}};
  change_modes(board, board.addresses(), WantedMode::devtools);
  EXPECT_THAT(board.recorded, IsEmpty());
  board.at(1).model->fsp.refuses.clear();
  board.at(1).model->fsp.writes_until_silent = 1;
  change_modes(board, board.addresses(), WantedMode::devtools);
  ASSERT_THAT(board.recorded, testing::SizeIs(1));
  EXPECT_EQ(board.recorded[0].address, board.addresses()[1]);
  board.at(1).model->fsp.silent = false;
  board.at(1).model->fsp.writes_until_silent.reset();
  EXPECT_EQ(described(undo_mode_change(board, board.recorded)), "off->off kept");
  EXPECT_THAT(board.recorded, IsEmpty());
}

/// The kinds of a board and the modes that it may have, with the knobs of each.
struct Board {
  std::string name;
  std::vector<Kind> kinds;
  std::map<WantedMode, Knobs> modes;
};
void PrintTo(const Board& board, std::ostream* out) {
  *out << board.name;
}
class KilledModeChange : public testing::TestWithParam<Board> {
 protected:
  static std::string mode_now(ModelBoard& board, std::size_t at) {
    ModelBoard::Device& device = board.at(at);
    const auto chip = board.chip(board.addresses()[at]);
    return std::string(
        (chip ? read_register_facts(*device.model, *chip) : read_switch_facts(*device.model)).mode());
  }
  /// All devices have the one mode or the other, and the next reset changes none.
  static void expect_one_mode(ModelBoard& board, WantedMode start, WantedMode wanted) {
    std::string now;
    for (const bool again : {false, true}) {
      if (again) board.power_cycle();
      for (std::size_t i = 0; i < board.addresses().size(); ++i) {
        const std::string shown = mode_now(board, i);
        EXPECT_TRUE(shown == word_for(kWantedModes, start) || shown == word_for(kWantedModes, wanted))
            << shown;
        if (now.empty()) now = shown;
        EXPECT_EQ(shown, now);
      }
    }
  }
};

// Killed at each write: the next process undoes the change or keeps a finished one, also if it is killed
// itself.
TEST_P(KilledModeChange, IsUndone) {
  unsigned kills = 0;
  for (const auto& [start, knobs] : GetParam().modes) {
    for (const auto& [wanted, unused] : GetParam().modes) {
      for (unsigned at = 0;; ++at) {
        SCOPED_TRACE(fmt::format("{} to {}, killed at {}", word_for(kWantedModes, start),
                                 word_for(kWantedModes, wanted), at));
        ModelBoard board;
        for (const Kind kind : GetParam().kinds) start_in(board.add(kind), knobs);
        board.killed_at = at;
        try {
          change_modes(board, board.addresses(), wanted);
          break;
        } catch (const test::Killed&) {
          ++kills;
        }
        board.killed_at = board.writes + at % 5;
        try {
          undo_mode_change(board, board.recorded);
        } catch (const test::Killed&) {
          ++kills;
        }
        board.killed_at.reset();
        for (const DeviceOutcome& device : undo_mode_change(board, board.recorded).devices)
          EXPECT_NE(device.result, ModeResult::unknown) << device.problem;
        EXPECT_THAT(board.recorded, IsEmpty());
        expect_one_mode(board, start, wanted);
      }
    }
  }
  EXPECT_GT(kills, 10U);
}

INSTANTIATE_TEST_SUITE_P(All, KilledModeChange,
                         testing::Values(Board{"two_hoppers",
                                               {Kind::gh100, Kind::gh100},
                                               {{WantedMode::off, {}},
                                                {WantedMode::on, kOn},
                                                {WantedMode::devtools, kDevtoolsOn},
                                                {WantedMode::ppcie, kPpcieOn}}},
                                         Board{"two_blackwells",
                                               {Kind::gb100, Kind::gb202},
                                               {{WantedMode::off, {}},
                                                {WantedMode::on, {{kConfidential, 1}}},
                                                {WantedMode::devtools, kDevtoolsOn}}},
                                         Board{"hopper_with_a_switch",
                                               {Kind::gh100, Kind::ls10},
                                               {{WantedMode::off, {}}, {WantedMode::ppcie, {{kPpcie, 1}}}}}),
                         NameOf());

}  // namespace
}  // namespace ferry::vfio
