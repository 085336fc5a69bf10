// SPDX-License-Identifier: Apache-2.0
// From every profile to every other, on every kind of host; and for some of these ways with each write
// failing, hanging and being the last one before death.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/kind_node.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/plan/comparison.h"

namespace ferry::vgpu {
namespace {

using Kind = GpuOutcome::Kind;
using test::KindNode;
using test::name_of;
using testing::IsEmpty;

using DesiredState = std::map<std::string, std::uint32_t>;

// All that fit on 16 GiB and eight functions, of one size each.
const std::vector<DesiredState>& profiles() {
  static const std::vector<DesiredState> kProfiles = {
      {},
      {{"T4-1Q", 1}},
      {{"T4-1Q", 8}},
      {{"T4-1B", 3}, {"T4-1Q", 3}},
      {{"T4-1A", 2}, {"T4-1B", 2}, {"T4-1Q", 2}},
      {{"T4-2Q", 8}},
      {{"T4-2Q", 5}},
      {{"T4-2B", 4}, {"T4-2Q", 4}},
      {{"T4-2A", 1}, {"T4-2Q", 6}},
      {{"T4-4Q", 1}},
      {{"T4-4Q", 4}},
      {{"T4-4C", 4}},
      {{"T4-4C", 2}, {"T4-4Q", 2}},
      {{"T4-4C", 3}, {"T4-4Q", 1}},
      {{"T4-8Q", 1}},
      {{"T4-8Q", 2}},
      {{"T4-8C", 1}, {"T4-8Q", 1}},
      {{"T4-8C", 2}},
      {{"T4-16Q", 1}},
      {{"T4-16C", 1}},
  };
  return kProfiles;
}

Profile profile_of(const DesiredState& desired) {
  std::string text = "{";
  for (const auto& [type, count] : desired)
    text += (text.size() > 1 ? ", " : "") + type + ": " + std::to_string(count);
  return test::on("[0]", text + "}");
}

/// What has to go and what has to come, at the least.
std::size_t fewest_writes(const DesiredState& from, const DesiredState& to) {
  std::size_t writes = 0;
  const auto count = [](const DesiredState& desired, const std::string& type) {
    const auto found = desired.find(type);
    return found == desired.end() ? 0U : found->second;
  };
  for (const auto& [type, had] : from) writes += had - std::min(had, count(to, type));
  for (const auto& [type, has] : to) writes += has - std::min(has, count(from, type));
  return writes;
}

std::string type_of(const std::string& device) {
  return device.substr(0, device.find(' '));
}

/// How many of these are among those.
std::size_t still_there(const std::vector<std::string>& before, const std::vector<std::string>& now) {
  return static_cast<std::size_t>(
      std::ranges::count_if(before, [&](const std::string& d) { return std::ranges::count(now, d) > 0; }));
}

std::size_t could_stay(const DesiredState& from, const DesiredState& to) {
  std::size_t out = 0;
  for (const auto& [type, had] : from) {
    if (const auto found = to.find(type); found != to.end()) out += std::min(had, found->second);
  }
  return out;
}

class EveryTransition : public testing::TestWithParam<const mdev::Framework*> {};

// A walk that takes each way between two profiles once: out to each later one and back.
std::vector<std::size_t> walk() {
  std::vector<std::size_t> out;
  for (std::size_t from = 0; from < profiles().size(); ++from) {
    for (std::size_t to = from + 1; to < profiles().size(); ++to) {
      out.push_back(from);
      out.push_back(to);
    }
    out.push_back(from);
  }
  return out;
}

TEST_P(EveryTransition, EndsAsAskedByTheFewestWrites) {
  KindNode node(GetParam());
  DesiredState before;
  std::set<std::pair<DesiredState, DesiredState>> taken;
  for (const std::size_t next : walk()) {
    const DesiredState& desired = profiles()[next];
    SCOPED_TRACE("to number " + std::to_string(next));
    const auto had = node.devices();
    node.kernel.forget_changes();
    const GpuOutcome outcome = node.apply(profile_of(desired)).gpus.at(0);
    ASSERT_FALSE(outcome.error) << test::message_of(outcome.error);
    ASSERT_TRUE(assert_profile(profile_of(desired), node.snapshot().inventory));
    DesiredState now;
    for (const std::string& device : node.devices()) ++now[type_of(device)];
    ASSERT_EQ(now, desired);
    EXPECT_EQ(node.writes().size(), fewest_writes(before, desired));
    EXPECT_EQ(still_there(had, node.devices()), could_stay(before, desired));
    taken.emplace(before, desired);
    before = desired;
  }
  // Each way to another, and the first step from nothing to nothing.
  EXPECT_EQ(taken.size(), profiles().size() * (profiles().size() - 1) + 1);
}

// A reboot takes everything away: what is made then must be called what it was called before, whatever led
// there. Only where something stays on a function that the profile gives another type does the past decide.
TEST_P(EveryTransition, LeavesWhatARebootWouldBringBack) {
  std::map<DesiredState, std::vector<std::string>> rebooted;
  for (const DesiredState& desired : profiles()) {
    KindNode node(GetParam());
    node.make(profile_of(desired));
    rebooted[desired] = node.devices();
  }
  KindNode node(GetParam());
  std::size_t compared = 0;
  std::size_t of_the_past = 0;
  for (const std::size_t next : walk()) {
    const DesiredState& desired = profiles()[next];
    const auto had = node.devices();
    node.make(profile_of(desired));
    const auto has = node.devices();
    const auto moved = [&](const std::string& device) {
      return std::ranges::count(had, device) > 0 && std::ranges::count(rebooted[desired], device) == 0;
    };
    if (GetParam() != &mdev::mediated_on_gpu() && std::ranges::any_of(has, moved)) {
      ++of_the_past;
      continue;
    }
    ++compared;
    EXPECT_EQ(has, rebooted[desired]) << "to number " << next;
  }
  EXPECT_GT(compared, of_the_past * 4);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryTransition, testing::ValuesIn(test::frameworks()),
                         [](const auto& row) { return name_of(row.param); });

/// A way whose every write is disturbed.
struct Way {
  const mdev::Framework* framework = &mdev::no_framework();
  std::size_t from = 0;
  std::size_t to = 0;
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << name_of(way.framework) << ", " << way.from << " to " << way.to;
}

/// With FERRY_EVERY_WAY set all that there are, for the suite that has time for them.
std::vector<std::pair<std::size_t, std::size_t>> ways() {
  // Some of everything: more, fewer, another series, another size, from a full GPU, to nothing.
  if (std::getenv("FERRY_EVERY_WAY") == nullptr)
    return {{9, 12}, {10, 13}, {15, 12}, {12, 16}, {4, 0}, {18, 4}};
  std::vector<std::pair<std::size_t, std::size_t>> out;
  for (std::size_t from = 0; from < profiles().size(); ++from) {
    for (std::size_t to = 0; to < profiles().size(); ++to) {
      if (from != to) out.emplace_back(from, to);
    }
  }
  return out;
}

std::vector<Way> disturbed_ways() {
  std::vector<Way> out;
  for (const mdev::Framework* framework : test::frameworks()) {
    for (const auto& [from, to] : ways()) out.push_back({.framework = framework, .from = from, .to = to});
  }
  return out;
}

class DisturbedTransition : public testing::TestWithParam<Way> {
 protected:
  static Profile from() { return profile_of(profiles()[GetParam().from]); }
  static Profile to() { return profile_of(profiles()[GetParam().to]); }
  static std::size_t writes() {
    return fewest_writes(profiles()[GetParam().from], profiles()[GetParam().to]);
  }
  /// All changes, of the files that Ferry keeps for itself too.
  static std::size_t changes() {
    KindNode node(GetParam().framework);
    node.make(from());
    node.apply(to());
    return node.kernel.changes().size();
  }
  static void runs_again(KindNode& node) {
    const VgpuOutcome again = node.apply(to());
    EXPECT_EQ(again.status(), ExitStatus::done) << test::message_of(again.gpus.at(0).error);
    EXPECT_TRUE(assert_profile(to(), node.snapshot().inventory));
    node.kernel.forget_changes();
    node.apply(to());
    EXPECT_THAT(node.kernel.changes(), IsEmpty());
  }
};

TEST_P(DisturbedTransition, ByAFailureIsUndoneAndThenMade) {
  for (std::size_t write = 1; write <= writes(); ++write) {
    for (const int error : {EINVAL, EIO}) {
      SCOPED_TRACE(std::to_string(write) + " fails with " + std::to_string(error));
      KindNode node(GetParam().framework);
      node.make(from());
      const auto before = node.devices();
      node.kernel.fail_change(write, error);
      const GpuOutcome outcome = node.apply(to()).gpus.at(0);
      ASSERT_EQ(outcome.kind, Kind::failed);
      EXPECT_EQ(test::code_of(outcome.error), std::error_code(error, std::generic_category()));
      EXPECT_THAT(outcome.undo_errors, IsEmpty());
      EXPECT_EQ(node.devices(), before);
      runs_again(node);
    }
  }
}

TEST_P(DisturbedTransition, ByAHangIsLeftAloneUntilItReturns) {
  for (std::size_t write = 1; write <= writes(); ++write) {
    SCOPED_TRACE(write);
    KindNode node(GetParam().framework);
    node.make(from());
    node.kernel.hang_change(write);
    const GpuOutcome outcome = node.apply(to()).gpus.at(0);
    EXPECT_EQ(outcome.kind, Kind::failed);
    EXPECT_EQ(test::code_of(outcome.error), Errc::stuck);
    const auto left = node.devices();
    node.kernel.forget_changes();
    const GpuOutcome again = node.apply(to()).gpus.at(0);
    EXPECT_EQ(test::code_of(again.error), Errc::stuck);
    EXPECT_THAT(node.kernel.changes(), IsEmpty());
    EXPECT_EQ(node.devices(), left);
    node.kernel.release_stuck();
    runs_again(node);
  }
}

TEST_P(DisturbedTransition, ByDeathIsMadeByTheNextRun) {
  for (std::size_t change = 1; change <= changes(); ++change) {
    SCOPED_TRACE(change);
    KindNode node(GetParam().framework);
    node.make(from());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      node.kernel.die_at_change(change);
      node.apply(to());
      ::_exit(EXIT_FAILURE);  // it should have died
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    runs_again(node);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, DisturbedTransition, testing::ValuesIn(disturbed_ways()), [](const auto& row) {
  return name_of(row.param.framework) + std::to_string(row.param.from) + "To" + std::to_string(row.param.to);
});

}  // namespace
}  // namespace ferry::vgpu
