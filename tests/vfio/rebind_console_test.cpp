// SPDX-License-Identifier: Apache-2.0
// Binds of GPUs that nvidia_drm holds for a console of its own: refused unless the module may be unloaded and
// no GPU that stays needs it; loaded again for each GPU that is not bound.
#include <cerrno>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vfio/machines.h"
#include "tests/vfio/rebinds.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;
using test::statuses;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Status = RebindResult::Status;

constexpr const char* kFirst = "0000:01:00.0";
constexpr const char* kSecond = "0000:02:00.0";
constexpr const char* kModule = "sys/module/nvidia_drm";
constexpr const char* kRecord = "run/ferry/hostd/stopped-services.json";

/// While the module is loaded, it holds every GPU on driver nvidia.
class ConsoleProbe final : public UseProbe {
 public:
  explicit ConsoleProbe(const FakeKernel& kernel) : kernel_(&kernel) {}
  std::map<std::string, DeviceUser> others;
  Result<UseReport> look(std::span<const UseQuestion> questions) override {
    UseReport report;
    for (const UseQuestion& question : questions) {
      auto& users = report.users[question.device];
      if (const auto other = others.find(question.device); other != others.end())
        users.push_back(other->second);
      if (!kernel_->exists(kModule) || kernel_->driver_of(question.device) != "nvidia") continue;
      DeviceUser console{.kind = DeviceUser::Kind::console,
                         .name = "nvidia_drm",
                         .pid = {},
                         .what = "/dev/fb0",
                         .pod_uid = {}};
      for (const char* gpu : {kFirst, kSecond}) {
        if (gpu != question.device && kernel_->driver_of(gpu) == "nvidia") console.also.insert(gpu);
      }
      users.push_back(console);
    }
    return report;
  }

 private:
  const FakeKernel* kernel_;
};

/// Two GPUs, each in a group of its own, and no service manager.
struct Host {
  Host() {
    kernel.add_driver({.name = "nvidia", .ids = {"10de:2684"}});
    kernel.add_plain_module("nvidia_drm", {{"modeset", "Y"}, {"fbdev", "Y"}});
    unsigned group = 21;
    for (const char* address : {kFirst, kSecond}) {
      kernel.add_function({.address = address, .group = group++, .driver = "nvidia"});
      request.accelerators.push_back(at(address));
    }
  }
  RebindContext context() {
    return {.host = &kernel, .writer = &kernel, .probe = &probe, .rules = test::gpu_rules(), .on_step = {}};
  }
  RebindOutcome apply(Direction direction = Direction::to_vfio) {
    return apply_rebinds(context(), request, direction).value();
  }
  /// Loaded again for the GPUs that are left, and nothing is owed.
  void expect_settled() const {
    const bool left = kernel.driver_of(kFirst) == "nvidia" || kernel.driver_of(kSecond) == "nvidia";
    EXPECT_EQ(kernel.exists(kModule), left);
    EXPECT_EQ(kernel.exists(kRecord), !left) << "it is owed to the first GPU that comes back";
  }

  FakeKernel kernel;
  ConsoleProbe probe{kernel};
  RebindRequest request{.accelerators = {}, .with = {}, .untouchable = {}, .release = {"nvidia_drm"}};
};

std::vector<std::string> module_changes(const FakeKernel& kernel) {
  std::vector<std::string> out;
  for (const auto& change : kernel.changes()) {
    if (change.value == "nvidia_drm") out.push_back(change.path);
  }
  return out;
}

TEST(RebindConsole, IsRefusedOffTheListWithTheFlagAsHint) {
  Host host;
  host.request.release = default_release();
  const auto outcome = host.apply();
  ASSERT_EQ(statuses(outcome), std::vector<Status>(2, Status::refused));
  EXPECT_THAT(outcome.results[0].refusal.reasons,
              ElementsAre("0000:01:00.0 is in use: kernel module nvidia_drm (modeset) holds /dev/fb0"));
  EXPECT_THAT(outcome.results[0].refusal.hint, HasSubstr("--release nvidia_drm"));
  EXPECT_THAT(host.kernel.changes(), IsEmpty());
}

TEST(RebindConsole, IsNotForced) {
  Host host;
  host.request.release = {};
  host.request.force = true;
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>(2, Status::refused));
}

TEST(RebindConsole, IsQuiescedOnceForAllGpusAndComesBackWithTheFirst) {
  Host host;
  const auto outcome = host.apply();
  EXPECT_EQ(statuses(outcome), std::vector<Status>(2, Status::done));
  EXPECT_EQ(outcome.results[0].rebind.steps.front().text(), "unload module nvidia_drm");
  EXPECT_EQ(outcome.results[0].rebind.steps.back().text(), "load module nvidia_drm again");
  EXPECT_THAT(module_changes(host.kernel), ElementsAre("unload"));
  host.expect_settled();

  host.kernel.forget_changes();
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>(2, Status::already));
  EXPECT_THAT(host.kernel.changes(), IsEmpty());

  host.request.accelerators.pop_back();
  EXPECT_EQ(statuses(host.apply(Direction::back)), std::vector<Status>{Status::done});
  EXPECT_THAT(module_changes(host.kernel), ElementsAre("module"));
  host.expect_settled();
}

TEST(RebindConsole, IsRefusedWhileAnotherGpuNeedsIt) {
  Host host;
  host.request.accelerators.pop_back();
  const auto outcome = host.apply();
  ASSERT_EQ(statuses(outcome), std::vector<Status>{Status::refused});
  EXPECT_THAT(outcome.results[0].refusal.reasons,
              ElementsAre("nvidia_drm is not unloaded: it also serves 0000:02:00.0, which stays on its "
                          "driver"));
  EXPECT_FALSE(outcome.results[0].refusal.hint.empty());
  EXPECT_THAT(host.kernel.changes(), IsEmpty());
}

constexpr const char* kTenantHasIt = "VM tenant (pid 9) holds it";

// Who uses it would else let go for nothing.
TEST(RebindConsole, IsReportedBesideTheUsersOfTheGpu) {
  Host host;
  host.probe.others[kFirst] = {
      .kind = DeviceUser::Kind::virtual_machine, .name = "tenant", .pid = 9, .what = "it", .pod_uid = {}};
  const auto reasons = [&] { return host.apply().results.at(0).refusal.reasons; };
  EXPECT_THAT(reasons(), ElementsAre(HasSubstr(kTenantHasIt))) << "with both it could go";
  host.request.accelerators.pop_back();
  EXPECT_THAT(reasons(), ElementsAre(HasSubstr(kTenantHasIt), HasSubstr("it also serves 0000:02:00.0")));
  EXPECT_THAT(host.kernel.changes(), IsEmpty());
}

// That one GPU is refused refuses the other.
TEST(RebindConsole, IsRefusedWithTheOtherGpuThatAVmHas) {
  Host host;
  host.probe.others[kSecond] = {
      .kind = DeviceUser::Kind::virtual_machine, .name = "tenant", .pid = 9, .what = "it", .pod_uid = {}};
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>(2, Status::refused));
  EXPECT_THAT(host.kernel.changes(), IsEmpty());
}

/// Holds the first GPU by a service that nobody can stop.
class Unstoppable final : public ServiceManager {
 public:
  Result<> stop(const std::string& /*unit*/) override { return fail(Errc::failed, "the job timed out"); }
  Result<> start(const std::string& /*unit*/) override { return {}; }
};

TEST(RebindConsole, StaysWhenAGpuOfItsDoesNotGetFreeAfterAll) {
  Host host;
  Unstoppable services;
  host.request.release = {"nvidia_drm", "nvidia-dcgm.service"};
  host.probe.others[kFirst] = {.name = "nv-hostengine",
                               .pid = 9,
                               .what = "/dev/nvidia0",
                               .pod_uid = {},
                               .service = "nvidia-dcgm.service"};
  RebindContext context = host.context();
  context.service_manager = &services;
  const auto outcome = apply_rebinds(context, host.request, Direction::to_vfio).value();
  ASSERT_EQ(statuses(outcome), (std::vector<Status>{Status::failed, Status::refused}));
  EXPECT_THAT(outcome.results[1].refusal.reasons,
              ElementsAre("nvidia_drm is not unloaded: another GPU that it serves stays"));
  EXPECT_TRUE(host.kernel.exists(kModule));
  EXPECT_THAT(module_changes(host.kernel), IsEmpty());
}

TEST(RebindConsole, IsNotLoadedAgainWhileAnEarlierLoadHangs) {
  Host host;
  host.apply();
  const auto before = host.kernel.changes().size();
  host.kernel.hang_write({.path = "module", .value = "nvidia_drm"});
  (void)host.apply(Direction::back);
  const auto after_hang = host.kernel.changes().size();
  EXPECT_GT(after_hang, before);
  const auto again = host.apply(Direction::back);
  EXPECT_THAT(again.notes, testing::Contains(HasSubstr("waits, since an earlier order")));
}

TEST(RebindConsole, GoesForTheLastGpuThatIsLeft) {
  Host host;
  host.request.accelerators = {at(kSecond)};
  host.kernel.remove_function(kFirst);
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>{Status::done});
}

TEST(RebindConsole, FailsBothWhenSomebodyUsesTheModule) {
  Host host;
  host.kernel.fail_change(2, EAGAIN);  // after the record
  const auto outcome = host.apply();
  ASSERT_EQ(statuses(outcome), std::vector<Status>(2, Status::failed));
  EXPECT_THAT(test::error_of(outcome.results[0]).message, HasSubstr("unload module nvidia_drm"));
  EXPECT_THAT(host.kernel.writes(), IsEmpty());
  host.expect_settled();
}

TEST(RebindConsole, LeavesAModuleAloneThatDoesNotReturn) {
  Host host;
  host.kernel.hang_change(2);
  const auto outcome = host.apply();
  ASSERT_EQ(statuses(outcome), std::vector<Status>(2, Status::failed));
  EXPECT_EQ(test::error_of(outcome.results[0]).code, Errc::stuck);
  EXPECT_THAT(outcome.notes, Contains(HasSubstr("/run/ferry/stuck-writes")));
  EXPECT_THAT(module_changes(host.kernel), IsEmpty()) << "a second write would only queue behind it";
  EXPECT_TRUE(host.kernel.exists(kRecord));

  const auto again = host.apply();
  EXPECT_EQ(test::error_of(again.results.at(0)).code, Errc::stuck);
  EXPECT_THAT(test::must(host.kernel.list("run/ferry/stuck-writes")), testing::SizeIs(1))
      << "not by another run either";
  host.kernel.release_stuck();
  EXPECT_THAT(test::must(start_what_was_stopped(host.context())).errors, IsEmpty());
  host.expect_settled();
}

TEST(RebindConsole, ComesBackForAGpuThatCouldNotRebind) {
  Host host;
  host.kernel.fail_for_good({.path = "sys/bus/pci/drivers/nvidia/unbind", .value = kSecond}, EIO);
  EXPECT_EQ(statuses(host.apply()), (std::vector<Status>{Status::done, Status::failed}));
  EXPECT_THAT(module_changes(host.kernel), ElementsAre("unload", "module"));
}

TEST(RebindConsole, EveryChangeThatFailsLeavesTheModuleLoadedOrRecorded) {
  const std::size_t count = test::changes_of_an_undisturbed_run<Host>();
  ASSERT_GT(count, 8U);
  for (std::size_t n = 1; n <= count; ++n) {
    SCOPED_TRACE(n);
    Host host;
    host.kernel.fail_change(n, EIO);
    host.apply();
    EXPECT_TRUE(host.kernel.exists(kModule) || host.kernel.exists(kRecord));
    EXPECT_THAT(statuses(host.apply()), testing::Each(testing::AnyOf(Status::done, Status::already)));
    host.apply(Direction::back);
    host.expect_settled();
  }
}

TEST(RebindConsole, AnyChangeMayBeTheLastBeforeDeathAndTheNextRunLoadsTheModule) {
  test::die_at_every_change<Host>([](const Host& host, Direction) { host.expect_settled(); });
}

}  // namespace
}  // namespace ferry::vfio
