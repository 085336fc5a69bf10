// SPDX-License-Identifier: Apache-2.0
#include "vfio/sanitize/sanitizing.h"

#include <cerrno>
#include <deque>
#include <fcntl.h>
#include <functional>
#include <map>
#include <ostream>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "common/text/json.h"
#include "tests/support/child_libraries.h"
#include "tests/vfio/register_host.h"
#include "vfio/registers/register_access.h"
#include "vfio/registers/register_fields.h"
#include "vfio/registers/register_reading.h"

namespace ferry::vfio {
namespace {

using test::address;
using test::BarModel;
using test::Device;
using test::kGpu;
using test::kNext;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::uint32_t kGroup = 7;
constexpr std::uint32_t kOtherGroup = 8;

const bool kAdded = [] {
  test::child_libraries().push_back({.name = kSanitizeLibrary, .answer = answer_sanitize_call});
  return true;
}();

/// All of a reset but its registers, in one line.
std::string described(const Sanitizing& reset) {
  std::string out = reset.method.empty() ? "not reset" : reset.method;
  if (reset.in_use) out += ", in use";
  if (!reset.problem.empty()) out += ", problem: " + reset.problem;
  if (!reset.unproven.empty()) out += ", unproven: " + reset.unproven;
  if (reset.is_proven()) out += ", proven";
  return out;
}

/// A host with functions in IOMMU groups that the kernel can reset.
class Host : public test::RegisterHost {
 public:
  void add(const std::string& gpu, std::uint32_t group = kGroup, const Device& device = {}) {
    RegisterHost::add(gpu, device);
    tree().link(path(gpu, "iommu_group"), fmt::format("../../../../kernel/iommu_groups/{}", group));
    tree().file(path(gpu, "reset"), "-");
    tree().file(path(gpu, "reset_method"), "flr bus\n");
  }
  /// True if "1" was written to `reset`.
  bool was_written(const std::string& gpu = kGpu) { return text(gpu, "reset") == "1"; }
};

// --- The choice of the method.

/// VFIO as the tests want it.
class FakeGroups final : public GroupCalls {
 public:
  std::map<std::uint32_t, int> errors;     ///< of hold(), by group
  int open_error = 0;                      ///< of open_and_list()
  int reset_error = 0;                     ///< of hot_reset()
  std::vector<TouchedFunction> touched;    ///< by the hot reset
  std::function<void()> at_close = [] {};  ///< called when the function is closed

  std::vector<std::string> calls;

  Result<> hold(std::uint32_t group) override {
    return result(fmt::format("hold {}", group), errors.contains(group) ? errors.at(group) : 0);
  }
  Result<std::vector<TouchedFunction>> open_and_list(const PciAddress& function,
                                                     std::uint32_t group) override {
    auto done = result(fmt::format("open {} of {}", function.text(), group), open_error);
    if (!done) return fail(std::move(done).error());
    return touched;
  }
  Result<> hot_reset() override { return result("hot reset", reset_error); }
  void close_function() override {
    calls.emplace_back("close");
    at_close();
  }

 private:
  Result<> result(const std::string& call, int error) {
    calls.push_back(call);
    if (error != 0) return fail(error_from_errno(error, call));
    return {};
  }
};

struct Choice {
  std::string name;
  std::function<void(Host&, FakeGroups&)> change = [](Host&, FakeGroups&) {};
  std::string outcome;
  bool written = false;  ///< `reset` was written
  bool hot = false;      ///< a hot reset was tried
};
void PrintTo(const Choice& row, std::ostream* out) {
  *out << row.name;
}

constexpr const char* kAudio = "0000:17:00.1";

class ChoiceOfTheReset : public testing::TestWithParam<Choice> {};

TEST_P(ChoiceOfTheReset, Is) {
  Host host;
  host.add(kGpu);
  host.add(kAudio);
  FakeGroups groups;
  groups.touched = {{.address = address(kGpu), .group = kGroup},
                    {.address = address(kAudio), .group = kGroup}};
  GetParam().change(host, groups);
  const Sanitizing reset = reset_function(host.fs(), address(kGpu), groups);
  EXPECT_EQ(described(reset), GetParam().outcome);
  EXPECT_EQ(host.was_written(), GetParam().written);
  EXPECT_FALSE(host.was_written(kAudio));
  EXPECT_EQ(std::ranges::count(groups.calls, "hot reset"), GetParam().hot ? 1 : 0);
}

// The other function of the slot in a group of its own.
void move_audio(Host& host, FakeGroups& groups, const std::string& driver = "vfio-pci") {
  host.add(kAudio, kOtherGroup, {.driver = driver});
  groups.touched.back().group = kOtherGroup;
}

INSTANTIATE_TEST_SUITE_P(
    All, ChoiceOfTheReset,
    testing::Values(
        Choice{.name = "HotReset", .outcome = "hot-reset, proven", .hot = true},
        Choice{.name = "AnotherGroupThatIsFree",
               .change = [](Host& host, FakeGroups& groups) { move_audio(host, groups); },
               .outcome = "hot-reset, proven",
               .hot = true},
        Choice{.name = "AnotherGroupThatAVmHas",
               .change =
                   [](Host& host, FakeGroups& groups) {
                     move_audio(host, groups);
                     groups.errors[kOtherGroup] = EBUSY;
                   },
               .outcome = "flr, proven",
               .written = true},
        Choice{.name = "AnotherGroupThatMayNotBeOpened",
               .change =
                   [](Host& host, FakeGroups& groups) {
                     move_audio(host, groups);
                     groups.errors[kOtherGroup] = EPERM;
                   },
               .outcome = "flr, proven",
               .written = true},
        Choice{.name = "AnotherGroupOnAHostDriver",
               .change = [](Host& host, FakeGroups& groups) { move_audio(host, groups, "snd_hda_intel"); },
               .outcome = "flr, proven",
               .written = true},
        Choice{.name = "AnotherFunctionWithoutADriver",
               .change =
                   [](Host& host, FakeGroups& groups) {
                     move_audio(host, groups);
                     host.tree().remove(Host::path(kAudio, "driver"));
                   },
               .outcome = "flr, proven",
               .written = true},
        Choice{.name = "AnotherFunctionThatIsNotThere",
               .change = [](Host&, FakeGroups& groups) { groups.touched.back().address = address(kNext); },
               .outcome = "flr, proven",
               .written = true},
        Choice{
            .name = "AFunctionOfItsGroupOnAHostDriver",
            .change = [](Host& host, FakeGroups&) { host.add(kAudio, kGroup, {.driver = "snd_hda_intel"}); },
            .outcome = "flr, proven",
            .written = true},
        Choice{.name = "NoHotReset",
               .change = [](Host&, FakeGroups& groups) { groups.open_error = ENODEV; },
               .outcome = "flr, proven",
               .written = true},
        Choice{.name = "AHotResetThatTheKernelRefuses",
               .change = [](Host&, FakeGroups& groups) { groups.reset_error = EINVAL; },
               .outcome = "flr, proven",
               .written = true,
               .hot = true},
        Choice{.name = "ItsGroupIsOpen",
               .change = [](Host&, FakeGroups& groups) { groups.errors[kGroup] = EBUSY; },
               .outcome = "not reset, in use"},
        Choice{.name = "ItsGroupMayNotBeOpened",
               .change = [](Host&, FakeGroups& groups) { groups.errors[kGroup] = EPERM; },
               .outcome =
                   "not reset, problem: reset 0000:17:00.0: its IOMMU group cannot be held, so a VM could "
                   "open it meanwhile: hold 7: Operation not permitted"},
        Choice{.name = "NoGroupNodes",
               .change = [](Host&, FakeGroups& groups) { groups.errors[kGroup] = ENOENT; },
               .outcome =
                   "not reset, problem: reset 0000:17:00.0: its IOMMU group cannot be held, so a VM could "
                   "open it meanwhile: hold 7: No such file or directory"},
        Choice{
            .name = "NoIommu",
            .change = [](Host& host, FakeGroups&) { host.tree().remove(Host::path(kGpu, "iommu_group")); },
            .outcome = "not reset, problem: reset 0000:17:00.0: it has no IOMMU group, so a VM could open it "
                       "meanwhile"},
        Choice{.name = "EnabledByTheDriverBefore",
               .change = [](Host& host, FakeGroups&) { host.tree().file(Host::path(kGpu, "enable"), "1\n"); },
               .outcome = "hot-reset, proven",
               .hot = true},
        Choice{.name = "OnAHostDriver",
               .change = [](Host& host, FakeGroups&) { host.add(kGpu, kGroup, {.driver = "nvidia"}); },
               .outcome = "not reset, problem: reset 0000:17:00.0: it is on driver nvidia, not on vfio-pci"},
        Choice{.name = "WithoutADriver",
               .change = [](Host& host, FakeGroups&) { host.tree().remove(Host::path(kGpu, "driver")); },
               .outcome = "not reset, problem: reset 0000:17:00.0: it is on no driver, not on vfio-pci"},
        Choice{.name = "WithVirtualFunctions",
               .change =
                   [](Host& host, FakeGroups&) {
                     host.tree().link(Host::path(kGpu, "virtfn0"), "../" + std::string(kNext));
                   },
               .outcome = "not reset, problem: reset 0000:17:00.0: it has 1 virtual functions"},
        Choice{.name = "OffTheBus",
               .change =
                   [](Host& host, FakeGroups&) {
                     host.tree().file(Host::path(kGpu, "config"), std::string(4096, '\xff'));
                   },
               .outcome = "not reset, problem: reset 0000:17:00.0: /sys/bus/pci/devices/0000:17:00.0/config: "
                          "reads all ones; the device is off the bus"},
        Choice{.name = "Gone",
               .change = [](Host& host,
                            FakeGroups&) { host.tree().remove("sys/bus/pci/devices/" + std::string(kGpu)); },
               .outcome = "not reset, problem: reset 0000:17:00.0: there is no PCI function 0000:17:00.0"}),
    [](const auto& row) { return row.param.name; });

TEST(ResetOfAFunction, HoldsEachGroupAndClosesTheFunctionBeforeTheOtherMethod) {
  Host host;
  host.add(kGpu);
  host.add(kAudio);
  FakeGroups groups;
  groups.touched = {{.address = address(kGpu), .group = kGroup}};
  move_audio(host, groups);
  groups.touched.insert(groups.touched.begin(), {.address = address(kGpu), .group = kGroup});
  groups.reset_error = ENOTTY;
  groups.at_close = [&] { EXPECT_FALSE(host.was_written()); };
  EXPECT_EQ(reset_function(host.fs(), address(kGpu), groups).method, "flr");
  EXPECT_THAT(groups.calls, ElementsAre("hold 7", "open 0000:17:00.0 of 7", "hold 8", "hot reset", "close"));
  EXPECT_TRUE(host.was_written());
}

struct Methods {
  std::string name;
  std::optional<std::string> methods;  ///< absent: an older kernel
  bool has_reset = true;
  std::string outcome;
};
void PrintTo(const Methods& row, std::ostream* out) {
  *out << row.name;
}
class MethodsOfTheKernel : public testing::TestWithParam<Methods> {};

TEST_P(MethodsOfTheKernel, AreNamed) {
  Host host;
  host.add(kGpu);
  if (const auto& methods = GetParam().methods)
    host.tree().file(Host::path(kGpu, "reset_method"), *methods);
  else
    host.tree().remove(Host::path(kGpu, "reset_method"));
  if (!GetParam().has_reset) host.tree().remove(Host::path(kGpu, "reset"));
  FakeGroups groups;
  groups.open_error = ENODEV;
  const Sanitizing reset = reset_function(host.fs(), address(kGpu), groups);
  EXPECT_EQ(described(reset), GetParam().outcome);
  EXPECT_EQ(host.was_written(), reset.is_reset());
}

constexpr const char* kNoMethod =
    "not reset, problem: reset 0000:17:00.0: the kernel knows no method to reset it";
INSTANTIATE_TEST_SUITE_P(
    All, MethodsOfTheKernel,
    testing::Values(Methods{.name = "One", .methods = "pm\n", .outcome = "pm, proven"},
                    Methods{.name = "TheFirst", .methods = "bus flr pm\n", .outcome = "bus, proven"},
                    Methods{.name = "None", .methods = "\n", .outcome = kNoMethod},
                    Methods{.name = "NotNamed", .methods = {}, .outcome = "reset, proven"},
                    Methods{
                        .name = "NoneAndNotNamed", .methods = {}, .has_reset = false, .outcome = kNoMethod}),
    [](const auto& row) { return row.param.name; });

/// A kernel whose resets fail.
class FailingHost final : public HostFs {
 public:
  FailingHost(const std::filesystem::path& root, int error) : HostFs(root), error_(error) {}
  Result<> write_attribute(const std::filesystem::path& relative, std::string_view /*value*/) override {
    return fail(error_from_errno(error_, "write /" + relative.string()));
  }

 private:
  int error_;
};

TEST(ResetOfAFunction, AWriteThatFailsIsAProblem) {
  Host host;
  host.add(kGpu);
  FakeGroups groups;
  groups.open_error = ENODEV;
  const std::map<int, std::string> problems = {
      {EIO, "write /sys/bus/pci/devices/0000:17:00.0/reset: Input/output error"},
      {ENOTTY, "none of the kernel's methods (flr bus) can reset it"}};
  for (const auto& [error, problem] : problems) {
    FailingHost failing(host.tree().path(), error);
    EXPECT_EQ(described(reset_function(failing, address(kGpu), groups)),
              "not reset, problem: reset 0000:17:00.0: " + problem);
  }
}

// --- The child.

TEST(SanitizeCall, RefusesGarbage) {
  Host host;
  host.add(kGpu);
  for (const std::string request : {"", "0000:17:00.0\n", "0000:17:00", "../0000:17:00.0"}) {
    const std::string answer = answer_sanitize_call(host.fs(), request);
    const auto document = test::must(parse_document(answer, "answer", ""));
    EXPECT_EQ(document["method"], "") << request;
    EXPECT_FALSE(document["problem"].get<std::string>().empty()) << request;
  }
  EXPECT_FALSE(host.was_written());
}

// Nodes that are ordinary files know no ioctl.
TEST(Sanitize, ResetsAndProvesInChildren) {
  Host host;
  host.add(kGpu);
  host.tree().file("dev/vfio/7", "");
  host.tree().file("dev/vfio/vfio", "");
  const Sanitizing reset = sanitize(host.writer(), host.fs(), address(kGpu));
  EXPECT_EQ(described(reset), "flr, proven");
  EXPECT_TRUE(host.was_written());
  const RegisterFacts registers = reset.registers.value_or(RegisterFacts());
  EXPECT_EQ(registers.chip, "gh100");
  EXPECT_EQ(registers.scrubbed, true);
}

TEST(Sanitize, AResetThatHangsIsAProblem) {
  Host host;
  host.add(kGpu);
  host.tree().file("dev/vfio/7", "");
  host.tree().remove(Host::path(kGpu, "reset"));
  const auto fifo = host.tree().path() / Host::path(kGpu, "reset");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const Sanitizing reset = sanitize(host.writer(), host.fs(), address(kGpu), 20s, 200ms);
  EXPECT_FALSE(reset.is_reset());
  EXPECT_THAT(reset.problem, HasSubstr("reset 0000:17:00.0: still in the kernel after 200 ms"));
  EXPECT_FALSE(reset.registers);
  const UniqueFd reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));  // lets it end
}

// --- The proof.

/// A writer whose child has reset a GPU, and reads a model's registers.
class ModelWriter final : public HostWriter {
 public:
  BarModel model{BarModel::Kind::gh100};
  std::function<void(unsigned reading)> before = [](unsigned) {};
  std::deque<RegisterFacts> first;  ///< readings that come before the model's
  unsigned readings = 0;
  std::optional<Error> reset_error;
  std::string reset_answer = R"({"in_use": false, "method": "hot-reset", "problem": ""})";
  std::vector<LibraryCall> resets;

  Result<std::string> call(const LibraryCall& call, std::chrono::milliseconds /*deadline*/) override {
    if (call.name == kSanitizeLibrary) {
      resets.push_back(call);
      if (reset_error) return fail(*reset_error);
      return reset_answer;
    }
    before(readings++);
    RegisterFacts facts;
    if (first.empty()) {
      facts = read_register_facts(model, {.name = "gh100", .family = ChipFamily::hopper});
    } else {
      facts = first.front();
      first.pop_front();
    }
    nlohmann::ordered_json function = {{"address", std::string(kGpu)}, {"registers", written_fields(facts)}};
    return json_text({{"functions", {function}}, {"faults", nlohmann::ordered_json::array()}});
  }
  Result<> write(const std::filesystem::path& /*relative*/, std::string_view /*value*/,
                 std::chrono::milliseconds /*deadline*/) override {
    return unexpected();
  }
  Result<> load_module(std::string_view /*name*/, std::chrono::milliseconds /*deadline*/) override {
    return unexpected();
  }
  Result<> unload_module(std::string_view /*name*/, std::chrono::milliseconds /*deadline*/) override {
    return unexpected();
  }
  Result<> run(const HostCommand& /*command*/, std::chrono::milliseconds /*deadline*/) override {
    return unexpected();
  }
  Result<std::string> read(const std::filesystem::path& /*relative*/,
                           std::chrono::milliseconds /*deadline*/) override {
    return fail(unexpected().error());
  }

 private:
  static Result<> unexpected() {
    ADD_FAILURE() << "a call that was not expected";
    return fail(Errc::failed, "not expected");
  }
};

struct Proof {
  std::string name;
  std::function<void(Host&, ModelWriter&)> change = [](Host&, ModelWriter&) {};
  std::string outcome;
  unsigned readings = 1;
  bool to_the_deadline = false;
};
void PrintTo(const Proof& row, std::ostream* out) {
  *out << row.name;
}
class ProofOfAReset : public testing::TestWithParam<Proof> {};

TEST_P(ProofOfAReset, Is) {
  Host host;
  host.add(kGpu);
  ModelWriter writer;
  GetParam().change(host, writer);
  const bool late = GetParam().to_the_deadline;
  const auto deadline = late ? 150ms : std::chrono::milliseconds(kSanitizeDeadline);
  const Sanitizing reset = sanitize(writer, host.fs(), address(kGpu), deadline);
  EXPECT_EQ(described(reset), GetParam().outcome);
  if (late)
    EXPECT_GT(writer.readings, 1U);
  else
    EXPECT_EQ(writer.readings, GetParam().readings);
  ASSERT_EQ(writer.resets.size(), 1U);
  EXPECT_TRUE(writer.resets.front().changes);
  EXPECT_EQ(writer.resets.front().device, kGpu);
  EXPECT_EQ(reset.registers.has_value(), writer.readings > 0);
}

RegisterFacts unreadable(const std::string& problem) {
  return {.problem = problem};
}

INSTANTIATE_TEST_SUITE_P(
    All, ProofOfAReset,
    testing::Values(
        Proof{.name = "AtOnce", .outcome = "hot-reset, proven"},
        Proof{.name = "BootedLater",
              .change =
                  [](Host&, ModelWriter& writer) {
                    writer.model.polls_until_boot = 1;
                    writer.model.reset();
                  },
              .outcome = "hot-reset, proven",
              .readings = 2},
        Proof{.name = "ScrubbedLater",
              .change =
                  [](Host&, ModelWriter& writer) {
                    writer.before = [&writer](unsigned reading) { writer.model.scrubbed = reading == 2; };
                  },
              .outcome = "hot-reset, proven",
              .readings = 3},
        Proof{.name = "NeverBooted",
              .change =
                  [](Host&, ModelWriter& writer) {
                    writer.model.polls_until_boot = 1000;
                    writer.model.reset();
                  },
              .outcome = "hot-reset, problem: 0000:17:00.0: it has not booted, 0.15 s after the reset",
              .to_the_deadline = true},
        Proof{.name = "NeverScrubbed",
              .change = [](Host&, ModelWriter& writer) { writer.model.scrubbed = false; },
              .outcome =
                  "hot-reset, problem: 0000:17:00.0: its memory has not been cleared, 0.15 s after the reset",
              .to_the_deadline = true},
        Proof{.name = "Recovery",
              .change = [](Host&, ModelWriter& writer) { writer.model.recovery = true; },
              .outcome = "hot-reset, problem: 0000:17:00.0: its firmware is in recovery mode, 0.15 s after "
                         "the reset",
              .to_the_deadline = true},
        Proof{.name = "Dead",
              .change = [](Host&, ModelWriter& writer) { writer.model.dead = true; },
              .outcome = "hot-reset, problem: 0000:17:00.0: register 0x0 reads 0xffffffff: the function "
                         "sleeps (D3), is dead, or its firewall is up, 0.15 s after the reset",
              .to_the_deadline = true},
        Proof{.name = "BlockedByTheMode",
              .change =
                  [](Host&, ModelWriter& writer) {
                    writer.model.set_knob(BarModel::kConfidential, 1);
                    writer.model.reset();
                  },
              .outcome = "hot-reset, unproven: blocked by the mode 'on'"},
        Proof{.name = "ScrubRegisterReadsAnError",
              .change = [](Host&, ModelWriter& writer) { writer.model.forced[0x100b20] = 0xbadf1301; },
              .outcome = "hot-reset, unproven: register 0x100b20 reads 0xbadf1301, an error",
              .to_the_deadline = true},
        Proof{.name = "LockedDown",
              .change = [](Host&, ModelWriter& writer) { writer.first = {unreadable(kLockedDown)}; },
              .outcome = "hot-reset, unproven: the kernel is locked down, as with Secure Boot, and maps no "
                         "registers"},
        Proof{.name = "AnotherReaderComesFirst",
              .change =
                  [](Host&, ModelWriter& writer) {
                    writer.first = {unreadable("another process reads registers")};
                  },
              .outcome = "hot-reset, proven",
              .readings = 2},
        Proof{.name = "Unreadable",
              .change =
                  [](Host&, ModelWriter& writer) {
                    writer.first = std::deque<RegisterFacts>(3, unreadable("it sleeps (D3)"));
                  },
              .outcome = "hot-reset, unproven: it sleeps (D3)",
              .to_the_deadline = true},
        Proof{.name = "OffTheBus",
              .change =
                  [](Host& host, ModelWriter& writer) {
                    host.tree().file(Host::path(kGpu, "config"), std::string(4096, '\xff'));
                    writer.first = std::deque<RegisterFacts>(3, unreadable("off the bus"));
                  },
              .outcome = "hot-reset, problem: 0000:17:00.0: /sys/bus/pci/devices/0000:17:00.0/config: reads "
                         "all ones; the device is off the bus, unproven: off the bus",
              .to_the_deadline = true},
        Proof{.name = "BehindItsFirewallForAWhile",
              .change =
                  [](Host&, ModelWriter& writer) {
                    writer.first = {{.chip = "gh100", .problem = "its firewall is up, as while it boots"}};
                  },
              .outcome = "hot-reset, proven",
              .readings = 2},
        Proof{.name = "AVmComesMeanwhile",
              .change =
                  [](Host&, ModelWriter& writer) {
                    writer.first = {{.problem = "it is in use: a user has opened it", .in_use = true}};
                  },
              .outcome = "hot-reset, in use, unproven: it is in use: a user has opened it"},
        Proof{.name = "UnknownChip",
              .change = [](Host& host, ModelWriter&) { host.add(kGpu, kGroup, {.device = 0x20b5}); },
              .outcome = "hot-reset, unproven: the registers of this GPU are not known",
              .readings = 0},
        Proof{.name = "AnotherVendor",
              .change = [](Host& host, ModelWriter&) { host.add(kGpu, kGroup, {.vendor = 0x1002}); },
              .outcome = "hot-reset, unproven: the registers of this GPU are not known",
              .readings = 0},
        Proof{.name = "VirtualFunction",
              .change =
                  [](Host& host, ModelWriter&) {
                    host.tree().link(Host::path(kGpu, "physfn"), "../" + std::string(kNext));
                  },
              .outcome = "hot-reset, unproven: the registers of this GPU are not known",
              .readings = 0}),
    [](const auto& row) { return row.param.name; });

struct NoReset {
  std::string name;
  std::function<void(ModelWriter&)> change;
  std::string outcome;
};
void PrintTo(const NoReset& row, std::ostream* out) {
  *out << row.name;
}
class WithoutAReset : public testing::TestWithParam<NoReset> {};

TEST_P(WithoutAReset, NothingIsRead) {
  Host host;
  host.add(kGpu);
  ModelWriter writer;
  GetParam().change(writer);
  EXPECT_EQ(described(sanitize(writer, host.fs(), address(kGpu))), GetParam().outcome);
  EXPECT_EQ(writer.readings, 0U);
}

INSTANTIATE_TEST_SUITE_P(
    All, WithoutAReset,
    testing::Values(NoReset{.name = "InUse",
                            .change =
                                [](ModelWriter& writer) {
                                  writer.reset_answer = R"({"in_use": true, "method": "", "problem": ""})";
                                },
                            .outcome = "not reset, in use"},
                    NoReset{.name = "Refused",
                            .change =
                                [](ModelWriter& writer) {
                                  writer.reset_answer =
                                      R"({"in_use": false, "method": "", "problem": "it is gone"})";
                                },
                            .outcome = "not reset, problem: it is gone"},
                    NoReset{.name = "TheChildDied",
                            .change =
                                [](ModelWriter& writer) {
                                  writer.reset_error =
                                      Error{.code = make_error_code(Errc::failed),
                                            .message = "reset 0000:17:00.0: the writing process ended"};
                                },
                            .outcome = "not reset, problem: reset 0000:17:00.0: the writing process ended"},
                    NoReset{.name = "AnAnswerThatCannotBeRead",
                            .change = [](ModelWriter& writer) { writer.reset_answer = R"({"method": ""})"; },
                            .outcome = "not reset, problem: reset 0000:17:00.0: in_use: the key is missing"}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace ferry::vfio
