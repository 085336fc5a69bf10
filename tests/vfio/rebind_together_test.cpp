// SPDX-License-Identifier: Apache-2.0
// Several groups in one command, fences, screens, and hosts that change between the look and the write.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vfio/machines.h"

namespace ferry::vfio {
namespace {

using namespace std::chrono_literals;
using test::at;
using test::FakeKernel;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Status = RebindResult::Status;

/// Free unless a test says otherwise; calls `meanwhile` right before its second answer.
class SecondLook final : public UseProbe {
 public:
  std::function<void()> meanwhile;
  std::vector<DeviceUser> always;
  Result<UseReport> look(std::span<const UseQuestion> questions) override {
    if (++looks_ == 2 && meanwhile) meanwhile();
    UseReport report;
    for (const UseQuestion& question : questions) report.users[question.device] = always;
    return report;
  }

 private:
  int looks_ = 0;
};

/// A driver's lock: which devices are held, and by how much was written before and after.
class BookedLock final : public DriverLock {
 public:
  explicit BookedLock(const FakeKernel& kernel) : kernel_(kernel) {}
  std::set<PciAddress> refuses;
  std::vector<std::string> events;
  bool has(const PciAddress& /*device*/) const override { return true; }
  /// Called first thing when a lock is asked for, by several threads.
  std::function<void()> when_taken;
  Result<> take(const PciAddress& device) override {
    if (when_taken) when_taken();
    note("take", device);
    if (refuses.contains(device))
      return fail(Errc::refused, device.text() + " is in use: its driver says so");
    return {};
  }
  Result<> release(const PciAddress& device) override {
    note("release", device);
    return {};
  }

 private:
  void note(const char* what, const PciAddress& device) {
    const std::scoped_lock lock(mutex_);
    events.push_back(fmt::format("{} {} after {} writes", what, device.text(), kernel_.writes().size()));
  }
  const FakeKernel& kernel_;
  std::mutex mutex_;
};

class RebindingTogether : public testing::Test {
 protected:
  RebindingTogether() {
    test::add_host_drivers(kernel_);
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  }
  /// GPUs 0000:01:00.0 .. 0000:08:00.0, each in a group of its own.
  void add_gpus(unsigned count) {
    for (unsigned i = 1; i <= count; ++i) {
      const std::string address = fmt::format("0000:{:02x}:00.0", i);
      kernel_.add_function({.address = address, .group = 20 + i, .driver = "nouveau"});
      request_.accelerators.push_back(at(address));
    }
  }
  RebindOutcome apply(Direction direction = Direction::to_vfio) {
    const RebindContext context{.host = &kernel_,
                                .writer = &kernel_,
                                .probe = &probe_,
                                .rules = test::gpu_rules(),
                                .on_step = {},
                                .driver_lock = &lock_};
    return apply_rebinds(context, request_, direction).value();
  }
  FakeKernel kernel_;
  SecondLook probe_;
  BookedLock lock_{kernel_};
  RebindRequest request_;
};

std::vector<Status> statuses(const RebindOutcome& outcome) {
  std::vector<Status> out(outcome.results.size());
  std::ranges::transform(outcome.results, out.begin(), &RebindResult::status);
  return out;
}

TEST_F(RebindingTogether, TakesAsLongAsTheSlowestGroup) {
  add_gpus(8);
  kernel_.take_time("sys/bus/pci/drivers/nouveau/unbind", 1000ms);
  // The best of three: a machine that does something else may be late by itself, not early.
  auto took = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 3 && took >= 2s; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto outcome = apply();
    took = std::min(took, std::chrono::steady_clock::now() - begin);
    EXPECT_EQ(statuses(outcome), std::vector<Status>(8, Status::done));
    EXPECT_EQ(statuses(apply(Direction::back)), std::vector<Status>(8, Status::done));
  }
  EXPECT_LT(took, 2s);
}

TEST_F(RebindingTogether, RebindsMoreGroupsThanItHasThreads) {
  add_gpus(40);
  EXPECT_EQ(statuses(apply()), std::vector<Status>(40, Status::done));
  EXPECT_EQ(statuses(apply(Direction::back)), std::vector<Status>(40, Status::done));
  EXPECT_THAT(kernel_.list("run/ferry/hostd/moves").value(), IsEmpty());
}

TEST_F(RebindingTogether, EndsOneGroupThatHangsAndRebindsTheOthers) {
  add_gpus(3);
  kernel_.hang_write({.path = "sys/bus/pci/drivers/nouveau/unbind", .value = "0000:02:00.0"});
  const auto outcome = apply();
  ASSERT_EQ(statuses(outcome), (std::vector<Status>{Status::done, Status::failed, Status::done}));
  EXPECT_EQ(test::error_of(outcome.results[1]).code, Errc::stuck);
  EXPECT_THAT(outcome.results[1].devices, ElementsAre(at("0000:02:00.0")));
}

TEST_F(RebindingTogether, FailsAGroupWhoseGpuWasUnpluggedMeanwhile) {
  add_gpus(3);
  probe_.meanwhile = [this] { kernel_.remove_function("0000:02:00.0"); };
  const auto outcome = apply();
  ASSERT_EQ(outcome.results.size(), 3U);
  std::vector<std::string> done;
  for (const RebindResult& result : outcome.results) {
    if (result.status == Status::done) done.push_back(result.devices.at(0).text());
    if (const auto& error = result.error) {
      EXPECT_THAT(error->message, HasSubstr("0000:02:00.0"));
    }
  }
  EXPECT_THAT(done, ElementsAre("0000:01:00.0", "0000:03:00.0"));
}

TEST_F(RebindingTogether, FencesBeforeTheLastScanAndTheFirstWriteAndUnlocksAfterTheLast) {
  add_gpus(1);
  std::size_t events_at_look = 0;
  probe_.meanwhile = [&] { events_at_look = lock_.events.size(); };
  ASSERT_EQ(statuses(apply()), std::vector<Status>{Status::done});
  EXPECT_EQ(events_at_look, 1U) << "the look that counts is behind the fence";
  EXPECT_THAT(lock_.events,
              ElementsAre("take 0000:01:00.0 after 0 writes",
                          fmt::format("release 0000:01:00.0 after {} writes", kernel_.writes().size())));
}

// A driver may take long over its lock.
TEST_F(RebindingTogether, AsksTheDriversOfAllUnitsForTheirLocksAtOnce) {
  constexpr int kAll = 4;
  add_gpus(kAll);
  std::atomic<int> asked = 0;
  std::atomic<bool> alone = false;
  const auto late = std::chrono::steady_clock::now() + 10s;
  lock_.when_taken = [&] {
    ++asked;
    while (asked < kAll && !alone) {
      if (std::chrono::steady_clock::now() > late) alone = true;
      std::this_thread::yield();
    }
  };
  EXPECT_EQ(statuses(apply()), std::vector<Status>(kAll, Status::done));
  EXPECT_FALSE(alone);
}

TEST_F(RebindingTogether, RefusesWhatTheDriverRefusesAndWritesNothingThere) {
  add_gpus(2);
  lock_.refuses = {at("0000:01:00.0")};
  const auto outcome = apply();
  ASSERT_EQ(statuses(outcome), (std::vector<Status>{Status::refused, Status::done}));
  EXPECT_THAT(outcome.results[0].refusal.reasons, ElementsAre(HasSubstr("its driver says so")));
  EXPECT_EQ(kernel_.driver_of("0000:01:00.0"), "nouveau");
  EXPECT_EQ(kernel_.override_of("0000:01:00.0"), "");
  EXPECT_FALSE(kernel_.exists("run/ferry/hostd/moves/21.json"));
}

// As by a module that is loaded at boot. The first plan does not unbind the function, so no lock is taken.
TEST_F(RebindingTogether, RefusesAFunctionThatADriverTookAfterTheFirstPlan) {
  add_gpus(1);
  kernel_.add_function({.address = "0000:02:00.0", .group = 22});
  request_.accelerators.push_back(at("0000:02:00.0"));
  lock_.when_taken = [this] {
    EXPECT_TRUE(kernel_.write("sys/bus/pci/drivers/nouveau/bind", "0000:02:00.0"));
  };
  const auto outcome = apply();
  ASSERT_EQ(statuses(outcome), (std::vector<Status>{Status::refused, Status::done}));
  EXPECT_THAT(outcome.results[0].devices, ElementsAre(at("0000:02:00.0")));
  EXPECT_THAT(outcome.results[0].refusal.reasons,
              ElementsAre("the driver of 0000:02:00.0 changed meanwhile: it is on nouveau now"));
  EXPECT_THAT(outcome.results[0].refusal.hint, HasSubstr("the next run does it"));
  EXPECT_EQ(kernel_.driver_of("0000:02:00.0"), "nouveau");
  EXPECT_EQ(kernel_.override_of("0000:02:00.0"), "");
  EXPECT_FALSE(kernel_.exists("run/ferry/hostd/moves/22.json"));

  lock_.when_taken = {};
  EXPECT_EQ(statuses(apply()), (std::vector<Status>{Status::already, Status::done}));
  EXPECT_THAT(lock_.events, Contains(HasSubstr("take 0000:02:00.0")));
  EXPECT_EQ(kernel_.driver_of("0000:02:00.0"), "vfio-pci");
}

TEST_F(RebindingTogether, FreesTheDriversLockWhenTheRebindIsCalledOff) {
  add_gpus(1);
  probe_.meanwhile = [this] {
    probe_.always = {{.name = "late", .pid = 5, .what = "/dev/dri/card0", .pod_uid = {}}};
  };
  ASSERT_EQ(statuses(apply()), std::vector<Status>{Status::refused});
  EXPECT_THAT(lock_.events, Contains("release 0000:01:00.0 after 0 writes"));
  EXPECT_THAT(kernel_.writes(), IsEmpty());
  EXPECT_THAT(test::must(kernel_.list("run/ferry/hostd/unbind-locks")), IsEmpty());
}

TEST_F(RebindingTogether, SaysWhatTheRollbackCouldNotMend) {
  add_gpus(1);
  kernel_.fail_change(5, EIO);  // of the lock and the unit a record, override, unbind, bind
  // A kernel that takes every bind to the earlier driver and does nothing.
  class Liar final : public HostWriter {
   public:
    explicit Liar(FakeKernel& kernel) : kernel_(kernel) {}
    Result<> write(const std::filesystem::path& path, std::string_view value,
                   std::chrono::milliseconds deadline) override {
      if (path == "sys/bus/pci/drivers/nouveau/bind") return {};
      return kernel_.write(path, value, deadline);
    }
    Result<> load_module(std::string_view name, std::chrono::milliseconds deadline) override {
      return kernel_.load_module(name, deadline);
    }
    Result<> unload_module(std::string_view name, std::chrono::milliseconds deadline) override {
      return kernel_.unload_module(name, deadline);
    }
    Result<> run(const HostCommand& command, std::chrono::milliseconds deadline) override {
      return kernel_.run(command, deadline);
    }
    Result<std::string> read(const std::filesystem::path& path, std::chrono::milliseconds deadline) override {
      return kernel_.read(path, deadline);
    }

   private:
    FakeKernel& kernel_;
  } liar(kernel_);
  const RebindContext context{.host = &kernel_,
                              .writer = &liar,
                              .probe = &probe_,
                              .rules = test::gpu_rules(),
                              .on_step = {},
                              .driver_lock = &lock_};
  const auto outcome = apply_rebinds(context, request_, Direction::to_vfio).value();
  ASSERT_EQ(statuses(outcome), std::vector<Status>{Status::failed});
  const std::string message = test::error_of(outcome.results[0]).message;
  EXPECT_THAT(message, testing::Not(HasSubstr("was taken back")));
  EXPECT_THAT(message, HasSubstr("still to do: bind 0000:01:00.0 to nouveau"));
}

// What one unit is refused for must not find its group held until the others are done.
TEST_F(RebindingTogether, FreesARefusedUnitBeforeTheOthersRebind) {
  add_gpus(2);
  test::ProbeOf probe([](int look) {
    UseReport report;
    report.unknown = {look == 1 ? "libvirt: slow" : "libvirt: gone"};
    if (look > 1)
      report.users["0000:02:00.0"] = {
          {.kind = DeviceUser::Kind::virtual_machine, .name = "late", .pid = 5, .what = "its group"}};
    return report;
  });
  const RebindContext context{.host = &kernel_,
                              .writer = &kernel_,
                              .probe = &probe,
                              .rules = test::gpu_rules(),
                              .on_step = {},
                              .driver_lock = &lock_};
  const auto outcome = apply_rebinds(context, request_, Direction::to_vfio).value();
  ASSERT_EQ(statuses(outcome), (std::vector<Status>{Status::refused, Status::done}));
  EXPECT_THAT(lock_.events, Contains("release 0000:02:00.0 after 0 writes"));
  EXPECT_THAT(outcome.notes, ElementsAre("libvirt: slow", "libvirt: gone"));
}

// Asked to give its lock back, a driver that has not returned might keep that write too.
TEST_F(RebindingTogether, AsksADriverThatHangsNothingMore) {
  add_gpus(1);
  kernel_.hang_write({.path = "sys/bus/pci/drivers/nouveau/unbind", .value = "0000:01:00.0"});
  ASSERT_EQ(statuses(apply()), std::vector<Status>{Status::failed});
  EXPECT_THAT(lock_.events, ElementsAre("take 0000:01:00.0 after 0 writes"));
}

TEST_F(RebindingTogether, TakesNoLockForWhatIsNotUnbound) {
  add_gpus(1);
  apply();
  lock_.events.clear();
  EXPECT_EQ(statuses(apply()), std::vector<Status>{Status::already});
  EXPECT_EQ(statuses(apply(Direction::back)), std::vector<Status>{Status::done});
  EXPECT_THAT(lock_.events, IsEmpty()) << "a vfio group is fenced by its node";
}

TEST_F(RebindingTogether, RebindsAScreenOnlyWhenForced) {
  add_gpus(1);
  probe_.always = {
      {.kind = DeviceUser::Kind::boot_display, .name = "boot_vga", .pid = {}, .what = {}, .pod_uid = {}}};
  const auto outcome = apply();
  ASSERT_EQ(statuses(outcome), std::vector<Status>{Status::refused});
  EXPECT_THAT(outcome.results[0].refusal.hint, HasSubstr("--force"));
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  request_.force = true;
  EXPECT_EQ(statuses(apply()), std::vector<Status>{Status::done});
}

// Each other kind of device user stands, forced or not.
class ForcedAgainst : public RebindingTogether, public testing::WithParamInterface<DeviceUser::Kind> {};

TEST_P(ForcedAgainst, ADeviceUserThatIsNoScreenIsRefusedAllTheSame) {
  add_gpus(1);
  request_.force = true;
  probe_.always = {{.kind = GetParam(), .name = "x", .pid = {}, .what = "it", .pod_uid = {}}};
  const auto outcome = apply();
  ASSERT_EQ(statuses(outcome), std::vector<Status>{Status::refused});
  EXPECT_FALSE(outcome.results[0].refusal.hint.empty());
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

/// All that have a word, so that a new kind is among them.
std::vector<DeviceUser::Kind> no_screens() {
  std::vector<DeviceUser::Kind> out;
  for (int number = 0; !text(static_cast<DeviceUser::Kind>(number)).empty(); ++number) {
    const auto kind = static_cast<DeviceUser::Kind>(number);
    if (kind != DeviceUser::Kind::boot_display && kind != DeviceUser::Kind::framebuffer) out.push_back(kind);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Kinds, ForcedAgainst, testing::ValuesIn(no_screens()),
                         [](const auto& kind) { return std::string(text(kind.param)); });

}  // namespace
}  // namespace ferry::vfio
