// SPDX-License-Identifier: Apache-2.0
// Binds that need nvidia-persistenced to close single GPUs, while it serves others.
#include <cerrno>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vfio/machines.h"
#include "tests/vfio/rebinds.h"
#include "vfio/quiesce/stopped_services.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;
using test::statuses;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using Status = RebindResult::Status;

constexpr const char* kFirst = "0000:01:00.0";
constexpr const char* kSecond = "0000:02:00.0";
constexpr const char* kThird = "0000:03:00.0";
constexpr const char* kRecord = "run/ferry/hostd/stopped-services.json";

/// The daemon. Its state lies in the tree, so that it outlives a process: daemon/ADDRESS is
/// whether the daemon wants that GPU, daemon/running whether it runs.
class Daemon final : public ServiceManager, public PersistenceSwitch {
 public:
  explicit Daemon(FakeKernel& kernel) : kernel_(&kernel) { kernel.file("daemon/running", "1"); }
  void add(const std::string& gpu) const { kernel_->file("daemon/" + gpu + "/desired", "1"); }
  bool wants(const std::string& gpu) const {
    return kernel_->read_attribute("daemon/" + gpu + "/desired").value_or("0") == "1";
  }
  bool runs() const { return kernel_->read_attribute("daemon/running").value() == "1"; }
  bool holds(const std::string& gpu) const {
    return runs() && (wants(gpu) || holds_on) && kernel_->driver_of(gpu) == "nvidia";
  }
  Result<> set(const PciAddress& gpu, bool on) override {
    orders.push_back(gpu.text() + (on ? " on" : " off"));
    if (tool_fails) return fail(Errc::failed, "nvidia-persistenced has answered 3");
    return write("daemon/" + gpu.text() + "/desired", on);
  }
  Result<> stop(const std::string& unit) override {
    orders.push_back("stop " + unit);
    return write("daemon/running", false);
  }
  Result<> start(const std::string& unit) override {
    orders.push_back("start " + unit);
    return write("daemon/running", true);
  }

  bool in_container = false;
  bool tool_fails = false;
  bool holds_on = false;  ///< whatever the tool says
  std::vector<std::string> orders;

 private:
  Result<> write(const std::string& path, bool on) { return kernel_->write(path, on ? "1" : "0"); }

  FakeKernel* kernel_;
};

class DaemonProbe final : public UseProbe {
 public:
  explicit DaemonProbe(const Daemon& daemon) : daemon_(&daemon) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override {
    UseReport report;
    if (++looks == fails_at) return fail(Errc::failed, "no answer");
    for (const UseQuestion& question : questions) {
      if (!daemon_->holds(question.device)) continue;
      DeviceUser user{.name = "nvidia-persiste", .pid = 77, .what = "/dev/nvidia0"};
      if (daemon_->in_container) {
        user.pod_uid = "0f2c1d3e-1111-2222-3333-444455556666";
        user.closes_on_request = true;
      } else {
        user.service = kPersistenced;
      }
      report.users[question.device] = {user};
    }
    return report;
  }

  int looks = 0;
  int fails_at = 0;  ///< 0: none

 private:
  const Daemon* daemon_;
};

/// Three GPUs, each in a group of its own, of which two are to be bound.
struct Host {
  Host() {
    kernel.add_driver({.name = "nvidia", .ids = {"10de:2684"}});
    unsigned group = 21;
    for (const char* address : {kFirst, kSecond, kThird}) {
      kernel.add_function({.address = address, .group = group++, .driver = "nvidia"});
      daemon.add(address);
    }
  }
  RebindContext context() {
    return {.host = &kernel,
            .writer = &kernel,
            .probe = &probe,
            .rules = test::gpu_rules(),
            .on_step = {},
            .service_manager = &daemon,
            .persistence = &daemon};
  }
  RebindOutcome apply(Direction direction = Direction::to_vfio) {
    return test::must(apply_rebinds(context(), request, direction));
  }
  /// The daemon runs and wants every GPU that it could hold; what is owed is recorded.
  void expect_settled() const {
    EXPECT_TRUE(daemon.runs());
    bool owed = false;
    for (const char* gpu : {kFirst, kSecond, kThird}) {
      EXPECT_TRUE(daemon.wants(gpu) || kernel.driver_of(gpu) == "vfio-pci") << gpu;
      owed |= !daemon.wants(gpu);
    }
    EXPECT_EQ(kernel.exists(kRecord), owed);
  }

  FakeKernel kernel;
  Daemon daemon{kernel};
  DaemonProbe probe{daemon};
  RebindRequest request{
      .accelerators = {at(kFirst), at(kSecond)}, .with = {}, .untouchable = {}, .release = default_release()};
};

TEST(RebindPersistence, IsSwitchedForTheGpusThatRebindAndTheServiceRunsOn) {
  Host host;
  const auto outcome = host.apply();
  EXPECT_EQ(statuses(outcome), std::vector<Status>(2, Status::done));
  EXPECT_THAT(host.daemon.orders, ElementsAre("0000:01:00.0 off", "0000:02:00.0 off"));
  EXPECT_EQ(outcome.results[0].rebind.steps.front().text(), "switch persistence of 0000:01:00.0 off");
  EXPECT_TRUE(host.daemon.holds(kThird));
  host.expect_settled();

  host.kernel.forget_changes();
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>(2, Status::already));
  EXPECT_THAT(host.kernel.changes(), IsEmpty());
}

TEST(RebindPersistence, ComesBackWithItsGpu) {
  Host host;
  host.apply();
  host.daemon.orders.clear();
  host.request.accelerators = {at(kFirst)};
  EXPECT_THAT(host.apply(Direction::back).errors, IsEmpty());
  EXPECT_THAT(host.daemon.orders, ElementsAre("0000:01:00.0 on"));
  EXPECT_TRUE(host.daemon.holds(kFirst));
  host.expect_settled();
}

TEST(RebindPersistence, OfADriverContainerIsSwitchedForEachGpu) {
  Host host;
  host.daemon.in_container = true;
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>(2, Status::done));
  EXPECT_TRUE(host.daemon.holds(kThird));
  host.expect_settled();
  host.request.accelerators = {at(kThird)};
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>{Status::done}) << "the last one, too";
  host.request.accelerators = {at(kFirst), at(kSecond), at(kThird)};
  EXPECT_EQ(statuses(host.apply(Direction::back)), std::vector<Status>(3, Status::done));
  host.expect_settled();
  EXPECT_THAT(host.daemon.orders,
              testing::UnorderedElementsAre("0000:01:00.0 off", "0000:02:00.0 off", "0000:03:00.0 off",
                                            "0000:01:00.0 on", "0000:02:00.0 on", "0000:03:00.0 on"));
}

TEST(RebindPersistence, OfADriverContainerThatRefusesKeepsTheGpu) {
  Host host;
  host.daemon.in_container = true;
  host.daemon.tool_fails = true;
  host.request.accelerators = {at(kFirst)};
  const auto outcome = host.apply();
  ASSERT_EQ(statuses(outcome), std::vector<Status>{Status::refused});
  EXPECT_THAT(outcome.results[0].refusal.reasons,
              ElementsAre("switch persistence of 0000:01:00.0 off: nvidia-persistenced has answered 3"));
  EXPECT_EQ(host.kernel.driver_of(kFirst), "nvidia");
}

TEST(RebindPersistence, OfADriverContainerThatHoldsOnKeepsTheGpu) {
  Host host;
  host.daemon.in_container = true;
  host.daemon.holds_on = true;
  host.request.accelerators = {at(kFirst)};
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>{Status::refused});
  EXPECT_EQ(host.kernel.driver_of(kFirst), "nvidia");
  EXPECT_THAT(host.daemon.orders, ElementsAre("0000:01:00.0 off", "0000:01:00.0 on"));
  host.expect_settled();
}

TEST(RebindPersistence, StopsTheServiceWhenAllItsGpusRebind) {
  Host host;
  host.request.accelerators.push_back(at(kThird));
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>(3, Status::done));
  EXPECT_THAT(host.daemon.orders,
              ElementsAre("stop nvidia-persistenced.service", "start nvidia-persistenced.service"));
}

// It is asked about GPUs alone.
TEST(RebindPersistence, StopsTheServiceThatHoldsWhatIsNoGpu) {
  Host host;
  host.kernel.add_function(test::kinds::kAudio, "0000:01:00.1", 21, "nvidia");
  host.daemon.add("0000:01:00.1");
  host.request.accelerators = {at(kFirst)};
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>{Status::done});
  EXPECT_THAT(host.daemon.orders,
              ElementsAre("stop nvidia-persistenced.service", "start nvidia-persistenced.service"));
}

TEST(RebindPersistence, StopsTheServiceWhenTheToolFails) {
  Host host;
  host.daemon.tool_fails = true;
  const auto outcome = host.apply();
  EXPECT_EQ(statuses(outcome), std::vector<Status>(2, Status::done));
  EXPECT_THAT(outcome.errors, IsEmpty());
  EXPECT_THAT(host.daemon.orders,
              ElementsAre("0000:01:00.0 off", "0000:02:00.0 off", "stop nvidia-persistenced.service",
                          "start nvidia-persistenced.service"));
  EXPECT_TRUE(host.kernel.exists(kRecord)) << "a tool that failed may have switched it off all the same";

  const auto back = host.apply(Direction::back);
  EXPECT_EQ(statuses(back), std::vector<Status>(2, Status::done));
  EXPECT_THAT(back.errors, IsEmpty());
  EXPECT_THAT(back.notes,
              Contains(testing::HasSubstr("see whether it is on: nvidia-smi -q -i 0000:01:00.0")));
  EXPECT_FALSE(host.kernel.exists(kRecord)) << "asked again, it would fail again";
}

TEST(RebindPersistence, StopsTheServiceThatHoldsOn) {
  Host host;
  host.daemon.holds_on = true;
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>(2, Status::done));
  EXPECT_THAT(host.daemon.orders, Contains("stop nvidia-persistenced.service").Times(1));
  EXPECT_TRUE(host.daemon.runs());
}

TEST(RebindPersistence, StopsNoServiceForALookThatFails) {
  for (const bool in_container : {true, false}) {
    Host host;
    host.daemon.in_container = in_container;
    host.probe.fails_at = 2;  // after the plan
    EXPECT_EQ(statuses(host.apply()), std::vector<Status>(2, Status::done));
    EXPECT_THAT(host.daemon.orders, ElementsAre("0000:01:00.0 off", "0000:02:00.0 off"));
    EXPECT_EQ(host.probe.looks, 3) << "the one behind the fence decides";
  }
}

TEST(RebindPersistence, IsLeftAloneByWhoMayReleaseNothing) {
  Host host;
  host.request.release = {};
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>(2, Status::refused));
  EXPECT_THAT(host.daemon.orders, IsEmpty());
}

TEST(RebindPersistence, FailsAGpuWhoseToolDoesNotReturnAndAsksNothingMore) {
  Host host;
  host.kernel.hang_change(2);  // after the record
  const auto outcome = host.apply();
  ASSERT_EQ(statuses(outcome), (std::vector<Status>{Status::failed, Status::done}));
  EXPECT_EQ(test::error_of(outcome.results[0]).code, Errc::stuck);
  EXPECT_EQ(host.kernel.driver_of(kFirst), "nvidia");
  EXPECT_EQ(host.kernel.driver_of(kSecond), "vfio-pci");
  EXPECT_THAT(host.daemon.orders, ElementsAre("0000:01:00.0 off", "0000:02:00.0 off"));
  EXPECT_THAT(outcome.notes, Contains(testing::HasSubstr("/run/ferry/stuck-writes")));
  EXPECT_TRUE(host.kernel.exists(kRecord));
  host.kernel.release_stuck();
  EXPECT_THAT(host.apply().errors, IsEmpty());
  host.expect_settled();
}

TEST(UnreadableStuckWrites, KeepServicesAndModulesAsTheyAre) {
  Host host;
  const Releasable gpu{.kind = Releasable::Kind::persistence, .name = kFirst};
  test::must(write_service_record(host.kernel, {{gpu, StoppedService::to_start}}));
  host.kernel.file("run/ferry/stuck-writes/700.json/in-its-place", "");
  host.kernel.forget_changes();
  StoppedServices services(host.context());
  test::must(services.take_over());
  EXPECT_THAT(services.start_all().notes, Contains(testing::HasSubstr("/run/ferry/stuck-writes")));
  const auto loaded = perform(host.context(), {.kind = Step::Kind::load_module, .value = "vfio_pci"});
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, testing::HasSubstr("700.json"));
  EXPECT_THAT(host.daemon.orders, IsEmpty());
  EXPECT_THAT(host.kernel.changes(), IsEmpty());
  EXPECT_TRUE(host.kernel.exists(kRecord));
}

TEST(RebindPersistence, IsSwitchedOnAgainForAGpuThatCouldNotRebind) {
  Host host;
  host.request.accelerators = {at(kFirst)};
  host.kernel.fail_change(3, EIO);  // record, switch, module
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>{Status::failed});
  EXPECT_THAT(host.daemon.orders, ElementsAre("0000:01:00.0 off", "0000:01:00.0 on"));
  EXPECT_TRUE(host.daemon.holds(kFirst));
  host.expect_settled();
}

TEST(RebindPersistence, EveryChangeThatFailsIsMadeGoodOrRecorded) {
  const std::size_t count = test::changes_of_an_undisturbed_run<Host>();
  ASSERT_GT(count, 8U);
  for (std::size_t n = 1; n <= count; ++n) {
    SCOPED_TRACE(n);
    Host host;
    host.kernel.fail_change(n, EIO);
    host.apply();
    host.apply();
    host.apply(Direction::back);
    host.expect_settled();
    EXPECT_TRUE(host.daemon.holds(kFirst));
  }
}

TEST(RebindPersistence, AnyChangeMayBeTheLastBeforeDeathAndTheNextRunMakesItGood) {
  test::die_at_every_change<Host>([](const Host& host, Direction) { host.expect_settled(); });
}

}  // namespace
}  // namespace ferry::vfio
