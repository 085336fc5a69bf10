// SPDX-License-Identifier: Apache-2.0
#include "host/register_look.h"

#include <chrono>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "hostfs/locks.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"
#include "vfio/confidential/mode_setting.h"
#include "vfio/registers/register_reading.h"

namespace ferry::host {
namespace {

using policy::ReadRegisters;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using namespace std::chrono_literals;

vfio::PciAddress at(const char* text) {
  return test::must(vfio::PciAddress::parse(text));
}
const vfio::PciAddress kOne = at("0000:17:00.0");
const vfio::PciAddress kTwo = at("0000:3b:00.0");

/// Answers as the child does, with the facts of a test.
class Child final : public HostWriter {
 public:
  std::string facts = R"("cc_mode": "off")";
  std::vector<std::string> asked;  ///< without the deadline, the first line
  Result<std::string> call(const LibraryCall& call, std::chrono::milliseconds /*deadline*/) override {
    asked.push_back(call.request.substr(call.request.find('\n') + 1));
    std::string functions;
    std::istringstream lines(asked.back());
    for (std::string address; std::getline(lines, address);)
      functions += (functions.empty() ? "" : ", ") + (R"({"address": ")" + address) + R"(", "registers": {)" +
                   facts + "}}";
    return R"({"functions": [)" + functions + R"(], "faults": []})";
  }
  Result<> write(const std::filesystem::path& /*relative*/, std::string_view /*value*/,
                 std::chrono::milliseconds /*deadline*/) override {
    return fail(Errc::unsupported, "no write");
  }
  Result<> load_module(std::string_view /*name*/, std::chrono::milliseconds /*deadline*/) override {
    return fail(Errc::unsupported, "no module");
  }
  Result<> unload_module(std::string_view /*name*/, std::chrono::milliseconds /*deadline*/) override {
    return fail(Errc::unsupported, "no module");
  }
  Result<> run(const HostCommand& /*command*/, std::chrono::milliseconds /*deadline*/) override {
    return fail(Errc::unsupported, "no program");
  }
  Result<std::string> read(const std::filesystem::path& /*relative*/,
                           std::chrono::milliseconds /*deadline*/) override {
    return fail(Errc::unsupported, "no read");
  }
};

class RegisterLook : public testing::Test {
 protected:
  void bind(const vfio::PciAddress& gpu, const std::string& driver) {
    tree_.link(vfio::sysfs_path(gpu) / "driver", "../../drivers/" + driver);
  }
  void look(const std::vector<vfio::PciAddress>& wanted, Moment::duration after) {
    look_at_registers(fs_, child_, wanted, Moment() + 1h + after, memory_);
  }
  const vfio::RegisterFacts& facts(const vfio::PciAddress& gpu) {
    return memory_.entries.at(gpu).registers.facts;
  }
  test::ScratchDirectory tree_;
  HostFs fs_{tree_.path()};
  Child child_;
  RegisterMemory memory_;
};

TEST_F(RegisterLook, ReadsEachFunctionOnceInFiveMinutes) {
  look({kOne}, 0s);
  look({kOne}, 299s);
  EXPECT_THAT(child_.asked, ElementsAre("0000:17:00.0\n"));
  look({kOne, kTwo}, 299s);
  look({kOne, kTwo}, 300s);
  EXPECT_THAT(child_.asked, ElementsAre("0000:17:00.0\n", "0000:3b:00.0\n", "0000:17:00.0\n"));
  EXPECT_EQ(facts(kOne).mode(), "off");
  EXPECT_NE(memory_.entries.at(kOne).registers.read_at, 0U);
}

TEST_F(RegisterLook, ReadsAgainAfterAnotherBinding) {
  look({kOne}, 0s);
  bind(kOne, "vfio-pci");
  look({kOne}, 1s);
  EXPECT_EQ(child_.asked.size(), 2U);
}

TEST_F(RegisterLook, KeepsTheFactsOfAFunctionThatAVmHas) {
  look({kOne}, 0s);
  const auto read_at = memory_.entries.at(kOne).registers.read_at;
  child_.facts = R"("problem": "it is in use", "in_use": true)";
  tree_.file(vfio::sysfs_path(kOne) / "enable", "1\n");
  look({kOne}, 300s);
  EXPECT_EQ(facts(kOne).mode(), "off");
  EXPECT_EQ(facts(kOne).problem, "it is in use");
  EXPECT_EQ(memory_.entries.at(kOne).registers.read_at, read_at);
  look({kOne}, 1000s);
  EXPECT_THAT(child_.asked, SizeIs(2)) << "no child as long as it is open";
  child_.facts = R"("cc_mode": "on")";
  tree_.file(vfio::sysfs_path(kOne) / "enable", "0\n");
  look({kOne}, 1001s);
  EXPECT_EQ(facts(kOne).mode(), "on");
  EXPECT_EQ(facts(kOne).problem, "");
}

TEST_F(RegisterLook, HasNoFactsOfAFunctionThatWasBoundAnewAndIsInUse) {
  look({kOne}, 0s);
  bind(kOne, "vfio-pci");
  child_.facts = R"("problem": "it is in use", "in_use": true)";
  look({kOne}, 1s);
  EXPECT_EQ(facts(kOne).mode(), "");
  EXPECT_EQ(memory_.entries.at(kOne).registers.read_at, 0U);
}

TEST_F(RegisterLook, KeepsTheFactsOfAFunctionInUseOverARestart) {
  bind(kOne, "vfio-pci");
  bind(kTwo, "vfio-pci");
  look({kOne, kTwo}, 0s);
  api::HostStatus left;
  for (const auto& gpu : {kOne, kTwo}) {
    left.accelerators.emplace_back().address = gpu;
    left.accelerators.back().registers = memory_.entries.at(gpu).registers;
  }
  memory_ = {};
  tree_.file("proc/sys/kernel/random/boot_id", "b\n");
  for (const char* other_boot : {"", "a"}) {
    left.boot_id = other_boot;
    take_over_registers(fs_, left, memory_);
    EXPECT_THAT(memory_.entries, IsEmpty());
  }
  left.boot_id = "b";
  take_over_registers(fs_, left, memory_);
  child_.facts = R"("problem": "it is in use", "in_use": true)";
  bind(kTwo, "vfio-pci");  // anew
  look({kOne, kTwo}, 1s);
  EXPECT_EQ(child_.asked.back(), "0000:17:00.0\n0000:3b:00.0\n") << "both are due";
  EXPECT_EQ(facts(kOne).mode(), "off");
  EXPECT_EQ(facts(kOne).problem, "it is in use");
  EXPECT_EQ(facts(kTwo).mode(), "") << "it was bound since";
}

TEST_F(RegisterLook, DropsTheFactsAfterAnotherProblem) {
  look({kOne}, 0s);
  child_.facts = R"("problem": "it sleeps")";
  look({kOne}, 300s);
  EXPECT_EQ(facts(kOne).mode(), "");
  EXPECT_EQ(memory_.entries.at(kOne).registers.read_at, 0U);
}

TEST_F(RegisterLook, ForgetsFunctionsThatAreNotWanted) {
  look({kOne, kTwo}, 0s);
  look({kTwo}, 1s);
  EXPECT_EQ(memory_.entries.count(kOne), 0U);
  EXPECT_EQ(memory_.entries.count(kTwo), 1U);
}

TEST_F(RegisterLook, RestoresAfterAKilledReading) {
  look({}, 0s);
  EXPECT_THAT(child_.asked, IsEmpty());
  tree_.file("run/ferry/hostd/register-reading", "b\n");
  look({}, 0s);
  EXPECT_THAT(child_.asked, ElementsAre(""));
}

TEST(WithRegisters, AreNvidiasFunctionsOnVfioPciOrWithoutADriver) {
  api::HostStatus status;
  const auto add = [&](const vfio::PciAddress& address, const char* id, std::optional<std::string> driver) {
    auto& gpu = status.accelerators.emplace_back();
    gpu.address = address;
    gpu.id = id;
    gpu.driver = std::move(driver);
  };
  add(kOne, "10de:2330", "vfio-pci");
  add(kTwo, "10de:2330", std::nullopt);
  add(at("0000:5e:00.0"), "10de:2330", "nvidia");
  add(at("0000:5f:00.0"), "1002:74a1", "vfio-pci");
  EXPECT_THAT(with_registers(status, ReadRegisters::all, false), ElementsAre(kOne, kTwo));
  EXPECT_THAT(with_registers(status, ReadRegisters::automatic, false), IsEmpty());
  EXPECT_THAT(with_registers(status, ReadRegisters::automatic, true), ElementsAre(kOne, kTwo));
  EXPECT_THAT(with_registers(status, ReadRegisters::off, true), IsEmpty());
}

TEST(ModeChangeLook, AnInterruptedChangeIsUndoneUnlessACommandMakesIt) {
  test::ScratchDirectory tree;
  tree.file(vfio::kModeRecordFile,
            R"({"version": 1, "devices": [{"address": "0000:17:00.0", "ids": "10de:2330",
      "wanted": "on", "mode": "off", "knobs": []}]})");
  HostFs host(tree.path());
  Child child;
  RegisterMemory memory;
  {
    const auto command = test::must(NodeLock::take(host, 1s));
    undo_mode_change(host, child, Moment(0s), memory);
    EXPECT_THAT(child.asked, IsEmpty()) << "the command may be killed";
  }
  const auto tries_at = [&](std::chrono::seconds now) {
    child.asked.clear();
    undo_mode_change(host, child, Moment(now), memory);
    return child.asked.size();
  };
  EXPECT_EQ(tries_at(0s), 1U);
  EXPECT_THAT(child.asked, ElementsAre("undo"));
  EXPECT_EQ(tries_at(1s), 0U) << "the device is left as it was";
  tree.file("sys/bus/pci/devices/0000:17:00.0/enable", "0");
  EXPECT_EQ(tries_at(2s), 1U) << "its user has closed it";
  EXPECT_EQ(tries_at(301s), 0U);
  EXPECT_EQ(tries_at(302s), 1U) << "after five minutes";
  EXPECT_EQ(tries_at(901s), 0U);
  EXPECT_EQ(tries_at(902s), 1U) << "and after ten more";
  tree.file("sys/bus/pci/devices/0000:17:00.0/enable", "1");
  EXPECT_EQ(tries_at(903s), 1U);
  EXPECT_EQ(tries_at(1203s), 1U) << "the pause begins anew";
}

}  // namespace
}  // namespace ferry::host
