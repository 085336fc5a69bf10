// SPDX-License-Identifier: Apache-2.0
#include "vfio/registers/register_facts.h"

#include <functional>
#include <ostream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/vfio/bar_model.h"

namespace ferry::vfio {
namespace {

using test::BarModel;
using Kind = BarModel::Kind;

// 80 GiB without ECC: 80 << 30.
constexpr std::uint32_t k80GiB = (80U << 4U) | 10U;

RegisterFacts facts_of(BarModel& model, Kind kind) {
  switch (kind) {
    case Kind::gh100:
      return read_register_facts(model, *gpu_chip(0x2330));
    case Kind::gb100:
      return read_register_facts(model, *gpu_chip(0x2901));
    case Kind::gb202:
      return read_register_facts(model, *gpu_chip(0x2b85));
    case Kind::ls10:
    case Kind::lr10:
      break;
  }
  return read_switch_facts(model);
}

// All that is known, in one line, and then each fact that is not.
std::string described(const RegisterFacts& facts) {
  std::string out = facts.chip;
  const auto flag = [&](const char* name, const std::optional<bool>& value) {
    if (value) out += fmt::format(" {}={}", name, *value ? "yes" : "no");
  };
  flag("booted", facts.booted);
  flag("recovery", facts.recovery);
  if (facts.cc_mode) out += fmt::format(" cc={}", word_for(kCcModes, *facts.cc_mode));
  flag("ppcie", facts.ppcie);
  flag("filter", facts.bar0_filter);
  flag("nvlink", facts.nvlink_encryption);
  flag("scrubbed", facts.scrubbed);
  if (facts.memory_bytes) out += fmt::format(" memory={}", *facts.memory_bytes);
  flag("ecc", facts.ecc);
  if (!facts.chip_id.empty()) out += " id=" + facts.chip_id;
  if (!facts.problem.empty()) out += "\nproblem: " + facts.problem;
  for (const UnknownFact& unknown : facts.unknown) out += "\n" + unknown.fact + ": " + unknown.reason;
  return out;
}

struct Case {
  std::string name;
  Kind kind = Kind::gh100;
  std::function<void(BarModel&)> fault;
  std::string outcome;
};
void PrintTo(const Case& row, std::ostream* out) {
  *out << row.name;
}

std::string all_unknown(Kind kind, const std::string& reason) {
  std::string out;
  if (kind == Kind::ls10) return "\nppcie: " + reason;
  out = "\ncc_mode: " + reason;
  if (kind == Kind::gh100) {
    out += "\nppcie: " + reason;
  } else {
    out += "\nbar0_filter: " + reason + "\nnvlink_encryption: " + reason;
  }
  return out + "\nscrubbed: " + reason + "\nmemory_bytes: " + reason + "\necc: " + reason +
         "\nchip_id: " + reason;
}
std::string blocked(const std::string& mode) {
  const std::string reason = "blocked by the mode '" + mode + "'";
  return "\nscrubbed: " + reason + "\nmemory_bytes: " + reason + "\necc: " + reason + "\nchip_id: " + reason;
}

const std::string kRest = " scrubbed=yes memory=85899345920 ecc=yes id=0123456789abcdef";
const std::string kHopper = "gh100 booted=yes recovery=no cc=off ppcie=no";
const std::string kBlackwell = "gb100 booted=yes recovery=no cc=off filter=no nvlink=no";

std::vector<Case> cases() {
  const auto knobs = [](std::map<unsigned, std::uint32_t> values) {
    return [values = std::move(values)](BarModel& model) {
      for (const auto& [knob, value] : values) model.set_knob(knob, value);
      model.reset();
    };
  };
  const auto forced = [](std::uint32_t offset, std::uint32_t value) {
    return [=](BarModel& model) { model.forced[offset] = value; };
  };
  const auto booting = [](unsigned polls, bool bad) {
    return [=](BarModel& model) {
      model.polls_until_boot = polls;
      model.boot_reads_bad = bad;
      model.reset();
    };
  };
  const auto in_recovery = [](BarModel& model) { model.recovery = true; };
  return {
      {"HopperOff", Kind::gh100, [](BarModel&) {}, kHopper + kRest},
      {"HopperOn", Kind::gh100, knobs({{8, 1}, {10, 2}}),
       "gh100 booted=yes recovery=no cc=on ppcie=no" + blocked("on")},
      {"HopperDevtools", Kind::gh100, knobs({{8, 1}, {6, 1}}),
       "gh100 booted=yes recovery=no cc=devtools ppcie=no\nscrubbed: register 0x100b20 reads 0xbadf1301, an "
       "error\nmemory_bytes: register 0x100ce0 reads 0xbadf1301, an error\necc: register 0x9a0470 reads "
       "0xbadf1301, an error\nchip_id: register 0x820344 reads 0xbadf1301, an error"},
      {"HopperInvalid", Kind::gh100, knobs({{6, 1}}),
       "gh100 booted=yes recovery=no cc=invalid ppcie=no" + kRest},
      {"HopperPpcie", Kind::gh100, knobs({{45, 1}, {10, 2}}),
       "gh100 booted=yes recovery=no cc=off ppcie=yes" + blocked("ppcie")},
      {"KnobWithoutReset", Kind::gh100, [](BarModel& model) { model.set_knob(8, 1); }, kHopper + kRest},
      {"HopperUpperBitsOfTheMode", Kind::gh100, forced(0x1182cc, 0xabcdef00),
       "gh100 booted=yes recovery=no cc=off ppcie=no" + kRest},
      {"HopperBooting", Kind::gh100, booting(3, false),
       "gh100 booted=no recovery=no" +
           all_unknown(Kind::gh100, "its boot is not complete: register 0x200bc reads 0x1f")},
      {"HopperBootingWithErrors", Kind::gh100, booting(3, true),
       "gh100 booted=no recovery=no" +
           all_unknown(Kind::gh100, "its boot is not complete: register 0x200bc reads 0xbadf5040")},
      {"HopperNearlyBooted", Kind::gh100, forced(0x200bc, 0x1ff),
       "gh100 booted=no recovery=no" +
           all_unknown(Kind::gh100, "its boot is not complete: register 0x200bc reads 0x1ff")},
      {"HopperInRecovery", Kind::gh100, in_recovery,
       "gh100 booted=no recovery=yes" + all_unknown(Kind::gh100, "its firmware is in recovery mode")},
      {"HopperRecoveryBitAlone", Kind::gh100, forced(0x20120, 0x40000000),
       "gh100 booted=yes recovery=yes" + all_unknown(Kind::gh100, "its firmware is in recovery mode")},
      {"HopperZeroInRegister0", Kind::gh100, forced(0, 0),
       "gh100 booted=yes recovery=yes" + all_unknown(Kind::gh100, "its firmware is in recovery mode")},
      {"HopperRecoveryUnread", Kind::gh100, forced(0x20120, 0xbadf1002),
       "gh100 booted=yes cc=off ppcie=no" + kRest +
           "\nrecovery: register 0x20120 reads 0xbadf1002, an error"},
      {"HopperRecoveryUnreadInModeOn", Kind::gh100,
       [](BarModel& model) {
         model.set_knob(8, 1);
         model.reset();
         model.forced[0x20120] = 0xbadf1301;
       },
       "gh100 booted=yes cc=on ppcie=no\nrecovery: blocked by the mode 'on'" + blocked("on")},
      {"HopperModeUnread", Kind::gh100, forced(0x1182cc, 0xbadf1301),
       "gh100 booted=yes recovery=no" + kRest +
           "\ncc_mode: register 0x1182cc reads 0xbadf1301, an error\nppcie: register 0x1182cc reads "
           "0xbadf1301, an error"},
      {"HopperModeAllOnes", Kind::gh100, forced(0x1182cc, 0xffffffff),
       "gh100 booted=yes recovery=no" + kRest +
           "\ncc_mode: register 0x1182cc reads 0xffffffff, an error\nppcie: register 0x1182cc reads "
           "0xffffffff, an error"},
      {"Dead", Kind::gh100, [](BarModel& model) { model.dead = true; },
       "gh100\nproblem: register 0x0 reads 0xffffffff: the function sleeps (D3), is dead, or its firewall is "
       "up"},
      {"SecurityFault", Kind::gh100, forced(0, 0xbadf0200),
       "gh100\nproblem: register 0x0 reads 0xbadf0200, a security fault"},
      {"OtherSecurityFault", Kind::gb100, forced(0, 0xbad00200),
       "gb100\nproblem: register 0x0 reads 0xbad00200, a security fault"},
      {"Register0Blocked", Kind::gh100, forced(0, 0xbadf1301), kHopper + kRest},
      {"MemoryNotCleared", Kind::gh100, [](BarModel& model) { model.scrubbed = false; },
       kHopper + " scrubbed=no memory=85899345920 ecc=yes id=0123456789abcdef"},
      {"ClearedIsOneAlone", Kind::gh100, forced(0x100b20, 3),
       kHopper + " scrubbed=no memory=85899345920 ecc=yes id=0123456789abcdef"},
      {"MemoryZero", Kind::gh100, [](BarModel& model) { model.memory_word = 0xa; },
       kHopper +
           " scrubbed=yes ecc=yes id=0123456789abcdef\nmemory_bytes: register 0x100ce0 reads 0xa, which "
           "is no size"},
      {"MemoryUnread", Kind::gh100, forced(0x100ce0, 0xbadf2013),
       kHopper + " scrubbed=yes ecc=yes id=0123456789abcdef\nmemory_bytes: register 0x100ce0 reads "
                 "0xbadf2013, an error"},
      {"MemoryWithEcc", Kind::gh100, forced(0x100ce0, k80GiB | 0x40000000U),
       kHopper + " scrubbed=yes memory=80530636800 ecc=yes id=0123456789abcdef"},
      {"EccOff", Kind::gh100, forced(0x9a0470, 0x10),
       kHopper + " scrubbed=yes memory=85899345920 ecc=no id=0123456789abcdef"},
      {"HalfAnId", Kind::gh100, forced(0x820348, 0xbadf2013),
       kHopper + " scrubbed=yes memory=85899345920 ecc=yes\nchip_id: register 0x820348 reads 0xbadf2013, an "
                 "error"},
      {"BlackwellOff", Kind::gb100, [](BarModel&) {}, kBlackwell + kRest},
      {"BlackwellOn", Kind::gb100, knobs({{8, 1}, {10, 2}}),
       "gb100 booted=yes recovery=no cc=on filter=yes nvlink=yes" + blocked("on")},
      {"BlackwellInvalid", Kind::gb100, knobs({{6, 1}}),
       "gb100 booted=yes recovery=no cc=invalid filter=no nvlink=no" + kRest},
      {"BlackwellHasNoPpcie", Kind::gb100, knobs({{45, 1}}), kBlackwell + kRest},
      {"BlackwellBooting", Kind::gb100, booting(1, true),
       "gb100 booted=no recovery=no" +
           all_unknown(Kind::gb100, "its boot is not complete: register 0x200bc reads 0xbadf5040")},
      {"BlackwellInRecovery", Kind::gb100, in_recovery,
       "gb100 booted=no recovery=yes" + all_unknown(Kind::gb100, "its firmware is in recovery mode")},
      {"BlackwellRecoveryZero", Kind::gb100, forced(0x8aa128, 0xff00), kBlackwell + kRest},
      {"BlackwellRecoveryTwo", Kind::gb100, forced(0x8aa128, 2),
       "gb100 booted=yes recovery=yes" + all_unknown(Kind::gb100, "its firmware is in recovery mode")},
      {"WorkstationOff", Kind::gb202, [](BarModel&) {},
       "gb202 booted=yes recovery=no cc=off filter=no nvlink=no" + kRest},
      {"WorkstationBooting", Kind::gb202, booting(1, false),
       "gb202 booted=no recovery=no" +
           all_unknown(Kind::gb202, "its boot is not complete: register 0xad00bc reads 0x1f")},
      {"SwitchOff", Kind::ls10, [](BarModel&) {}, "ls10 booted=yes recovery=no ppcie=no"},
      {"SwitchPpcie", Kind::ls10, knobs({{45, 1}}), "ls10 booted=yes recovery=no ppcie=yes"},
      {"SwitchBooting", Kind::ls10, booting(1, false),
       "ls10 booted=no recovery=no" +
           all_unknown(Kind::ls10, "its boot is not complete: register 0x660bc reads 0x1f")},
      {"SwitchInRecovery", Kind::ls10, in_recovery,
       "ls10 booted=no recovery=yes" + all_unknown(Kind::ls10, "its firmware is in recovery mode")},
      {"SwitchModeUnread", Kind::ls10, forced(0x28c50, 0xbadf0001),
       "ls10 booted=yes recovery=no\nppcie: register 0x28c50 reads 0xbadf0001, an error"},
      {"SwitchOfA100", Kind::lr10, [](BarModel&) {},
       "lr10\nproblem: this chip has no confidential mode, and no registers that are known"},
      {"SwitchUnknown", Kind::ls10, forced(0, 0x005000a1),
       "\nproblem: register 0x0 reads 0x5000a1, which is no chip of an NVSwitch that is known"},
      {"SwitchBadRead", Kind::ls10, forced(0, 0xbadf1301),
       "\nproblem: register 0x0 reads 0xbadf1301, which is no chip of an NVSwitch that is known"},
      {"SwitchDead", Kind::ls10, [](BarModel& model) { model.dead = true; },
       "\nproblem: register 0x0 reads 0xffffffff: the function sleeps (D3), is dead, or its firewall is up"},
  };
}

class RegisterFaults : public testing::TestWithParam<Case> {};

TEST_P(RegisterFaults, HaveTheirOutcome) {
  BarModel model(GetParam().kind);
  model.memory_word = k80GiB;
  GetParam().fault(model);
  EXPECT_EQ(described(facts_of(model, GetParam().kind)), GetParam().outcome);
  EXPECT_EQ(model.writes, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, RegisterFaults, testing::ValuesIn(cases()),
                         [](const auto& row) { return row.param.name; });

TEST(RegisterFacts, ModeOnReadsTheModeAndNothingThatItBlocks) {
  BarModel model(Kind::gh100);
  model.set_knob(BarModel::kConfidential, 1);
  model.reset();
  (void)facts_of(model, Kind::gh100);
  for (const auto& [offset, count] : model.reads)
    EXPECT_TRUE(offset == 0 || offset == 0x200bc || offset == 0x20120 || offset == 0x1182cc) << offset;
}

TEST(RegisterFacts, ABootThatCompletesShowsTheMode) {
  BarModel model(Kind::gh100);
  model.memory_word = k80GiB;
  model.polls_until_boot = 2;
  model.reset();
  EXPECT_EQ(facts_of(model, Kind::gh100).booted, false);
  EXPECT_EQ(facts_of(model, Kind::gh100).booted, false);
  EXPECT_EQ(facts_of(model, Kind::gh100).mode(), "off");
}

TEST(RegisterFacts, TheModeOfLabels) {
  EXPECT_EQ(RegisterFacts{}.mode(), "");
  EXPECT_EQ(RegisterFacts{.cc_mode = CcMode::devtools}.mode(), "devtools");
  EXPECT_EQ((RegisterFacts{.cc_mode = CcMode::off, .ppcie = true}).mode(), "ppcie");
}

TEST(Chip, IsKnownByBothIds) {
  const auto is_known = [](std::string_view ids) { return gpu_chip(ids).has_value(); };
  EXPECT_TRUE(is_known("10de:2331"));
  for (const char* ids :
       {"", "10de:", "10de:1eb8", "1002:2331", "10de:2331 ", "10de:12331", "10de:x", "2331"})
    EXPECT_FALSE(is_known(ids)) << ids;
}

TEST(Chip, IsKnownByItsDeviceId) {
  const auto name = [](std::uint16_t device) {
    const auto chip = gpu_chip(device);
    return chip ? std::string(chip->name) : "";
  };
  EXPECT_EQ(name(0x22ef), "");
  EXPECT_EQ(name(0x22f0), "gh100");
  EXPECT_EQ(name(0x237f), "gh100");
  EXPECT_EQ(name(0x2380), "");
  EXPECT_EQ(name(0x2901), "gb100");
  EXPECT_EQ(name(0x2980), "gb102");
  EXPECT_EQ(name(0x3180), "gb110");
  EXPECT_EQ(name(0x327f), "gb112");
  EXPECT_EQ(name(0x2b80), "gb202");
  EXPECT_EQ(name(0x2c7f), "gb203");
  EXPECT_EQ(name(0x2d7f), "gb206");
  EXPECT_EQ(name(0x2d80), "gb207");
  EXPECT_EQ(name(0x2f00), "gb205");
}

TEST(MemoryBytes, HaveRoomForEveryWord) {
  EXPECT_EQ(memory_bytes(k80GiB), std::uint64_t{80} << 30U);
  EXPECT_EQ(memory_bytes((192U << 4U) | 10U | 0x40000000U), (std::uint64_t{192} << 30U) / 16 * 15);
  EXPECT_EQ(memory_bytes(0x3fffffff & ~0xfU), std::uint64_t{0x3ffffff & 0xffffff} << 20U);
}

/// A device that reports a security fault after some reads.
class FaultsAfter final : public Registers {
 public:
  FaultsAfter(Registers& device, unsigned reads) : device_(device), reads_(reads) {}
  std::uint32_t read32(std::uint32_t offset) override {
    if (reads_ == 0) return 0xbad00200;
    --reads_;
    return device_.read32(offset);
  }
  void write32(std::uint32_t /*offset*/, std::uint32_t /*value*/) override { ADD_FAILURE() << "a write"; }
  unsigned left() const { return reads_; }

 private:
  Registers& device_;
  unsigned reads_;
};

TEST(RegisterFacts, NoneCountsWhereAFaultComesInTheMiddle) {
  const Chip chip = gpu_chip(0x2330).value();
  constexpr unsigned kMore = 1000;
  BarModel all(Kind::gh100);
  FaultsAfter never(all, kMore);
  ASSERT_EQ(read_register_facts(never, chip).problem, "");
  const unsigned reads = kMore - never.left();
  for (unsigned after = 0; after < reads; ++after) {
    BarModel model(Kind::gh100);
    FaultsAfter device(model, after);
    EXPECT_EQ(read_register_facts(device, chip),
              (RegisterFacts{.chip = "gh100", .problem = "register 0x0 reads 0xbad00200, a security fault"}))
        << after;
  }
}

}  // namespace
}  // namespace ferry::vfio
