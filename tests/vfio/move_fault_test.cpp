// SPDX-License-Identifier: Apache-2.0
// Every single change of the host fails with every errno that the kernel is known to give, hangs and is the
// last one before death; then the same command runs again. On every machine of the set, in both directions.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <ostream>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/vfio/machines.h"

namespace ferry {
namespace {

using test::at;
using test::FakeKernel;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Status = MoveResult::Status;

/// "DRIVER (OVERRIDE)" of each function.
using State = std::map<std::string, std::string>;

State state_of(const FakeKernel& kernel) {
  State out;
  const auto addresses = kernel.list("sys/bus/pci/devices").value();
  for (const std::string& address : addresses)
    out[address] = kernel.driver_of(address) + " (" + kernel.override_of(address) + ")";
  return out;
}

struct Machine {
  const char* name;
  void (*build)(FakeKernel& kernel);
  std::vector<std::string> asked;
};

const std::vector<Machine>& machines() {
  static const std::vector<Machine> all = {
      {"FourFunctionCard", test::add_four_function_card, {"0000:65:00.0"}},
      {"CompanionsInOtherGroups",
       [](FakeKernel& kernel) {
         kernel.add_function(
             {.address = "0000:65:00.0", .group = 41, .driver = "nouveau", .consumers = {"0000:65:00.1"}});
         kernel.add_function({.address = "0000:65:00.1",
                              .ids = "10de:22ba",
                              .class_code = 0x040300,
                              .group = 42,
                              .driver = "snd_hda_intel"});
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
       {"0000:05:00.0", "0000:06:00.0"}},
      // As driverctl leaves it: an override of an administrator's, and its driver.
      {"EarlierOverride",
       [](FakeKernel& kernel) {
         kernel.add_driver({.name = "pci-stub"});
         kernel.add_function(
             {.address = "0000:65:00.0", .group = 41, .driver = "pci-stub", .driver_override = "pci-stub"});
       },
       {"0000:65:00.0"}},
      {"VariantDriver",
       [](FakeKernel& kernel) {
         kernel.add_module({.name = "nvgrace_gpu_vfio_pci", .vfio = true});
         test::add_alias(kernel, "vfio_pci:v000010DEd00001DB6sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci");
         kernel.add_function({.address = "0000:09:00.0",
                              .ids = "10de:1db6",
                              .class_code = 0x030200,
                              .group = 7,
                              .driver = "nouveau"});
       },
       {"0000:09:00.0"}},
      // Side by side, by several threads: which of them meets the fault is not said.
      {"IndependentGroups",
       [](FakeKernel& kernel) {
         kernel.add_function({.address = "0000:01:00.0", .group = 21, .driver = "nouveau"});
         kernel.add_function({.address = "0000:02:00.0", .group = 22, .driver = "nouveau"});
         kernel.add_function({.address = "0000:03:00.0", .group = 23});
       },
       {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"}},
  };
  return all;
}

struct Host {
  explicit Host(const Machine& of) : machine(of) {
    test::add_host_drivers(kernel);
    machine.build(kernel);
  }
  Result<MoveOutcome> apply(Direction direction) {
    const MoveContext context{
        .host = &kernel, .writer = &kernel, .probe = &probe, .rules = test::gpu_rules(), .on_step = {}};
    MoveRequest request;
    for (const std::string& address : machine.asked) request.accelerators.push_back(at(address));
    return apply_moves(context, request, direction);
  }
  void prepare(Direction direction) {
    if (direction == Direction::back) apply(Direction::to_vfio).value();
    kernel.forget_changes();
  }
  const Machine& machine;
  FakeKernel kernel;
  test::TableProbe probe;
};

struct Scene {
  const Machine* machine = nullptr;
  Direction direction = Direction::to_vfio;
  std::size_t change = 0;  ///< counted from 1
};

void PrintTo(const Scene& scene, std::ostream* out) {
  *out << "change " << scene.change;
}

std::string name_of(const testing::TestParamInfo<Scene>& info) {
  return std::string(info.param.machine->name) +
         (info.param.direction == Direction::to_vfio ? "Bind" : "Unbind") + "Change" +
         std::to_string(info.param.change);
}

// Every change that an undisturbed run makes.
std::vector<Scene> scenes() {
  std::vector<Scene> out;
  for (const Machine& machine : machines()) {
    for (const Direction direction : {Direction::to_vfio, Direction::back}) {
      Host host(machine);
      host.prepare(direction);
      host.apply(direction).value();
      for (std::size_t n = 1; n <= host.kernel.changes().size(); ++n) out.push_back({&machine, direction, n});
    }
  }
  return out;
}

bool any(const Result<MoveOutcome>& outcome, Status status) {
  return std::ranges::any_of(outcome->results,
                             [&](const MoveResult& result) { return result.status == status; });
}

class EveryChange : public testing::TestWithParam<Scene> {
 protected:
  EveryChange() : host_(*GetParam().machine) {
    Host model(*GetParam().machine);
    original_ = state_of(model.kernel);
    model.apply(Direction::to_vfio).value();
    moved_ = state_of(model.kernel);
    host_.prepare(GetParam().direction);
  }
  const State& wanted() const { return GetParam().direction == Direction::to_vfio ? moved_ : original_; }
  /// Of each unit all functions are where they were or all where they shall be, as its result says.
  void each_unit_is_whole(const Host& host, const MoveOutcome& outcome) const {
    const State now = state_of(host.kernel);
    for (const MoveResult& result : outcome.results) {
      const bool there = result.status == Status::done || result.status == Status::already;
      for (const PciAddress& address : result.move.moving()) {
        const std::string name = address.text();
        EXPECT_EQ(now.at(name), (there ? moved_ : original_).at(name)) << name;
      }
    }
  }
  void runs_again_to_the_wanted_state() {
    const auto again = host_.apply(GetParam().direction);
    ASSERT_TRUE(again);
    EXPECT_FALSE(any(again, Status::failed));
    EXPECT_EQ(state_of(host_.kernel), wanted());
    // And from there the way back is still known, to the very state before the first run.
    ASSERT_TRUE(host_.apply(Direction::back));
    EXPECT_EQ(state_of(host_.kernel), original_);
    EXPECT_THAT(host_.kernel.list("run/ferry/moves").value(), IsEmpty());
  }
  Host host_;
  State original_;
  State moved_;
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
    EXPECT_TRUE(!outcome || any(outcome, Status::failed)) << "a failed write went unnoticed";
    if (outcome && GetParam().direction == Direction::to_vfio) each_unit_is_whole(host, *outcome);
    ASSERT_TRUE(host.apply(GetParam().direction));
    EXPECT_EQ(state_of(host.kernel), wanted());
  }
}

TEST_P(EveryChange, ThatIsTheLastBeforeDeathIsRepairedByTheNextRun) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    host_.kernel.die_at_change(GetParam().change);
    (void)host_.apply(GetParam().direction);
    ::_exit(EXIT_FAILURE);  // it should have died
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
  runs_again_to_the_wanted_state();
}

TEST_P(EveryChange, ThatIsTheLastBeforeDeathLeavesTheOtherWayOpen) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    host_.kernel.die_at_change(GetParam().change);
    (void)host_.apply(GetParam().direction);
    ::_exit(EXIT_FAILURE);  // it should have died
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
  const bool was_binding = GetParam().direction == Direction::to_vfio;
  const auto turned = host_.apply(was_binding ? Direction::back : Direction::to_vfio);
  ASSERT_TRUE(turned);
  EXPECT_FALSE(any(turned, Status::failed));
  EXPECT_EQ(state_of(host_.kernel), was_binding ? original_ : moved_);
  ASSERT_TRUE(host_.apply(Direction::back));
  EXPECT_EQ(state_of(host_.kernel), original_);
}

TEST_P(EveryChange, ThatHangsIsLeftAloneUntilItReturns) {
  host_.kernel.hang_change(GetParam().change);
  const auto outcome = host_.apply(GetParam().direction);
  ASSERT_TRUE(outcome);
  // A file of ours cannot hang: then the run simply went on.
  if (any(outcome, Status::failed)) {
    for (const MoveResult& result : outcome->results) {
      if (result.error) {
        EXPECT_EQ(result.error->code, Errc::stuck) << result.error->message;
        EXPECT_THAT(result.error->message, Not(HasSubstr("back"))) << "no way back is tried";
      }
    }
    host_.kernel.forget_changes();
    const auto meanwhile = host_.apply(GetParam().direction);
    ASSERT_TRUE(meanwhile);
    EXPECT_FALSE(any(meanwhile, Status::done));
    EXPECT_THAT(host_.kernel.writes(), IsEmpty()) << "written to a unit that hangs";
  }
  host_.kernel.release_stuck();
  runs_again_to_the_wanted_state();
}

INSTANTIATE_TEST_SUITE_P(Moves, EveryChange, testing::ValuesIn(scenes()), name_of);

}  // namespace
}  // namespace ferry
