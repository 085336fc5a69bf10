// SPDX-License-Identifier: Apache-2.0
// Every single change of the host fails with every errno that the kernel is known to give, hangs and is the
// last one before death, alone or in the middle of the way back from a failure, or fails whenever it is
// tried; then the same command runs again. On every machine of the set, in both directions.
#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <ostream>
#include <set>
#include <span>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vfio/machines.h"
#include "tests/vfio/rebinds.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Status = RebindResult::Status;

std::filesystem::path unbind_lock(const std::string& address) {
  return std::filesystem::path("proc/driver/nvidia/gpus") / address / "unbindLock";
}

/// "DRIVER (OVERRIDE)" of each function, and whether its driver's lock is held.
using State = std::map<std::string, std::string>;

State state_of(const FakeKernel& kernel) {
  State out;
  const auto addresses = kernel.list("sys/bus/pci/devices").value();
  for (const std::string& address : addresses) {
    const bool locked = kernel.read_attribute(unbind_lock(address)).value_or("0") == "1";
    out[address] =
        kernel.driver_of(address) + " (" + kernel.override_of(address) + ")" + (locked ? " and locked" : "");
  }
  return out;
}

/// The lock of driver nvidia.
class FileLock final : public DriverLock {
 public:
  explicit FileLock(FakeKernel& kernel) : kernel_(&kernel) {}
  bool has(const PciAddress& device) const override { return kernel_->exists(unbind_lock(device.text())); }
  Result<> take(const PciAddress& device) override { return write(device, "1"); }
  Result<> release(const PciAddress& device) override {
    return has(device) ? write(device, "0") : Result<>();
  }

 private:
  Result<> write(const PciAddress& device, const char* value) {
    return kernel_->write(unbind_lock(device.text()), value);
  }
  FakeKernel* kernel_;
};

/// The firmware's screen is on these as long as a driver of the host's has them.
class ScreenProbe final : public UseProbe {
 public:
  ScreenProbe(const FakeKernel& kernel, const std::set<std::string>& screens)
      : kernel_(&kernel), screens_(&screens) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override {
    UseReport report;
    for (const UseQuestion& question : questions) {
      if (!screens_->contains(question.device) || kernel_->driver_of(question.device) == "vfio-pci") continue;
      for (const auto kind : {DeviceUser::Kind::boot_display, DeviceUser::Kind::framebuffer})
        report.users[question.device].push_back(
            {.kind = kind, .name = "efifb", .pid = {}, .what = {}, .pod_uid = {}});
    }
    return report;
  }

 private:
  const FakeKernel* kernel_;
  const std::set<std::string>* screens_;
};

struct Machine {
  const char* name;
  void (*build)(FakeKernel& kernel);
  std::vector<std::string> asked;
  std::vector<std::string> with = {};  ///< --with
  std::set<std::string> screens = {};  ///< that --force gives up
  /// On vfio by another program, or without a driver that the kernel would give it: the way back leads to
  /// that driver.
  bool returns_elsewhere = false;
};

const std::vector<Machine>& machines() {
  static const std::vector<Machine> all = {
      {"FourFunctionCard", test::add_four_function_card, {"0000:65:00.0"}},
      {"CompanionsInOtherGroups",
       [](FakeKernel& kernel) {
         kernel.add_function(
             {.address = "0000:65:00.0", .group = 41, .driver = "nouveau", .consumers = {"0000:65:00.1"}});
         kernel.add_function(test::kinds::kAudio, "0000:65:00.1", 42, "snd_hda_intel");
       },
       {"0000:65:00.0"}},
      {"TwoGpusBehindABridge",
       [](FakeKernel& kernel) {
         kernel.add_function({.address = "0000:04:00.0",
                              .ids = "8086:2030",
                              .class_code = 0x060400,
                              .group = 12,
                              .driver = "pcieport",
                              .header_type = 1});
         kernel.add_function({.address = "0000:05:00.0", .group = 12, .driver = "nouveau"});
         kernel.add_function({.address = "0000:06:00.0", .group = 12});
       },
       {"0000:05:00.0", "0000:06:00.0"},
       {},
       {},
       true},
      // As driverctl leaves it: an override of an administrator's, and its driver.
      {"EarlierOverride",
       [](FakeKernel& kernel) {
         kernel.add_driver({.name = "pci-stub"});
         kernel.add_function(
             {.address = "0000:65:00.0", .group = 41, .driver = "pci-stub", .driver_override = "pci-stub"});
       },
       {"0000:65:00.0"}},
      // Guides to passthrough set the override first: it names another driver than the one bound.
      {"OverrideOfAnotherDriver",
       [](FakeKernel& kernel) {
         kernel.add_function(
             {.address = "0000:65:00.0", .group = 41, .driver = "nouveau", .driver_override = "vfio-pci"});
         kernel.add_function(test::kinds::kAudio, "0000:65:00.1", 41, "snd_hda_intel");
       },
       {"0000:65:00.0"}},
      {"VariantDriver",
       [](FakeKernel& kernel) {
         kernel.add_module({.name = "nvgrace_gpu_vfio_pci", .vfio = true});
         test::add_alias(kernel, "vfio_pci:v000010DEd00001DB6sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci");
         kernel.add_function({"10de:1db6", 0x030200}, "0000:09:00.0", 7, "nouveau");
       },
       {"0000:09:00.0"}},
      // Side by side, by several threads: which of them meets the fault is not said.
      {"IndependentGroups",
       [](FakeKernel& kernel) {
         kernel.add_function({.address = "0000:01:00.0", .group = 21, .driver = "nouveau"});
         kernel.add_function({.address = "0000:02:00.0", .group = 22, .driver = "nouveau"});
         kernel.add_function({.address = "0000:03:00.0", .group = 23});
       },
       {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"},
       {},
       {},
       true},
      {"UsbBehindTheCardsBridge",
       [](FakeKernel& kernel) {
         kernel.add_function({.address = "0000:65:00.0", .group = 41, .driver = "nouveau"});
         kernel.add_function(test::kinds::kUsb, "0000:66:00.0", 41, "xhci_hcd");
       },
       {"0000:65:00.0"},
       {"0000:66:00.0"}},
      {"VirtualFunctions",
       [](FakeKernel& kernel) {
         kernel.add_driver({.name = "nvidia", .ids = {"10de:26b9"}, .sriov = true});
         kernel.add_function(test::kinds::kL40s, "0000:05:00.0", 31, "nvidia", 4);
         kernel.enable_vfs("0000:05:00.0", 3);
         test::must(kernel.write_attribute("sys/bus/pci/drivers/nvidia/unbind", "0000:05:00.5"));
       },
       {"0000:05:00.4", "0000:05:00.5"}},
      {"NvSwitches",
       [](FakeKernel& kernel) {
         kernel.add_driver({.name = "nvidia", .ids = {"10de:2330"}});
         kernel.add_driver({.name = "nvidia-nvswitch", .ids = {"10de:22a3"}});
         kernel.add_function(test::kinds::kH100, "0000:18:00.0", 50, "nvidia");
         for (const char* address : {"0000:c1:00.0", "0000:c2:00.0"}) {
           kernel.add_function(test::kinds::kNvSwitch, address, 60, "nvidia-nvswitch");
         }
       },
       {"0000:18:00.0", "0000:c1:00.0", "0000:c2:00.0"}},
      {"DriversLock",
       [](FakeKernel& kernel) {
         kernel.add_driver({.name = "nvidia", .ids = {"10de:1db6"}, .unbind_lock = true});
         for (const char* address : {"0000:05:00.0", "0000:06:00.0"}) {
           kernel.add_function({"10de:1db6", 0x030200}, address, 12, "nvidia");
         }
       },
       {"0000:05:00.0", "0000:06:00.0"}},
      {"BootDisplayByForce",
       [](FakeKernel& kernel) {
         kernel.add_function(
             {.address = "0000:01:00.0", .group = 11, .driver = "nouveau", .boot_display = true});
         kernel.add_function(test::kinds::kAudio, "0000:01:00.1", 11, "snd_hda_intel");
       },
       {"0000:01:00.0"},
       {},
       {"0000:01:00.0"}},
      // As driverctl leaves it: Ferry has no record of what they had.
      {"OnVfioWithoutARecord",
       [](FakeKernel& kernel) {
         kernel.add_driver({.name = "vfio-pci", .vfio = true});
         kernel.add_function(
             {.address = "0000:65:00.0", .group = 41, .driver = "vfio-pci", .driver_override = "vfio-pci"});
         kernel.add_function({.address = "0000:65:00.1",
                              .ids = "10de:22ba",
                              .class_code = 0x040300,
                              .group = 41,
                              .driver = "vfio-pci",
                              .driver_override = "vfio-pci"});
       },
       {"0000:65:00.0"},
       {},
       {},
       true},
  };
  return all;
}

struct Host {
  explicit Host(const Machine& of) : machine(of) {
    test::add_host_drivers(kernel);
    machine.build(kernel);
  }
  Result<RebindOutcome> apply(Direction direction, bool with_all = true) {
    AcceleratorRules rules = test::gpu_rules();
    rules.classes.insert(PciClass::bridge_other);
    const RebindContext context{.host = &kernel,
                                .writer = &kernel,
                                .probe = &probe,
                                .rules = rules,
                                .on_step = {},
                                .driver_lock = &lock};
    RebindRequest request;
    for (const std::string& address : machine.asked) request.accelerators.push_back(at(address));
    for (const std::string& address : machine.with) {
      if (with_all) request.with.insert(at(address));
    }
    request.force = !machine.screens.empty();
    return apply_rebinds(context, request, direction);
  }
  void prepare(Direction direction) {
    if (direction == Direction::back) apply(Direction::to_vfio).value();
    kernel.forget_changes();
  }
  const Machine& machine;
  FakeKernel kernel;
  ScreenProbe probe{kernel, machine.screens};
  FileLock lock{kernel};
};

struct Scene {
  const Machine* machine = nullptr;
  Direction direction = Direction::to_vfio;
  std::size_t change = 0;  ///< counted from 1
  test::HostChange what;
  /// That a lock is held is found to be untrue by the next run, and nobody need know.
  bool is_forgotten() const { return what.path.starts_with("remove run/ferry/hostd/unbind-locks/"); }
};

void PrintTo(const Scene& scene, std::ostream* out) {
  *out << "change " << scene.change;
}

std::string name_of(const testing::TestParamInfo<Scene>& info) {
  return std::string(info.param.machine->name) +
         (info.param.direction == Direction::to_vfio ? "Bind" : "Unbind") + "Change" +
         std::to_string(info.param.change);
}

// Every change that an undisturbed run makes, on these machines or on all.
std::vector<Scene> scenes(const std::set<std::string>& names = {}) {
  std::vector<Scene> out;
  for (const Machine& machine : machines()) {
    if (!names.empty() && !names.contains(machine.name)) continue;
    for (const Direction direction : {Direction::to_vfio, Direction::back}) {
      Host host(machine);
      host.prepare(direction);
      host.apply(direction).value();
      for (std::size_t n = 1; n <= host.kernel.changes().size(); ++n)
        out.push_back({&machine, direction, n, host.kernel.changes()[n - 1]});
    }
  }
  return out;
}

bool any(const Result<RebindOutcome>& outcome, Status status) {
  return std::ranges::any_of(outcome->results,
                             [&](const RebindResult& result) { return result.status == status; });
}

class EveryChange : public testing::TestWithParam<Scene> {
 protected:
  EveryChange() : host_(*GetParam().machine) {
    Host model(*GetParam().machine);
    original_ = state_of(model.kernel);
    model.apply(Direction::to_vfio).value();
    rebound_ = state_of(model.kernel);
    model.apply(Direction::back).value();
    home_ = state_of(model.kernel);
    EXPECT_EQ(home_ != original_, GetParam().machine->returns_elsewhere);
    host_.prepare(GetParam().direction);
  }
  const State& desired() const { return GetParam().direction == Direction::to_vfio ? rebound_ : home_; }
  static bool dies_at_this(Host& host) {
    return test::dies([&] {
      host.kernel.die_at_change(GetParam().change);
      (void)host.apply(GetParam().direction);
    });
  }
  /// Of each unit all functions are where they were or all where they shall be, as its result says.
  void each_unit_is_whole(const Host& host, const RebindOutcome& outcome) const {
    const State now = state_of(host.kernel);
    for (const RebindResult& result : outcome.results) {
      const bool there = result.status == Status::done || result.status == Status::already;
      for (const PciAddress& address : result.rebind.rebinding()) {
        const std::string name = address.text();
        EXPECT_EQ(now.at(name), (there ? rebound_ : original_).at(name)) << name;
      }
    }
  }
  /// No function is between the two states, or without the driver that it has in both. A last write that
  /// fails, of an override that names another driver, leaves the override of the driver that is bound.
  void each_function_is_whole(const Host& host) const {
    for (const auto& [name, state] : state_of(host.kernel)) {
      const std::string bound = host.kernel.driver_of(name) + " (";
      const bool comes_last = home_.at(name).starts_with(bound) && home_.at(name) != bound + ")";
      const std::string late = comes_last ? bound + host.kernel.driver_of(name) + ")" : home_.at(name);
      EXPECT_THAT(state, testing::AnyOf(original_.at(name), home_.at(name), rebound_.at(name), late)) << name;
    }
  }
  void runs_again_to_the_desired_state(Host& host) const {
    const auto again = host.apply(GetParam().direction);
    ASSERT_TRUE(again);
    EXPECT_FALSE(any(again, Status::failed));
    EXPECT_EQ(state_of(host.kernel), desired());
    // And from there the way back is still known, to the very state before the first run.
    ASSERT_TRUE(host.apply(Direction::back));
    EXPECT_EQ(state_of(host.kernel), home_);
    EXPECT_THAT(host.kernel.list("run/ferry/hostd/moves").value(), IsEmpty());
    EXPECT_THAT(host.kernel.list("run/ferry/hostd/unbind-locks").value_or(std::vector<std::string>()),
                IsEmpty());
  }
  Host host_;
  State original_;
  State rebound_;
  State home_;  // the original, save where Machine::returns_elsewhere
};

// The errnos of binding, unbinding, overriding and loading, and those of a full or read-only disk.
constexpr std::array kErrnos = {ENOENT, EACCES, EROFS,  ENODEV, EBUSY,  EINVAL,
                                EAGAIN, ETIME,  ENOMEM, EIO,    ENOSPC, EKEYREJECTED};

TEST_P(EveryChange, ThatFailsLeavesTheOldStateOrTheNewAndTheNextRunGetsThere) {
  for (const int error : kErrnos) {
    SCOPED_TRACE(error);
    Host host(*GetParam().machine);
    host.prepare(GetParam().direction);
    host.kernel.fail_change(GetParam().change, error);
    const auto outcome = host.apply(GetParam().direction);
    EXPECT_TRUE(!outcome || any(outcome, Status::failed) || GetParam().is_forgotten())
        << "a failed write went unnoticed";
    if (outcome && GetParam().direction == Direction::to_vfio) each_unit_is_whole(host, *outcome);
    each_function_is_whole(host);
    ASSERT_TRUE(host.apply(GetParam().direction));
    EXPECT_EQ(state_of(host.kernel), desired());
  }
}

TEST_P(EveryChange, ThatFailsForGoodLeavesEachFunctionWhereItWasOrWhereItShallBe) {
  host_.kernel.fail_for_good(GetParam().what, EIO);
  for (int run = 0; run < 2; ++run) {
    const auto outcome = host_.apply(GetParam().direction);
    EXPECT_TRUE(!outcome || any(outcome, Status::failed) || any(outcome, Status::refused) ||
                GetParam().is_forgotten())
        << "a failed write went unnoticed";
    if (outcome && GetParam().direction == Direction::to_vfio) each_unit_is_whole(host_, *outcome);
    each_function_is_whole(host_);
  }
  host_.kernel.mend();
  runs_again_to_the_desired_state(host_);
}

class EveryFailure : public EveryChange {};

TEST_P(EveryFailure, AndADeathInItsRollbackAreRepairedByTheNextRun) {
  for (std::size_t later = 1;; ++later) {
    Host host(*GetParam().machine);
    host.prepare(GetParam().direction);
    const bool died = test::dies([&] {
      host.kernel.fail_change(GetParam().change, EIO);
      host.kernel.die_at_change(GetParam().change + later);
      (void)host.apply(GetParam().direction);
    });
    if (!died) break;
    SCOPED_TRACE(later);
    runs_again_to_the_desired_state(host);
  }
}

TEST_P(EveryChange, ThatIsTheLastBeforeDeathIsRepairedByTheNextRun) {
  ASSERT_TRUE(dies_at_this(host_));
  runs_again_to_the_desired_state(host_);
}

TEST_P(EveryChange, ThatIsTheLastBeforeDeathLeavesTheOtherWayOpen) {
  ASSERT_TRUE(dies_at_this(host_));
  const bool was_binding = GetParam().direction == Direction::to_vfio;
  const auto turned = host_.apply(was_binding ? Direction::back : Direction::to_vfio);
  ASSERT_TRUE(turned);
  EXPECT_FALSE(any(turned, Status::failed));
  // A function without a driver that the bind has not reached stays without one.
  const auto expect_home = [&] {
    for (const auto& [name, state] : state_of(host_.kernel)) {
      EXPECT_THAT(state, testing::AnyOf(original_.at(name), home_.at(name))) << name;
    }
  };
  if (was_binding) {
    expect_home();
  } else {
    EXPECT_EQ(state_of(host_.kernel), rebound_);
  }
  ASSERT_TRUE(host_.apply(Direction::back));
  expect_home();
}

/// A file of Ferry's own cannot hang: then the run simply went on.
bool anything_hangs(const Host& host) {
  return !host.kernel.list("run/ferry/stuck-writes").value_or(std::vector<std::string>()).empty();
}

// To what hangs, or beside it, nothing is written by any later run: not by the same one either that asks for
// less, and for which what hangs is a member that it has nothing to do with.
void nothing_is_written_while_it_hangs(Host& host, Direction direction) {
  host.kernel.forget_changes();
  for (const bool with_all : {true, false}) {
    const auto meanwhile = host.apply(direction, with_all);
    ASSERT_TRUE(meanwhile);
    EXPECT_FALSE(any(meanwhile, Status::done));
    EXPECT_THAT(host.kernel.writes(), IsEmpty()) << "written to a unit that hangs";
    for (const auto& change : host.kernel.changes())
      EXPECT_THAT(change.path, Not(StartsWith("proc/"))) << "written to a unit that hangs";
  }
}

TEST_P(EveryChange, ThatHangsIsLeftAloneUntilItReturns) {
  for (const auto ending : {FakeKernel::Ending::without_effect, FakeKernel::Ending::with_effect}) {
    SCOPED_TRACE(ending == FakeKernel::Ending::with_effect ? "with effect" : "without effect");
    Host host(*GetParam().machine);
    host.prepare(GetParam().direction);
    host.kernel.hang_change(GetParam().change);
    const auto outcome = host.apply(GetParam().direction);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(any(outcome, Status::failed), anything_hangs(host))
        << "a hang went unnoticed, or there was none";
    if (anything_hangs(host)) {
      for (const RebindResult& result : outcome->results) {
        if (result.error) {
          EXPECT_EQ(result.error->code, Errc::stuck) << result.error->message;
          EXPECT_THAT(result.error->message, Not(HasSubstr("back"))) << "no way back is tried";
        }
      }
      nothing_is_written_while_it_hangs(host, GetParam().direction);
    }
    host.kernel.release_stuck(ending);
    runs_again_to_the_desired_state(host);
  }
}

TEST_P(EveryFailure, AndAHangInItsRollbackIsLeftAloneUntilItReturns) {
  for (std::size_t later = 1;; ++later) {
    SCOPED_TRACE(later);
    Host host(*GetParam().machine);
    host.prepare(GetParam().direction);
    host.kernel.fail_change(GetParam().change, EIO);
    host.kernel.hang_change(GetParam().change + later);
    ASSERT_TRUE(host.apply(GetParam().direction));
    if (host.kernel.fault_waits()) break;
    for (const auto& change : host.kernel.changes_since_hang())
      EXPECT_THAT(change.path, testing::Not(testing::AnyOf(StartsWith("sys/"), StartsWith("proc/"))));
    if (anything_hangs(host)) nothing_is_written_while_it_hangs(host, GetParam().direction);
    host.kernel.release_stuck();
    runs_again_to_the_desired_state(host);
  }
}

// Two faults at once are many: on a machine with most of the steps and one with the rest.
std::vector<Scene> failures() {
  return scenes({"FourFunctionCard", "DriversLock"});
}

// Without such a change the tests of EveryFailure would have no round.
TEST(RebindScenes, MostFailuresHaveAChangeAfterThem) {
  std::size_t rounds = 0;
  for (const Scene& scene : failures()) {
    Host host(*scene.machine);
    host.prepare(scene.direction);
    host.kernel.fail_change(scene.change, EIO);
    host.kernel.hang_change(scene.change + 1);
    ASSERT_TRUE(host.apply(scene.direction));
    if (!host.kernel.fault_waits()) ++rounds;
  }
  EXPECT_GT(rounds, failures().size() / 2);
}

INSTANTIATE_TEST_SUITE_P(Rebinds, EveryChange, testing::ValuesIn(scenes()), name_of);
INSTANTIATE_TEST_SUITE_P(Rebinds, EveryFailure, testing::ValuesIn(failures()), name_of);

}  // namespace
}  // namespace ferry::vfio
