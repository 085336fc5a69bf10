// SPDX-License-Identifier: Apache-2.0
// Binds that need a service of the host to close the device: stopped before, started again whatever happens,
// even to us.
#include <algorithm>
#include <cerrno>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/file_services.h"
#include "tests/vfio/machines.h"
#include "tests/vfio/rebinds.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;
using test::FileServices;
using test::statuses;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using Status = RebindResult::Status;

constexpr const char* kDaemon = "nvidia-persistenced.service";
constexpr const char* kDcgm = "nvidia-dcgm.service";
constexpr const char* kRecord = "run/ferry/hostd/stopped-services.json";

/// Services that run hold the devices they are said to hold, as long as those have a driver of the host.
class ServiceProbe final : public UseProbe {
 public:
  ServiceProbe(const FakeKernel& kernel, const FileServices& services)
      : kernel_(&kernel), services_(&services) {}
  std::map<std::string, std::vector<std::string>> held;        ///< device: units
  std::map<std::string, std::vector<DeviceUser>> others = {};  ///< device: whoever else
  std::function<void()> before_second_look;

  static DeviceUser process_of(const std::string& unit) {
    return {.name = "daemon", .pid = 77, .what = "/dev/nvidia0", .pod_uid = {}, .service = unit};
  }
  Result<UseReport> look(std::span<const UseQuestion> questions) override {
    if (++looks_ == 2 && before_second_look) before_second_look();
    UseReport report;
    for (const UseQuestion& question : questions) {
      auto& users = report.users[question.device];
      if (const auto found = others.find(question.device); found != others.end()) users = found->second;
      const auto units = held.find(question.device);
      if (units == held.end() || kernel_->driver_of(question.device) == "vfio-pci") continue;
      for (const std::string& unit : units->second) {
        if (services_->runs(unit)) users.push_back(process_of(unit));
      }
    }
    return report;
  }

 private:
  const FakeKernel* kernel_;
  const FileServices* services_;
  int looks_ = 0;
};

/// GPUs 0000:01:00.0, 0000:02:00.0, … each in a group of its own, that nvidia-persistenced holds.
struct Host {
  explicit Host(unsigned gpus) {
    test::add_host_drivers(kernel);
    services.add(kDaemon);
    services.add(kDcgm);
    for (unsigned i = 1; i <= gpus; ++i) {
      const std::string address = fmt::format("0000:{:02x}:00.0", i);
      kernel.add_function({.address = address, .group = 20 + i, .driver = "nouveau"});
      request.accelerators.push_back(at(address));
      probe.held[address] = {kDaemon};
    }
  }
  RebindContext context() {
    return {.host = &kernel,
            .writer = &kernel,
            .probe = &probe,
            .rules = test::gpu_rules(),
            .on_step = [this](const Step& step) { logged.push_back(step.text()); },
            .service_manager = service_manager};
  }
  RebindOutcome apply(Direction direction = Direction::to_vfio) {
    return apply_rebinds(context(), request, direction).value();
  }
  RebindPreview preview() { return preview_rebinds(context(), request, Direction::to_vfio).value(); }

  FakeKernel kernel;
  FileServices services{kernel};
  ServiceProbe probe{kernel, services};
  ServiceManager* service_manager = &services;
  RebindRequest request{
      .accelerators = {}, .with = {}, .untouchable = {}, .release = {"nvidia-persistenced.service"}};
  std::vector<std::string> logged;
};

std::vector<std::string> texts(const std::vector<Step>& steps) {
  std::vector<std::string> out;
  out.reserve(steps.size());
  for (const Step& step : steps) out.push_back(step.text());
  return out;
}

TEST(RebindRelease, NamesTheLineThatKeepsAModuleFromBeingLoaded) {
  Host host(1);
  host.kernel.file("etc/modprobe.d/no-vms.conf", "install vfio-pci /bin/false\n");
  host.kernel.fail_for_good({.path = "module", .value = "vfio_pci"}, EFAULT);
  const auto outcome = apply_rebinds(host.context(), host.request, Direction::to_vfio).value();
  const Error error = outcome.results.at(0).error.value();
  EXPECT_EQ(error.message, "load module vfio_pci: Bad address");
  EXPECT_EQ(
      error.hint,
      "/etc/modprobe.d/no-vms.conf:1 runs /bin/false in place of loading vfio_pci: take that line out, also "
      "of the initramfs");
}

TEST(RebindRelease, IsPlannedAroundAllOtherSteps) {
  Host host(1);
  const auto plan = host.preview().plan;
  ASSERT_THAT(plan.refusals, IsEmpty());
  EXPECT_THAT(
      texts(plan.rebinds.at(0).steps),
      ElementsAre("stop nvidia-persistenced.service", "load module vfio_pci",
                  "set driver_override of 0000:01:00.0 to vfio-pci", "unbind 0000:01:00.0 from nouveau",
                  "bind 0000:01:00.0 to vfio-pci", "start nvidia-persistenced.service"));
  EXPECT_THAT(host.services.orders, IsEmpty());
  EXPECT_THAT(host.kernel.changes(), IsEmpty());
}

TEST(RebindRelease, StopsOnceForAllGroupsAndStartsOnceAfterThem) {
  Host host(4);
  host.request.accelerators.pop_back();  // one stays with the host
  const auto outcome = host.apply();
  EXPECT_EQ(statuses(outcome), std::vector<Status>(3, Status::done));
  EXPECT_THAT(host.services.orders,
              ElementsAre("stop nvidia-persistenced.service", "start nvidia-persistenced.service"));
  ASSERT_THAT(host.logged, SizeIs(testing::Gt(3U)));
  EXPECT_EQ(host.logged.front(), "stop nvidia-persistenced.service");
  EXPECT_EQ(host.logged.back(), "start nvidia-persistenced.service");
  for (const RebindResult& result : outcome.results) {
    EXPECT_EQ(result.rebind.steps.front().kind, Step::Kind::quiesce);
    EXPECT_EQ(result.rebind.steps.back().kind, Step::Kind::resume);
  }
  EXPECT_TRUE(host.services.runs(kDaemon));
  EXPECT_FALSE(host.kernel.exists(kRecord));
}

TEST(RebindRelease, RecordsBeforeTheStopAndForgetsAfterTheStart) {
  Host host(1);
  host.apply();
  const auto changes = host.kernel.changes();
  const auto place = [&](const std::string& path, const std::string& value) {
    return std::ranges::find_if(changes,
                                [&](const test::HostChange& change) {
                                  return change.path == path && (value.empty() || change.value == value);
                                }) -
           changes.begin();
  };
  const std::string state = std::string("services/") + kDaemon;
  EXPECT_LT(place(kRecord, ""), place(state, "stopped"));
  EXPECT_LT(place(state, "stopped"), place("module", ""));
  EXPECT_LT(place(state, "running"), place(std::string("remove ") + kRecord, ""));
}

TEST(RebindRelease, IsNothingTheSecondTime) {
  Host host(2);
  host.apply();
  host.services.orders.clear();
  host.kernel.forget_changes();
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>(2, Status::already));
  EXPECT_THAT(host.services.orders, IsEmpty());
  EXPECT_THAT(host.kernel.changes(), IsEmpty());
}

TEST(RebindRelease, IsRefusedOffTheListWithTheFlagAsHint) {
  Host host(1);
  host.request.release = {};
  const auto outcome = host.apply();
  ASSERT_EQ(statuses(outcome), std::vector<Status>{Status::refused});
  EXPECT_THAT(
      outcome.results[0].refusal.reasons,
      ElementsAre("0000:01:00.0 is in use: process daemon (pid 77) of nvidia-persistenced.service holds "
                  "/dev/nvidia0"));
  EXPECT_THAT(outcome.results[0].refusal.hint, HasSubstr("--release nvidia-persistenced.service"));
  EXPECT_THAT(host.services.orders, IsEmpty());
}

TEST(RebindRelease, IsRefusedWithoutAServiceManager) {
  Host host(1);
  host.service_manager = nullptr;
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>{Status::refused});
  EXPECT_THAT(host.kernel.changes(), IsEmpty());
}

// Whatever else holds the device, the service is not stopped for nothing.
TEST(RebindRelease, StopsNothingForAGroupThatSomebodyElseHolds) {
  for (const auto kind : {DeviceUser::Kind::process, DeviceUser::Kind::virtual_machine, DeviceUser::Kind::pod,
                          DeviceUser::Kind::attached, DeviceUser::Kind::fabric}) {
    Host host(1);
    host.probe.others["0000:01:00.0"] = {
        {.kind = kind, .name = "x", .pid = 9, .what = "/dev/nvidia0", .pod_uid = {}}};
    EXPECT_EQ(statuses(host.apply()), std::vector<Status>{Status::refused});
    EXPECT_THAT(host.services.orders, IsEmpty());
    EXPECT_THAT(host.kernel.changes(), IsEmpty());
  }
}

TEST(RebindRelease, NeverStopsAVmThoughItsUnitIsListed) {
  Host host(1);
  DeviceUser machine = ServiceProbe::process_of(kDaemon);
  machine.kind = DeviceUser::Kind::virtual_machine;
  const DeviceUser engine = ServiceProbe::process_of("libvirtd.service");
  for (const DeviceUser& user : {machine, engine}) {
    host.request.release = {kDaemon, "libvirtd.service"};
    host.probe.held.clear();
    host.probe.others["0000:01:00.0"] = {user};
    EXPECT_EQ(statuses(host.apply()), std::vector<Status>{Status::refused});
    EXPECT_THAT(host.services.orders, IsEmpty());
  }
}

TEST(RebindRelease, ServesTheGroupsThatCanRebindThoughOneCannot) {
  Host host(2);
  host.probe.others["0000:01:00.0"] = {{.kind = DeviceUser::Kind::virtual_machine,
                                        .name = "x",
                                        .pid = 9,
                                        .what = "/dev/vfio/1",
                                        .pod_uid = {}}};
  EXPECT_EQ(statuses(host.apply()), (std::vector<Status>{Status::refused, Status::done}));
  EXPECT_EQ(host.kernel.driver_of("0000:01:00.0"), "nouveau");
  EXPECT_TRUE(host.services.runs(kDaemon));
}

TEST(RebindRelease, RefusesAndStartsAgainWhenTheServiceKeepsTheDevice) {
  Host host(1);
  host.services.will_not_stop = {kDaemon};
  const auto outcome = host.apply();
  ASSERT_EQ(statuses(outcome), std::vector<Status>{Status::refused});
  EXPECT_THAT(outcome.results[0].refusal.reasons, ElementsAre(HasSubstr("although Ferry quiesced it")));
  EXPECT_THAT(host.services.orders,
              ElementsAre("stop nvidia-persistenced.service", "start nvidia-persistenced.service"));
  EXPECT_THAT(host.kernel.writes(), IsEmpty());
  EXPECT_FALSE(host.kernel.exists(kRecord));
}

TEST(RebindRelease, StartsAgainWhenSomebodyTakesTheDeviceMeanwhile) {
  Host host(1);
  host.probe.before_second_look = [&] {
    host.probe.others["0000:01:00.0"] = {
        {.kind = DeviceUser::Kind::virtual_machine, .name = "late", .pid = 9, .what = "it", .pod_uid = {}}};
  };
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>{Status::refused});
  EXPECT_TRUE(host.services.runs(kDaemon));
  EXPECT_EQ(host.kernel.driver_of("0000:01:00.0"), "nouveau");
}

TEST(RebindRelease, StopsNoOtherServiceThatComesMeanwhile) {
  Host host(1);
  host.request.release = {kDaemon, kDcgm};
  host.probe.before_second_look = [&] { host.probe.held["0000:01:00.0"] = {kDcgm}; };
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>{Status::refused});
  EXPECT_THAT(host.services.orders, Not(Contains("stop nvidia-dcgm.service")));
}

TEST(RebindRelease, FailsTheGroupsOfAServiceThatDoesNotStopAndStartsItAgain) {
  Host host(2);
  host.request.release = {kDaemon, kDcgm};
  host.probe.held["0000:02:00.0"] = {kDcgm};
  host.services.stop_fails = {kDcgm};
  const auto outcome = host.apply();
  ASSERT_EQ(statuses(outcome), (std::vector<Status>{Status::failed, Status::done}));
  EXPECT_EQ(outcome.results[0].error.value_or(Error{}).message,
            "stop nvidia-dcgm.service: systemd: the job timed out");
  EXPECT_EQ(host.kernel.driver_of("0000:02:00.0"), "nouveau");
  EXPECT_TRUE(host.services.runs(kDcgm));
  EXPECT_TRUE(host.services.runs(kDaemon));
}

TEST(RebindRelease, StartsAgainAfterAGroupThatHangs) {
  Host host(2);
  host.kernel.hang_write({.path = "sys/bus/pci/drivers/nouveau/unbind", .value = "0000:02:00.0"});
  EXPECT_EQ(statuses(host.apply()), (std::vector<Status>{Status::done, Status::failed}));
  EXPECT_TRUE(host.services.runs(kDaemon));
  EXPECT_FALSE(host.kernel.exists(kRecord));
}

TEST(RebindRelease, FailsWhenAServiceDoesNotStartThatDevicesAreLeftTo) {
  Host host(2);
  host.request.accelerators.pop_back();
  host.services.start_fails = {kDaemon};
  const auto outcome = host.apply();
  EXPECT_EQ(statuses(outcome), std::vector<Status>{Status::done}) << "the group is bound";
  ASSERT_THAT(outcome.errors, SizeIs(1));
  EXPECT_EQ(outcome.errors[0].message, "start nvidia-persistenced.service: systemd: the unit failed");
  EXPECT_TRUE(host.kernel.exists(kRecord));
  EXPECT_THAT(host.preview().notes,
              Contains(HasSubstr("nvidia-persistenced.service was stopped by an earlier")));

  host.services.start_fails.clear();
  const auto again = host.apply();
  EXPECT_THAT(again.errors, IsEmpty());
  EXPECT_THAT(again.notes, Contains(HasSubstr("by an earlier run")));
  EXPECT_TRUE(host.services.runs(kDaemon));
  EXPECT_FALSE(host.kernel.exists(kRecord));
}

TEST(RebindRelease, LetsAServiceWaitThatFindsNoDeviceToStartWith) {
  Host host(1);
  host.services.start_fails = {kDaemon};
  const auto outcome = host.apply();
  EXPECT_EQ(statuses(outcome), std::vector<Status>{Status::done});
  EXPECT_THAT(outcome.errors, IsEmpty());
  EXPECT_THAT(outcome.notes, Contains(HasSubstr("no accelerator is left to it")));

  host.services.orders.clear();
  host.kernel.forget_changes();
  EXPECT_EQ(statuses(host.apply()), std::vector<Status>{Status::already});
  EXPECT_THAT(host.services.orders, IsEmpty()) << "asked in vain each time";
  EXPECT_THAT(host.kernel.changes(), IsEmpty());

  host.services.start_fails.clear();
  EXPECT_EQ(statuses(host.apply(Direction::back)), std::vector<Status>{Status::done});
  EXPECT_THAT(host.services.orders, ElementsAre("start nvidia-persistenced.service"));
  EXPECT_FALSE(host.kernel.exists(kRecord));
}

TEST(RebindRelease, RebindsNothingWhileItsRecordCannotBeRead) {
  Host host(1);
  host.kernel.file(kRecord, "{");
  const auto outcome = apply_rebinds(host.context(), host.request, Direction::to_vfio);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Errc::malformed_host);
  EXPECT_FALSE(preview_rebinds(host.context(), host.request, Direction::to_vfio));
  EXPECT_THAT(host.kernel.changes(), IsEmpty());
  EXPECT_THAT(host.services.orders, IsEmpty());
}

TEST(RebindRelease, StopsAndStartsNothingInARollback) {
  Host host(1);
  host.apply();
  host.services.orders.clear();
  EXPECT_EQ(statuses(host.apply(Direction::back)), std::vector<Status>{Status::done});
  EXPECT_THAT(host.services.orders, IsEmpty());
}

TEST(RebindRelease, EveryChangeThatFailsLeavesTheServiceRunningOrRecorded) {
  const std::size_t count = test::changes_of_an_undisturbed_run<Host>(2U);
  ASSERT_GT(count, 8U);
  for (std::size_t n = 1; n <= count; ++n) {
    SCOPED_TRACE(n);
    Host host(2);
    host.kernel.fail_change(n, EIO);
    const auto outcome = host.apply();
    EXPECT_TRUE(host.services.runs(kDaemon) || host.kernel.exists(kRecord));
    EXPECT_TRUE(
        !outcome.errors.empty() ||
        std::ranges::any_of(outcome.results,
                            [](const RebindResult& result) { return result.status == Status::failed; }) ||
        std::ranges::any_of(
            outcome.notes,
            [](const std::string& note) { return note.find("no accelerator is left") != std::string::npos; }))
        << "a failed change went unnoticed";
    EXPECT_EQ(statuses(host.apply()).size(), 2U);
    host.apply(Direction::back);
    EXPECT_TRUE(host.services.runs(kDaemon));
    EXPECT_FALSE(host.kernel.exists(kRecord));
  }
}

TEST(RebindRelease, AnyChangeMayBeTheLastBeforeDeathAndTheNextRunStartsTheService) {
  test::die_at_every_change<Host>(
      [](const Host& host, Direction next) {
        EXPECT_TRUE(host.services.runs(kDaemon));
        EXPECT_FALSE(host.kernel.exists(kRecord));
        for (const char* gpu : {"0000:01:00.0", "0000:02:00.0"})
          EXPECT_EQ(host.kernel.driver_of(gpu), next == Direction::to_vfio ? "vfio-pci" : "nouveau");
      },
      2U);
}

TEST(RebindRelease, StartsWhatAKilledRunLeftThoughNothingIsAskedFor) {
  Host host(1);
  host.kernel.file("proc/sys/kernel/random/boot_id", "b\n");
  host.kernel.file(kRecord,
                   R"({"version":1,"boot_id":"b","services":{"nvidia-persistenced.service":"to start"}})");
  host.kernel.file(std::string("services/") + kDaemon, "stopped");
  host.request.accelerators.clear();
  const auto outcome = host.apply(Direction::back);  // as `vfio restore` does with no record of a bind
  EXPECT_THAT(outcome.results, IsEmpty());
  EXPECT_TRUE(host.services.runs(kDaemon));
  EXPECT_FALSE(host.kernel.exists(kRecord));
}

}  // namespace
}  // namespace ferry::vfio
