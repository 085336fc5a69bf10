// SPDX-License-Identifier: Apache-2.0
// `ferry cc` by its executable, on a host whose GPUs have the registers of a model.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/support/fake_kernel.h"
#include "tests/vfio/bar_model.h"

namespace ferry::cli {
namespace {

using test::BarModel;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kFirst = "0000:17:00.0";
constexpr const char* kSecond = "0000:3b:00.0";
constexpr const char* kSwitch = "0000:05:00.0";
constexpr const char* kSwitchOfA100 = "0000:06:00.0";
constexpr const char* kRecord = "var/lib/ferry-hostd/gpus/mode-change.json";

class CcVerbs : public testing::Test {
 protected:
  CcVerbs() {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel_.directory("proc/1/fd");
    kernel_.file("proc/sys/kernel/random/boot_id", "boot-1\n");
    add(kFirst, "10de:2330", 0x030200, 7, BarModel::Kind::gh100);
    add(kSecond, "10de:2901", 0x030200, 8, BarModel::Kind::gb100);
  }
  void add(const std::string& gpu, const std::string& ids, std::uint32_t device_class, unsigned group,
           BarModel::Kind kind, const std::string& driver = "vfio-pci") {
    kernel_.add_function({.address = gpu,
                          .ids = ids,
                          .class_code = device_class,
                          .group = group,
                          .driver = driver,
                          .driver_override = driver});
    const std::string folder = "sys/bus/pci/devices/" + gpu + "/";
    kernel_.file(folder + "enable", "0\n");
    kernel_.file(folder + "power/control", "on\n");
    kernel_.file(folder + "resource", "0x0000000090000000 0x0000000090ffffff 0x0000000000040200\n");
    BarModel(kind).save((kernel_.root() / folder / "resource0").string());
  }
  void add_switch(const std::string& driver = "vfio-pci") {
    add(kSwitch, "10de:22a3", 0x068000, 5, BarModel::Kind::ls10, driver);
  }
  test::ProgramResult cc(std::vector<std::string> words) {
    words.insert(words.begin(), {"--host-root", kernel_.root().string(), "cc"});
    return test::run_ferry(words);
  }
  test::FakeKernel kernel_;
};

TEST_F(CcVerbs, PlanShowsTheModesNowAndThen) {
  const auto plan = cc({"plan", "on"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(plan.out,
            "DEVICE        CHIP   NOW  THEN\n"
            "0000:17:00.0  gh100  off  on\n"
            "0000:3b:00.0  gb100  off  on\n");
  EXPECT_EQ(nlohmann::json::parse(cc({"plan", "on", "-o", "json"}).out)["devices"][1],
            nlohmann::json({{"address", kSecond}, {"chip", "gb100"}, {"mode", "off"}}));
}

// The registers of a file answer no message.
TEST_F(CcVerbs, SetThatFailsSaysThatAllIsAsBefore) {
  const std::string problem =
      "read knob 2: its security processor took more than 5 s to answer (register 0x8f2c90 reads 0x0)";
  const auto set = cc({"set", "on", "--device", kFirst, "-o", "json"});
  EXPECT_EQ(set.status, 1);
  EXPECT_EQ(nlohmann::json::parse(set.out), nlohmann::json({{"mode", "on"},
                                                            {"problem", "0000:17:00.0: " + problem},
                                                            {"devices",
                                                             {{{"address", kFirst},
                                                               {"before", "off"},
                                                               {"after", "off"},
                                                               {"result", "kept"},
                                                               {"problem", problem}}}}}));
  EXPECT_EQ(set.err, "ferry: 0000:17:00.0: " + problem + "\nhint: all devices are as before\n");
}

TEST_F(CcVerbs, ProtectedPcieIsOfAWholeBoard) {
  add_switch();
  add(kSwitchOfA100, "10de:1af1", 0x068000, 6, BarModel::Kind::lr10);
  EXPECT_EQ(cc({"plan", "ppcie"}).out,
            "DEVICE        CHIP   NOW  THEN\n"
            "0000:05:00.0  ls10   off  ppcie\n"
            "0000:17:00.0  gh100  off  ppcie\n");
  EXPECT_EQ(cc({"plan", "on"}).out,
            "DEVICE        CHIP   NOW  THEN\n"
            "0000:17:00.0  gh100  off  on\n"
            "0000:3b:00.0  gb100  off  on\n");
}

TEST_F(CcVerbs, OffLeavesOutSwitchesOfTheHostUnlessAGpuIsInProtectedPcie) {
  kernel_.add_driver({.name = "nvidia-nvswitch", .ids = {"10de:22a3"}});
  add_switch("nvidia-nvswitch");
  const std::string owned =
      "driver nvidia-nvswitch owns it, and only vfio-pci keeps VMs away during a change\n";
  const auto plan = cc({"plan", "off"});
  EXPECT_EQ(plan.status, 0);
  EXPECT_EQ(plan.out,
            "DEVICE        CHIP   NOW  THEN\n"
            "0000:17:00.0  gh100  off  off\n"
            "0000:3b:00.0  gb100  off  off\n");
  EXPECT_EQ(plan.err, "note: 0000:05:00.0 is left out, since no GPU is in protected PCIe: " + owned);

  BarModel gpu(BarModel::Kind::gh100);
  gpu.set_knob(BarModel::kProtectedPcie, 1);
  gpu.reset();
  gpu.save((kernel_.root() / "sys/bus/pci/devices" / kFirst / "resource0").string());
  const auto of_board = cc({"plan", "off"});
  EXPECT_EQ(of_board.status, 4);
  EXPECT_EQ(of_board.err, "ferry: 0000:05:00.0: " + owned +
                              "hint: protected PCIe is of all GPUs and NVSwitches of a board: this one must "
                              "be ready first\n");
}

TEST_F(CcVerbs, ADeviceThatIsNotReadyIsLeftOutByNameOnlyWhereAPartMayChange) {
  add_switch();
  kernel_.file(std::string("sys/bus/pci/devices/") + kFirst + "/power_state", "D3hot\n");
  const auto one = cc({"plan", "on"});
  EXPECT_EQ(one.status, 4);
  EXPECT_THAT(one.err, HasSubstr("0000:17:00.0: it sleeps (D3hot)"));
  EXPECT_THAT(one.err, HasSubstr("name the others with --device"));
  const auto board = cc({"plan", "ppcie"});
  EXPECT_EQ(board.status, 4);
  EXPECT_THAT(board.err, HasSubstr("0000:17:00.0: it sleeps (D3hot)"));
  EXPECT_THAT(board.err, HasSubstr("this one must be ready first"));
  EXPECT_THAT(board.err, Not(HasSubstr("--device")));
}

TEST_F(CcVerbs, RefusesWhileTheRecordCannotBeRead) {
  kernel_.file(kRecord, "[[[[");
  for (const char* verb : {"plan", "set"}) {
    const auto refused = cc({verb, "on"});
    EXPECT_EQ(refused.status, 1) << verb;
    EXPECT_EQ(refused.out, "") << verb;
    EXPECT_THAT(refused.err, testing::StartsWith("ferry: /var/lib/ferry-hostd/gpus/mode-change.json: "));
    EXPECT_THAT(refused.err, HasSubstr("docs/cc.md says what to do"));
  }
}

TEST_F(CcVerbs, AnotherBoardAtARecordedAddressIsFree) {
  kernel_.file(kRecord,
               R"({"version": 1, "devices": [{"address": "0000:17:00.0", "ids": "10de:2335", "wanted": "on",
                   "mode": "off", "knobs": [{"knob": 8, "value": 0}]}]})");
  EXPECT_THAT(test::run_ferry({"--host-root", kernel_.root().string(), "status", "-o", "json"}).out,
              Not(HasSubstr("interrupted-mode-change")));
  const auto set = cc({"set", "ppcie", "--device", kSecond});
  EXPECT_EQ(set.status, 4) << "the undo comes first";
  EXPECT_THAT(set.err, HasSubstr("0000:17:00.0: a change of the confidential mode of a board 10de:2335 was "
                                 "interrupted, and a board 10de:2330 is there now"));
  EXPECT_FALSE(kernel_.exists(kRecord));
}

TEST_F(CcVerbs, StatusHasANoteAboutAnInterruptedChange) {
  const auto status = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"--host-root", kernel_.root().string(), "status"});
    return test::run_ferry(words).out;
  };
  const std::string note =
      "a change of the confidential mode was interrupted: start no VM with its GPUs before `ferry cc set` "
      "has "
      "undone it";
  EXPECT_THAT(status({}), Not(HasSubstr("was interrupted")));
  kernel_.file(kRecord,
               R"({"version": 1, "devices": [{"address": "0000:17:00.0", "ids": "10de:2330", "wanted": "on",
                   "mode": "off", "knobs": [{"knob": 8, "value": 0}]}]})");
  EXPECT_THAT(status({}), HasSubstr(note));
  const auto document = nlohmann::json::parse(status({"-o", "json"}));
  EXPECT_THAT(document.at("notes").get<std::vector<std::string>>(), Contains(note));
  const auto& gpus = document.at("accelerators");
  EXPECT_EQ(gpus.at(0).at("address"), kFirst);
  EXPECT_EQ(gpus.at(0).at("condition").at("word"), "blocked");
  EXPECT_EQ(gpus.at(0).at("findings").at(0).at("rule"), "interrupted-mode-change");
  EXPECT_NE(gpus.at(1).at("condition").at("word"), "blocked");
  EXPECT_EQ(cc({"plan", "on"}).status, 0) << "`ferry cc set` undoes it";
  for (const char* record : {"", R"({"version": 2, "devices": []})"}) {
    kernel_.file(kRecord, record);
    const std::string out = status({});
    EXPECT_THAT(out, HasSubstr("the record of a change of the confidential mode cannot be read"));
    EXPECT_THAT(out, Not(HasSubstr("`ferry cc set")));
  }
}

struct Refused {
  std::string name;
  std::vector<std::string> words;
  int status;
  std::string message;
};
void PrintTo(const Refused& row, std::ostream* out) {
  *out << row.name;
}
class CcRefuses : public CcVerbs, public testing::WithParamInterface<Refused> {};

TEST_P(CcRefuses, BeforeAnythingIsWritten) {
  add_switch();
  add(kSwitchOfA100, "10de:1af1", 0x068000, 6, BarModel::Kind::lr10);
  for (const char* verb : {"plan", "set"}) {
    std::vector<std::string> words = {verb};
    words.insert(words.end(), GetParam().words.begin(), GetParam().words.end());
    const auto refused = cc(words);
    EXPECT_EQ(refused.status, GetParam().status) << verb;
    EXPECT_THAT(refused.err, testing::StartsWith("ferry: " + GetParam().message)) << verb;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CcRefuses,
    testing::Values(
        Refused{"no_such_device",
                {"on", "--device", "0000:99:00.0"},
                2,
                "0000:99:00.0 is no device of this host with confidential modes"},
        Refused{"no_address", {"on", "--device", "gpu"}, 2, "'gpu' is not a PCI address"},
        Refused{"no_mode", {"yes"}, 2, "mode: 'yes' is none of off, on, devtools, ppcie"},
        Refused{"part_of_a_board",
                {"ppcie", "--device", kFirst},
                4,
                "0000:05:00.0 is left out, and protected PCIe is of all GPUs and NVSwitches of a board"},
        Refused{"ppcie_of_blackwell",
                {"ppcie", "--device", kSecond},
                4,
                "0000:3b:00.0: its chip gb100 has no mode 'ppcie'"},
        Refused{
            "on_of_a_switch", {"on", "--device", kSwitch}, 4, "0000:05:00.0: its chip ls10 has no mode 'on'"},
        Refused{"devtools_of_a_switch",
                {"devtools", "--device", kFirst, "--device", kSwitch},
                4,
                "0000:05:00.0: its chip ls10 has no mode 'devtools'"},
        Refused{"switch_of_an_a100",
                {"off", "--device", kSwitchOfA100},
                2,
                "0000:06:00.0 is no device of this host with confidential modes"}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ferry::cli
