// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/rebind_apply.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/must.h"
#include "tests/vfio/machines.h"
#include "vfio/quiesce/stopped_services.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;
using test::HostChange;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Status = RebindResult::Status;

class RebindApplyTest : public testing::Test {
 protected:
  RebindApplyTest() {
    test::add_host_drivers(kernel_);
    test::add_four_function_card(kernel_);
  }
  RebindContext context() {
    return {
        .host = &kernel_, .writer = &kernel_, .probe = &probe_, .rules = test::gpu_rules(), .on_step = {}};
  }
  Result<RebindOutcome> apply(Direction direction,
                              const std::vector<std::string>& devices = {"0000:65:00.0"}) {
    RebindRequest request;
    for (const auto& device : devices) request.accelerators.push_back(at(device));
    return apply_rebinds(context(), request, direction);
  }
  /// The card, in another context than the usual one.
  static Result<RebindOutcome> apply_in(const RebindContext& context, Direction direction) {
    RebindRequest request;
    request.accelerators = {at("0000:65:00.0")};
    return apply_rebinds(context, request, direction);
  }
  std::vector<std::string> drivers() const {
    return {kernel_.driver_of("0000:65:00.0"), kernel_.driver_of("0000:65:00.1"),
            kernel_.driver_of("0000:65:00.2"), kernel_.driver_of("0000:65:00.3"),
            kernel_.driver_of("0000:64:00.0")};
  }

  FakeKernel kernel_;
  test::TableProbe probe_;
};

TEST_F(RebindApplyTest, RebindsAGroupAndBringsItBackExactly) {
  must(kernel_.write_attribute("sys/bus/pci/devices/0000:65:00.2/driver_override", "xhci_hcd"));
  must(kernel_.write_attribute("sys/bus/pci/devices/0000:65:00.3/driver_override", "pci-stub"));
  auto rebound = apply(Direction::to_vfio);
  ASSERT_TRUE(rebound);
  EXPECT_EQ(rebound->results.at(0).status, Status::done);
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "vfio-pci", "vfio-pci", "pcieport"));
  EXPECT_TRUE(kernel_.exists("dev/vfio/41"));

  auto back = apply(Direction::back);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->results.at(0).status, Status::done);
  EXPECT_THAT(drivers(), ElementsAre("nouveau", "snd_hda_intel", "xhci_hcd", "", "pcieport"));
  EXPECT_EQ(kernel_.override_of("0000:65:00.2"), "xhci_hcd");
  EXPECT_EQ(kernel_.override_of("0000:65:00.3"), "pci-stub") << "though no driver had it";
  EXPECT_EQ(kernel_.override_of("0000:65:00.0"), "");
  EXPECT_FALSE(kernel_.exists("run/ferry/hostd/moves/41.json"));
}

TEST_F(RebindApplyTest, RecordsBeforeTheFirstSysfsWrite) {
  must(kernel_.load_module("vfio_pci"));
  kernel_.forget_changes();
  apply(Direction::to_vfio).value();
  ASSERT_FALSE(kernel_.changes().empty());
  EXPECT_EQ(kernel_.changes().front().path, "run/ferry/hostd/moves/41.json");
  EXPECT_THAT(kernel_.changes().front().value, HasSubstr("snd_hda_intel"));
}

TEST_F(RebindApplyTest, WritesNothingTheSecondTime) {
  apply(Direction::to_vfio).value();
  kernel_.forget_changes();
  const auto again = apply(Direction::to_vfio);
  EXPECT_EQ(again->results.at(0).status, Status::already);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  apply(Direction::back).value();
  kernel_.forget_changes();
  EXPECT_EQ(apply(Direction::back)->results.at(0).status, Status::already);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(RebindApplyTest, LeavesServicesToACallerThatStopsThem) {
  std::map<Releasable, StoppedService> stopped;
  stopped[{.kind = Releasable::Kind::service, .name = "nvidia-dcgm.service"}] = StoppedService::to_start;
  ASSERT_TRUE(write_service_record(kernel_, stopped));
  const std::string record = kernel_.read_file("run/ferry/hostd/stopped-services.json").value();
  RebindRequest request;
  request.accelerators = {at("0000:65:00.0")};
  const auto outcome = apply_rebinds_only(context(), request, Direction::to_vfio);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->results.at(0).status, Status::done);
  EXPECT_THAT(outcome->errors, IsEmpty());
  EXPECT_EQ(kernel_.read_file("run/ferry/hostd/stopped-services.json").value(), record);
}

TEST_F(RebindApplyTest, WritesNothingToARefusedGroup) {
  kernel_.add_function(test::kinds::kDisk, "0000:66:00.0", 41, "nvme");
  const auto outcome = apply(Direction::to_vfio);
  EXPECT_EQ(outcome->results.at(0).status, Status::refused);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(RebindApplyTest, RebindsTheOthersWhenOneGroupIsRefused) {
  kernel_.add_function({.address = "0000:05:01.0", .group = 12, .driver = "nouveau"});
  kernel_.add_function({.address = "0000:05:02.0", .ids = "1002:5046", .group = 12, .driver = "radeon"});
  const auto outcome = apply(Direction::to_vfio, {"0000:05:01.0", "0000:65:00.0"});
  ASSERT_EQ(outcome->results.size(), 2U);
  EXPECT_EQ(outcome->results[0].status, Status::refused);
  EXPECT_EQ(outcome->results[1].status, Status::done);
  EXPECT_EQ(kernel_.driver_of("0000:05:01.0"), "nouveau");
  EXPECT_EQ(kernel_.override_of("0000:05:01.0"), "");
}

TEST_F(RebindApplyTest, LooksAgainRightBeforeTheFirstWrite) {
  // Free when planned, taken when it comes to writing: somebody opened the GPU in between.
  test::ProbeOf late([](int look) {
    UseReport report;
    if (look > 1)
      report.users["0000:65:00.0"] = {{.name = "late", .pid = 5, .what = "/dev/dri/card0", .pod_uid = {}}};
    return report;
  });
  auto ctx = context();
  ctx.probe = &late;
  const auto outcome = apply_in(ctx, Direction::to_vfio);
  EXPECT_EQ(outcome->results.at(0).status, Status::refused);
  EXPECT_THAT(kernel_.writes(), IsEmpty());
}

TEST_F(RebindApplyTest, RefusesToTakeBackWhatAVmUses) {
  apply(Direction::to_vfio).value();
  probe_.users["0000:65:00.0"] = {{.kind = DeviceUser::Kind::virtual_machine,
                                   .name = "tenant",
                                   .pid = 412,
                                   .what = "/dev/vfio/41",
                                   .pod_uid = {}}};
  kernel_.forget_changes();
  const auto outcome = apply(Direction::back);
  ASSERT_EQ(outcome->results.at(0).status, Status::refused);
  EXPECT_THAT(outcome->results[0].refusal.reasons,
              ElementsAre(HasSubstr("VM tenant (pid 412) holds /dev/vfio/41")));
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(RebindApplyTest, NoticesThatABindWhichSucceededBoundNothing) {
  must(kernel_.load_module("vfio_pci"));
  // A kernel whose bind reports success and does nothing.
  FakeKernel* kernel = &kernel_;
  class Liar final : public HostWriter {
   public:
    explicit Liar(FakeKernel* kernel) : kernel_(kernel) {}
    Result<> write(const std::filesystem::path& path, std::string_view value,
                   std::chrono::milliseconds d) override {
      if (path == "sys/bus/pci/drivers/vfio-pci/bind" && value == "0000:65:00.0") return {};
      return kernel_->write(path, value, d);
    }
    Result<> load_module(std::string_view name, std::chrono::milliseconds d) override {
      return kernel_->load_module(name, d);
    }
    Result<> unload_module(std::string_view name, std::chrono::milliseconds d) override {
      return kernel_->unload_module(name, d);
    }
    Result<> run(const HostCommand& command, std::chrono::milliseconds d) override {
      return kernel_->run(command, d);
    }
    Result<std::string> read(const std::filesystem::path& path, std::chrono::milliseconds d) override {
      return kernel_->read(path, d);
    }

   private:
    FakeKernel* kernel_;
  } liar(kernel);
  auto ctx = context();
  ctx.writer = &liar;
  const auto outcome = apply_in(ctx, Direction::to_vfio);
  ASSERT_EQ(outcome->results.at(0).status, Status::failed);
  EXPECT_THAT(test::error_of(outcome->results[0]).message,
              HasSubstr("0000:65:00.0 is on no driver after the change"));
  EXPECT_THAT(drivers(), ElementsAre("nouveau", "snd_hda_intel", "xhci_hcd", "", "pcieport"));
}

/// No process can be started for a write, as on a host at the end of its process numbers.
class ChildlessWriter final : public HostWriter {
 public:
  explicit ChildlessWriter(FakeKernel& kernel) : kernel_(&kernel) {}
  Result<> write(const std::filesystem::path& /*path*/, std::string_view /*value*/,
                 std::chrono::milliseconds /*deadline*/) override {
    return none();
  }
  Result<> write_in_order(std::span<const AttributeWrite> /*writes*/,
                          const std::function<void(std::size_t)>& /*begin*/) override {
    return none();
  }
  Result<> load_module(std::string_view /*name*/, std::chrono::milliseconds /*deadline*/) override {
    return none();
  }
  Result<> unload_module(std::string_view /*name*/, std::chrono::milliseconds /*deadline*/) override {
    return none();
  }
  Result<> run(const HostCommand& /*command*/, std::chrono::milliseconds /*deadline*/) override {
    return none();
  }
  Result<std::string> read(const std::filesystem::path& path, std::chrono::milliseconds deadline) override {
    return kernel_->read(path, deadline);
  }

 private:
  static Result<> none() { return fail(error_from_errno(EAGAIN, "start ferry")); }
  FakeKernel* kernel_;
};

TEST_F(RebindApplyTest, SaysInEitherDirectionThatNoWriterCanBeStarted) {
  must(kernel_.load_module("vfio_pci"));
  ChildlessWriter childless(kernel_);
  for (const Direction direction : {Direction::to_vfio, Direction::back}) {
    auto ctx = context();
    ctx.writer = &childless;
    const auto outcome = must(apply_in(ctx, direction));
    ASSERT_EQ(outcome.results.at(0).status, Status::failed);
    EXPECT_THAT(test::error_of(outcome.results[0]).message, HasSubstr("start ferry"));
    if (direction == Direction::to_vfio) must(apply(Direction::to_vfio));
  }
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "vfio-pci", "vfio-pci", "pcieport"));
}

TEST_F(RebindApplyTest, TakesEverythingBackWhenTheLastBindIsRefused) {
  must(kernel_.load_module("vfio_pci"));
  apply(Direction::to_vfio).value();
  const std::size_t changes = kernel_.changes().size();
  apply(Direction::back).value();
  kernel_.forget_changes();
  kernel_.fail_change(changes - 1, EBUSY);  // the module was loaded before: one change less
  const auto outcome = apply(Direction::to_vfio);
  ASSERT_EQ(outcome->results.at(0).status, Status::failed);
  EXPECT_EQ(test::error_of(outcome->results[0]).code, std::errc::device_or_resource_busy);
  EXPECT_THAT(
      test::error_of(outcome->results[0]).message,
      HasSubstr("bind 0000:65:00.0 to vfio-pci: write /sys/bus/pci/drivers/vfio-pci/bind: Device or resource "
                "busy; everything written to this group was taken back"));
  EXPECT_THAT(drivers(), ElementsAre("nouveau", "snd_hda_intel", "xhci_hcd", "", "pcieport"));
  EXPECT_FALSE(kernel_.exists("run/ferry/hostd/moves/41.json"));
}

// An override of Ferry's may be what cannot be read: at home with it is not at home.
TEST_F(RebindApplyTest, KeepsTheRecordWhileTheOverrideCannotBeRead) {
  must(kernel_.load_module("vfio_pci"));
  kernel_.forget_changes();
  kernel_.fail_change(3, EIO);  // record, the first override
  kernel_.hang_read("0000:65:00.1");
  const auto failed = apply(Direction::to_vfio);
  ASSERT_EQ(failed->results.at(0).status, Status::refused) << "nor is anything begun then";
  kernel_.release_stuck();
  kernel_.fail_change(0, 0);

  ASSERT_EQ(apply(Direction::to_vfio)->results.at(0).status, Status::done);
  for (const char* member : {"0000:65:00.0", "0000:65:00.1", "0000:65:00.2", "0000:65:00.3"}) {
    const auto driver = kernel_.driver_of(member);
    must(kernel_.write("sys/bus/pci/drivers/" + driver + "/unbind", member));
  }
  // As after a bind that was killed right behind its first write.
  must(kernel_.write("sys/bus/pci/devices/0000:65:00.0/driver_override", "\n"));
  must(kernel_.write("sys/bus/pci/devices/0000:65:00.2/driver_override", "\n"));
  must(kernel_.write("sys/bus/pci/devices/0000:65:00.3/driver_override", "\n"));
  must(kernel_.write("sys/bus/pci/drivers/nouveau/bind", "0000:65:00.0"));
  must(kernel_.write("sys/bus/pci/devices/0000:65:00.1/driver_override", "\n"));
  must(kernel_.write("sys/bus/pci/drivers/snd_hda_intel/bind", "0000:65:00.1"));
  must(kernel_.write("sys/bus/pci/drivers/xhci_hcd/bind", "0000:65:00.2"));
  must(kernel_.write("sys/bus/pci/devices/0000:65:00.1/driver_override", "vfio-pci"));
  kernel_.hang_read("0000:65:00.1");
  const auto unsure = apply(Direction::back);
  ASSERT_EQ(unsure->results.at(0).status, Status::refused);
  EXPECT_THAT(unsure->results[0].refusal.reasons,
              testing::Contains(HasSubstr("0000:65:00.1 cannot be read")));
  EXPECT_TRUE(kernel_.exists("run/ferry/hostd/moves/41.json"));

  kernel_.release_stuck();
  EXPECT_EQ(apply(Direction::back)->results.at(0).status, Status::done);
  EXPECT_EQ(kernel_.override_of("0000:65:00.1"), "");
  EXPECT_FALSE(kernel_.exists("run/ferry/hostd/moves/41.json"));
}

TEST_F(RebindApplyTest, KeepsTheRecordWhenWhatItTookBackCannotBeReadAgain) {
  must(kernel_.load_module("vfio_pci"));
  kernel_.fail_change(6, EIO);
  RebindContext ctx = context();
  ctx.on_step = [&](const Step& step) {
    if (step.kind == Step::Kind::unbind) kernel_.hang_read("0000:65:00.3");
  };
  const auto outcome = apply_in(ctx, Direction::to_vfio);
  ASSERT_EQ(outcome->results.at(0).status, Status::failed);
  EXPECT_THAT(test::error_of(outcome->results[0]).message,
              HasSubstr("driver_override of 0000:65:00.3 cannot be read"));
  EXPECT_TRUE(kernel_.exists("run/ferry/hostd/moves/41.json"));
}

TEST_F(RebindApplyTest, ChangesNothingWhenTheModuleDoesNotLoad) {
  kernel_.fail_change(1, ENOEXEC);
  const auto outcome = apply(Direction::to_vfio);
  ASSERT_EQ(outcome->results.at(0).status, Status::failed);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  EXPECT_THAT(drivers(), ElementsAre("nouveau", "snd_hda_intel", "xhci_hcd", "", "pcieport"));
}

TEST_F(RebindApplyTest, GivesAnAdoptedFunctionItsNaturalDriver) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function(
      {.address = "0000:01:00.0", .group = 5, .driver = "vfio-pci", .driver_override = "vfio-pci"});
  EXPECT_EQ(apply(Direction::to_vfio, {"0000:01:00.0"})->results.at(0).status, Status::already);
  EXPECT_EQ(apply(Direction::back, {"0000:01:00.0"})->results.at(0).status, Status::done);
  EXPECT_EQ(kernel_.driver_of("0000:01:00.0"), "nouveau");
  EXPECT_EQ(kernel_.override_of("0000:01:00.0"), "");
}

TEST_F(RebindApplyTest, KeepsNoRecordOfAnAdoptedFunctionThatStaysAsItWas) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function(
      {.address = "0000:01:00.0", .group = 5, .driver = "vfio-pci", .driver_override = "vfio-pci"});
  kernel_.fail_for_good({.path = "sys/bus/pci/drivers_probe", .value = "0000:01:00.0"}, EIO);
  ASSERT_EQ(apply(Direction::back, {"0000:01:00.0"})->results.at(0).status, Status::failed);
  EXPECT_EQ(kernel_.driver_of("0000:01:00.0"), "vfio-pci");
  EXPECT_EQ(kernel_.override_of("0000:01:00.0"), "vfio-pci");
  EXPECT_FALSE(kernel_.exists("run/ferry/hostd/moves/5.json")) << "`restore` takes back what Ferry has bound";
}

TEST_F(RebindApplyTest, LeavesWhatSomebodyElseReboundMeanwhile) {
  apply(Direction::to_vfio).value();
  kernel_.add_driver({.name = "pci-stub"});
  must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", "0000:65:00.1"));
  must(kernel_.write_attribute("sys/bus/pci/devices/0000:65:00.1/driver_override", "pci-stub"));
  must(kernel_.write_attribute("sys/bus/pci/drivers/pci-stub/bind", "0000:65:00.1"));
  const auto back = apply(Direction::back);
  EXPECT_EQ(back->results.at(0).status, Status::done);
  EXPECT_THAT(back->results.at(0).rebind.notes,
              ElementsAre(HasSubstr("0000:65:00.1 was bound to pci-stub by another program")));
  EXPECT_EQ(kernel_.driver_of("0000:65:00.1"), "pci-stub");
  EXPECT_EQ(kernel_.driver_of("0000:65:00.0"), "nouveau");
}

TEST_F(RebindApplyTest, TakesNothingBackFromAVmThatCameInBetween) {
  must(kernel_.load_module("vfio_pci"));
  // Free at both looks before the writes; when the last bind has failed, a VM has the group.
  test::ProbeOf newcomer([](int look) {
    UseReport report;
    if (look > 2)
      report.users["0000:65:00.1"] = {
          {.kind = DeviceUser::Kind::virtual_machine, .name = "vm", .pid = 5, .what = "/dev/vfio/41"}};
    return report;
  });
  auto ctx = context();
  ctx.probe = &newcomer;
  kernel_.forget_changes();
  kernel_.fail_change(12, EBUSY);  // the last bind: a record, four overrides, three unbinds, four binds
  const auto outcome = apply_in(ctx, Direction::to_vfio);
  ASSERT_EQ(outcome->results.at(0).status, Status::failed);
  EXPECT_THAT(test::error_of(outcome->results[0]).message,
              HasSubstr("0000:65:00.1 is in use meanwhile: VM vm (pid 5)"));
  EXPECT_THAT(drivers(), ElementsAre("nouveau", "vfio-pci", "vfio-pci", "vfio-pci", "pcieport"))
      << "what has no driver is taken from nobody";
  EXPECT_EQ(kernel_.override_of("0000:65:00.0"), "");
  EXPECT_EQ(kernel_.override_of("0000:65:00.1"), "vfio-pci");
  EXPECT_TRUE(kernel_.exists("run/ferry/hostd/moves/41.json"));
  ASSERT_EQ(apply(Direction::back)->results.at(0).status, Status::done);
  EXPECT_THAT(drivers(), ElementsAre("nouveau", "snd_hda_intel", "xhci_hcd", "", "pcieport"));
}

TEST_F(RebindApplyTest, WritesNothingWhileADeviceUserMayGoUnseen) {
  test::ProbeOf blind([](int /*look*/) {
    UseReport report;
    report.blind = "3 processes could not be looked into";
    return report;
  });
  auto ctx = context();
  ctx.probe = &blind;
  const auto outcome = apply_in(ctx, Direction::to_vfio);
  EXPECT_EQ(outcome->results.at(0).status, Status::refused);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(RebindApplyTest, RefusesOnlyTheGroupOfADeviceWhoseUsersMayGoUnseen) {
  test::ProbeOf blind_to_one([](int /*look*/) {
    UseReport report;
    report.unseen["0000:65:00.0"] = "its driver does not answer";
    return report;
  });
  kernel_.add_function({.address = "0000:01:00.0", .group = 5, .driver = "nouveau"});
  auto ctx = context();
  ctx.probe = &blind_to_one;
  RebindRequest request;
  request.accelerators = {at("0000:01:00.0"), at("0000:65:00.0")};
  const auto outcome = must(apply_rebinds(ctx, request, Direction::to_vfio));
  ASSERT_EQ(outcome.results.size(), 2U);
  EXPECT_EQ(outcome.results[0].status, Status::refused);
  EXPECT_THAT(
      outcome.results[0].refusal.reasons,
      ElementsAre("Ferry cannot find out whether 0000:65:00.0 is in use: its driver does not answer"));
  EXPECT_EQ(outcome.results[1].status, Status::done);
}

TEST_F(RebindApplyTest, RebindsAVirtualFunctionAndBringsItBackBesideItsPhysicalFunction) {
  kernel_.add_function(
      {.address = "0000:01:00.0", .group = 5, .driver = "nouveau", .totalvfs = 16, .numvfs = 1});
  kernel_.add_function({.address = "0000:01:00.4", .group = 6, .physical_function = "0000:01:00.0"});
  const auto rebound = apply(Direction::to_vfio, {"0000:01:00.4"});
  ASSERT_EQ(rebound->results.at(0).status, Status::done) << test::error_of(rebound->results[0]).message;
  EXPECT_EQ(kernel_.driver_of("0000:01:00.4"), "vfio-pci");
  EXPECT_EQ(kernel_.driver_of("0000:01:00.0"), "nouveau");
  ASSERT_EQ(apply(Direction::back, {"0000:01:00.4"})->results.at(0).status, Status::done);
  EXPECT_EQ(kernel_.driver_of("0000:01:00.4"), "");
  EXPECT_EQ(kernel_.override_of("0000:01:00.4"), "");
}

// Between the choice and the first look; none of --all was named.
TEST_F(RebindApplyTest, OneThatVanishedBeforeTheFirstScanFailsAloneUnlessItWasNamed) {
  RebindRequest request;
  request.accelerators = {at("0000:01:00.0"), at("0000:65:00.0")};
  const auto preview = preview_rebinds(context(), request, Direction::to_vfio);
  ASSERT_TRUE(preview) << preview.error().message;
  EXPECT_EQ(preview->plan.rebinds.size(), 1U);
  ASSERT_EQ(preview->plan.refusals.size(), 1U);
  EXPECT_THAT(preview->plan.refusals[0].devices, ElementsAre(at("0000:01:00.0")));
  EXPECT_THAT(preview->plan.refusals[0].reasons,
              ElementsAre("there is no PCI function 0000:01:00.0 any more"));

  request.by_name = {at("0000:01:00.0")};
  const auto named = apply_rebinds(context(), request, Direction::to_vfio);
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code, Errc::not_found);
  EXPECT_THAT(kernel_.changes(), IsEmpty());

  request.by_name = {at("0000:65:00.0")};
  const auto outcome = apply_rebinds(context(), request, Direction::to_vfio);
  ASSERT_TRUE(outcome) << outcome.error().message;
  ASSERT_EQ(outcome->results.size(), 2U);
  EXPECT_EQ(outcome->results[0].status, Status::failed);
  EXPECT_THAT(outcome->results[0].devices, ElementsAre(at("0000:01:00.0")));
  EXPECT_EQ(test::error_of(outcome->results[0]).code, Errc::not_found);
  EXPECT_EQ(outcome->results[1].status, Status::done);
  EXPECT_EQ(kernel_.driver_of("0000:65:00.0"), "vfio-pci");
}

// The caller's scan is for the first plan alone: behind the fences the host is scanned in any case.
TEST_F(RebindApplyTest, PlansTheWritesFromAScanOfItsOwn) {
  kernel_.add_driver({.name = "nova", .ids = {"10de:2684"}});
  kernel_.add_function({.address = "0000:01:00.0", .group = 5, .driver = "nouveau"});
  kernel_.add_function({.address = "0000:02:00.0", .group = 6, .driver = "nouveau"});
  const Inventory old = must(scan(kernel_));
  kernel_.remove_function("0000:01:00.0");
  must(kernel_.write("sys/bus/pci/drivers/nouveau/unbind", "0000:02:00.0"));
  must(kernel_.write("sys/bus/pci/drivers/nova/bind", "0000:02:00.0"));

  RebindRequest request;
  request.accelerators = {at("0000:01:00.0"), at("0000:02:00.0")};
  const auto outcome = must(apply_rebinds(context(), request, Direction::to_vfio, &old));
  ASSERT_EQ(outcome.results.size(), 2U);
  EXPECT_EQ(outcome.results[0].status, Status::failed);
  EXPECT_THAT(outcome.results[0].devices, ElementsAre(at("0000:01:00.0")));
  EXPECT_EQ(test::error_of(outcome.results[0]).code, Errc::not_found);
  ASSERT_EQ(outcome.results[1].status, Status::done) << test::error_of(outcome.results[1]).message;
  EXPECT_THAT(outcome.results[1].devices, ElementsAre(at("0000:02:00.0")));
  EXPECT_EQ(outcome.results[1].rebind.members.at(0).driver_before, "nova");
  EXPECT_EQ(kernel_.driver_of("0000:02:00.0"), "vfio-pci");
  ASSERT_EQ(apply(Direction::back, {"0000:02:00.0"})->results.at(0).status, Status::done);
  EXPECT_EQ(kernel_.driver_of("0000:02:00.0"), "nova");
}

class UnloadedDriver : public RebindApplyTest {
 protected:
  /// A GPU that is on vfio while its driver, and the driver's module, were unloaded.
  void unload_after_bind() {
    kernel_.add_driver({.name = "bochs-drm", .module = "bochs", .ids = {"10de:1111"}});
    kernel_.add_function({.address = "0000:01:00.0", .ids = "10de:1111", .group = 5, .driver = "bochs-drm"});
    apply(Direction::to_vfio, {"0000:01:00.0"}).value();
    kernel_.remove("sys/bus/pci/drivers/bochs-drm");
    kernel_.remove("sys/module/bochs");
    kernel_.add_module({.name = "bochs-drm", .module = "bochs", .ids = {"10de:1111"}});
    kernel_.forget_changes();
  }
  /// As Ferry wrote it before it recorded modules.
  void forget_the_module() {
    auto record = nlohmann::json::parse(kernel_.read_file("run/ferry/hostd/moves/5.json").value());
    ASSERT_EQ(record["devices"]["0000:01:00.0"].at("module"), "bochs");
    record["devices"]["0000:01:00.0"].erase("module");
    kernel_.file("run/ferry/hostd/moves/5.json", record.dump());
  }
  /// The module that the way back loads first, and the driver in the end.
  std::vector<std::string> back() {
    apply(Direction::back, {"0000:01:00.0"}).value();
    const HostChange& first = kernel_.changes().at(0);
    return {first.path == "module" ? first.value : "none", kernel_.driver_of("0000:01:00.0")};
  }
};

TEST_F(UnloadedDriver, IsLoadedAgainByTheModuleThatWasRecorded) {
  unload_after_bind();
  EXPECT_THAT(back(), ElementsAre("bochs", "bochs-drm"));
}

TEST_F(UnloadedDriver, OfAnOlderRecordIsLoadedByTheOneModuleThatCouldBringIt) {
  unload_after_bind();
  forget_the_module();
  // nouveau is for the card too, and loaded: it would have brought the driver.
  test::add_alias(kernel_, "pci:v000010DEd00001111sv*sd*bc*sc*i* bochs");
  EXPECT_THAT(back(), ElementsAre("bochs", "bochs-drm"));
}

TEST_F(UnloadedDriver, IsLoadedByItsOwnNameWhereNothingElseIsKnown) {
  unload_after_bind();
  forget_the_module();
  test::add_alias(kernel_, "pci:v000010DEd00001111sv*sd*bc*sc*i* bochs");
  test::add_alias(kernel_, "pci:v000010DEd00001111sv*sd*bc*sc*i* cirrus");
  kernel_.add_module({.name = "bochs-drm", .module = "bochs_drm", .ids = {"10de:1111"}});
  EXPECT_THAT(back(), ElementsAre("bochs_drm", "bochs-drm"));
}

TEST_F(UnloadedDriver, WhoseLoadHangsIsLoadedByNobodyElse) {
  unload_after_bind();
  kernel_.hang_change(1);
  for (int run = 0; run < 2; ++run) {
    const auto outcome = must(apply(Direction::back, {"0000:01:00.0"}));
    ASSERT_EQ(outcome.results.at(0).status, Status::failed);
    EXPECT_EQ(test::error_of(outcome.results[0]).code, Errc::stuck);
    EXPECT_THAT(must(kernel_.list("run/ferry/stuck-writes")), testing::SizeIs(1)) << "one load, not two";
    EXPECT_THAT(kernel_.changes(), IsEmpty());
  }
  kernel_.release_stuck();
  EXPECT_THAT(back(), ElementsAre("bochs", "bochs-drm"));
}

TEST_F(RebindApplyTest, RestoresOnlyWhatItRebound) {
  must(kernel_.load_module("vfio_pci"));
  must(kernel_.write_attribute("sys/bus/pci/devices/0000:65:00.0/driver_override", "vfio-pci"));
  must(kernel_.write_attribute("sys/bus/pci/drivers/nouveau/unbind", "0000:65:00.0"));
  must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/bind", "0000:65:00.0"));
  ASSERT_EQ(apply(Direction::to_vfio)->results.at(0).status, Status::done);
  RebindRequest request;
  request.accelerators = {at("0000:65:00.0")};
  request.recorded_only = true;
  ASSERT_EQ(apply_rebinds(context(), request, Direction::back)->results.at(0).status, Status::done);
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "snd_hda_intel", "xhci_hcd", "", "pcieport"));
}

TEST_F(RebindApplyTest, GivesTheOthersBackWhenOneDoesNotGo) {
  ASSERT_TRUE(apply(Direction::to_vfio));
  kernel_.forget_changes();
  kernel_.fail_change(4 + 4 + 1, EIO);  // the first bind, after four overrides and four unbinds
  ASSERT_EQ(apply(Direction::back)->results.at(0).status, Status::failed);
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "snd_hda_intel", "xhci_hcd", "", "pcieport"));
  ASSERT_EQ(apply(Direction::back)->results.at(0).status, Status::done);
  EXPECT_THAT(drivers(), ElementsAre("nouveau", "snd_hda_intel", "xhci_hcd", "", "pcieport"));
}

TEST_F(RebindApplyTest, HoldsARecordOfAnEarlierBootForVoidAndSaysSo) {
  apply(Direction::to_vfio).value();
  const std::string record = kernel_.read_file("run/ferry/hostd/moves/41.json").value();
  kernel_.new_boot();
  kernel_.file("run/ferry/hostd/moves/41.json", record);
  const auto outcome = apply(Direction::to_vfio);
  EXPECT_THAT(outcome->notes,
              ElementsAre(HasSubstr("run/ferry/hostd/moves/41.json is of an earlier boot and void")));
}

// No lock of ours keeps a vGPU from being made between the first plan and the fence.
TEST_F(RebindApplyTest, LooksBehindTheFenceForWhatMustStay) {
  must(kernel_.load_module("vfio_pci"));
  kernel_.forget_changes();
  auto ctx = context();
  ctx.must_stay = [](const Inventory& inventory) -> Result<std::map<PciAddress, std::string>> {
    EXPECT_NE(inventory.find(at("0000:65:00.0")), nullptr);
    return std::map<PciAddress, std::string>{{at("0000:65:00.0"), "carries 1 vGPU"}};
  };
  const auto outcome = must(apply_in(ctx, Direction::to_vfio));
  ASSERT_EQ(outcome.results.at(0).status, Status::refused);
  EXPECT_THAT(outcome.results[0].refusal.reasons, ElementsAre("0000:65:00.0 carries 1 vGPU"));
  EXPECT_THAT(kernel_.changes(), IsEmpty());

  ctx.must_stay = [](const Inventory& /*inventory*/) -> Result<std::map<PciAddress, std::string>> {
    return fail(Errc::malformed_host, "mdev bus");
  };
  const auto blind = must(apply_in(ctx, Direction::to_vfio));
  ASSERT_EQ(blind.results.at(0).status, Status::failed);
  EXPECT_EQ(test::error_of(blind.results[0]).message, "scan again for vGPUs: mdev bus");
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

// Nobody has asked who holds the groups of those.
TEST_F(RebindApplyTest, RebindsNothingThatIsCutIntoMediatedDevices) {
  kernel_.add_driver({.name = "i915", .ids = {"8086:3e98"}});
  kernel_.add_function({.address = "0000:66:00.0", .ids = "8086:3e98", .group = 41, .driver = "i915"});
  const std::string mediated = "sys/devices/pci0000:00/0000:66:00.0/83b8f4f2-509f-382f-3c1e-e6bfe0fa1001";
  kernel_.link(mediated + "/mdev_type", "../mdev_supported_types/i915-GVTg_V5_4");
  RebindRequest request;
  request.accelerators = {at("0000:65:00.0"), at("0000:66:00.0")};
  const auto outcome = must(apply_rebinds(context(), request, Direction::to_vfio));
  ASSERT_EQ(outcome.results.at(0).status, Status::refused);
  EXPECT_THAT(outcome.results[0].refusal.reasons, ElementsAre("0000:66:00.0 carries 1 mediated device"));
  EXPECT_THAT(kernel_.changes(), IsEmpty());

  kernel_.remove(mediated);
  EXPECT_EQ(must(apply_rebinds(context(), request, Direction::to_vfio)).results.at(0).status, Status::done);
}

// As on a kernel without CONFIG_VFIO_GROUP.
TEST_F(RebindApplyTest, IsContentWithTheDevicesOwnNodesWhereGroupsHaveNone) {
  kernel_.make_vfio_nodes({.of_groups = false, .of_devices = false});
  const auto none = must(apply(Direction::to_vfio));
  ASSERT_EQ(none.results.at(0).status, Status::failed);
  EXPECT_THAT(test::error_of(none.results[0]).message, HasSubstr("is bound, but /dev/vfio/41 is not there"));

  kernel_.make_vfio_nodes({.of_groups = false, .of_devices = true});
  EXPECT_EQ(must(apply(Direction::to_vfio)).results.at(0).status, Status::done);
  EXPECT_EQ(must(apply(Direction::back)).results.at(0).status, Status::done);
}

TEST_F(RebindApplyTest, SaysThatAHostHasNoIommu) {
  FakeKernel bare;
  test::add_host_drivers(bare);
  bare.add_function({.address = "0000:01:00.0", .driver = "nouveau"});
  auto ctx = context();
  ctx.host = &bare;
  ctx.writer = &bare;
  const auto outcome = must(apply_rebinds(
      ctx, {.accelerators = {at("0000:01:00.0")}, .with = {}, .untouchable = {}}, Direction::to_vfio));
  ASSERT_EQ(outcome.results.at(0).status, Status::refused);
  EXPECT_THAT(outcome.results[0].refusal.reasons, testing::Contains(HasSubstr("no active IOMMU")));
  EXPECT_THAT(outcome.results[0].refusal.hint, HasSubstr("intel_iommu=on"));
  EXPECT_THAT(bare.changes(), IsEmpty());
}

TEST_F(RebindApplyTest, AsksAboutEveryEndpointOfTheGroup) {
  apply(Direction::to_vfio).value();
  EXPECT_THAT(probe_.asked, ElementsAre("0000:65:00.0", "0000:65:00.1", "0000:65:00.2", "0000:65:00.3"));
}

}  // namespace
}  // namespace ferry::vfio
