// SPDX-License-Identifier: Apache-2.0
// The way back where it cannot be gone whole: what has no driver to go to stays where it is, a record that
// nobody can read keeps its own group alone, and a way back that was broken off can be gone either way.
#include <cerrno>
#include <sys/utsname.h>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vfio/machines.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::error_of;
using test::FakeKernel;
using test::HostChange;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Status = RebindResult::Status;

constexpr const char* kGpu = "0000:65:00.0";
constexpr const char* kOther = "0000:01:00.0";

/// A card with four functions, its GPU on a driver that can be unloaded, and a GPU alone in group 5.
class Rollback : public testing::Test {
 protected:
  Rollback() {
    test::add_host_drivers(kernel_);
    kernel_.add_driver({.name = "nova", .ids = {"10de:2684"}});
    test::add_four_function_card(kernel_);
    must(kernel_.write_attribute("sys/bus/pci/drivers/nouveau/unbind", kGpu));
    must(kernel_.write_attribute("sys/bus/pci/drivers/nova/bind", kGpu));
    kernel_.add_function({.address = kOther, .group = 5, .driver = "nouveau"});
    must(apply(Direction::to_vfio, {kGpu, kOther}));
    kernel_.forget_changes();
  }
  RebindContext context() {
    return {
        .host = &kernel_, .writer = &kernel_, .probe = &probe_, .rules = test::gpu_rules(), .on_step = {}};
  }
  Result<RebindOutcome> apply(Direction direction, const std::vector<std::string>& devices) {
    RebindRequest request;
    for (const auto& device : devices) request.accelerators.push_back(at(device));
    return apply_rebinds(context(), request, direction);
  }
  RebindResult back(const std::string& device = kGpu) {
    return must(apply(Direction::back, {device})).results.at(0);
  }
  void unload(const std::string& driver) {
    kernel_.remove("sys/bus/pci/drivers/" + driver);
    kernel_.remove("sys/module/" + driver);
  }
  void unload_nova() { unload("nova"); }
  std::vector<std::string> drivers() const {
    return {kernel_.driver_of(kGpu), kernel_.driver_of("0000:65:00.1"), kernel_.driver_of("0000:65:00.2")};
  }
  FakeKernel kernel_;
  test::TableProbe probe_;
};

// Nothing says which modules the host has.
TEST_F(Rollback, LeavesAFunctionOnVfioWhoseModuleIsNotFound) {
  unload_nova();
  for (int run = 0; run < 2; ++run) {
    const RebindResult result = back();
    ASSERT_EQ(result.status, Status::failed);
    EXPECT_THAT(error_of(result).message, HasSubstr("load module nova: "));
    EXPECT_THAT(error_of(result).message, HasSubstr("; 0000:65:00.0 stays on vfio-pci"));
    EXPECT_THAT(error_of(result).message, Not(HasSubstr("more failed")));
    EXPECT_THAT(error_of(result).hint, HasSubstr("remove /run/ferry/hostd/moves/41.json"));
    EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "snd_hda_intel", "xhci_hcd"));
    EXPECT_EQ(kernel_.override_of(kGpu), "vfio-pci");
  }
  kernel_.add_module({.name = "nova", .ids = {"10de:2684"}});
  EXPECT_EQ(back().status, Status::done);
  EXPECT_THAT(drivers(), ElementsAre("nova", "snd_hda_intel", "xhci_hcd"));
}

/// The driver came in a container, with its module, and went with it.
class RollbackToAContainersDriver : public Rollback {
 protected:
  RollbackToAContainersDriver() {
    unload_nova();
    list_modules(kOthers);
  }
  /// What depmod wrote down of the host's modules: of others it is known that they are not there.
  void list_modules(const std::string& modules_dep) { kernel_.file(modules() / "modules.dep", modules_dep); }
  static std::filesystem::path modules() {
    utsname system{};
    ::uname(&system);
    return std::filesystem::path("lib/modules") / system.release;
  }
  static constexpr const char* kOthers =
      "kernel/drivers/vfio/pci/vfio-pci.ko.zst: kernel/drivers/vfio/vfio.ko.zst\n"
      "kernel/drivers/gpu/supernova.ko: kernel/drivers/gpu/nova.ko\n";
};

TEST_F(RollbackToAContainersDriver, FreesTheFunctionForIt) {
  const RebindResult result = back();
  ASSERT_EQ(result.status, Status::done);
  EXPECT_THAT(drivers(), ElementsAre("nouveau", "snd_hda_intel", "xhci_hcd"));
  EXPECT_EQ(kernel_.override_of(kGpu), "");
  EXPECT_THAT(result.rebind.notes, ElementsAre("0000:65:00.0 had nova, which is not loaded, and the host has "
                                               "no module nova to load: the kernel chooses"));
}

TEST_F(RollbackToAContainersDriver, LeavesItWithoutADriverWhereNoneTakesItAndIsAtHomeThen) {
  unload("nouveau");
  RebindRequest request;
  request.accelerators = {at(kGpu)};
  const auto preview = must(preview_rebinds(context(), request, Direction::back));
  ASSERT_EQ(preview.plan.rebinds.size(), 1U);
  EXPECT_EQ(preview.plan.rebinds[0].members.at(1).driver_after, kKernelsChoice);
  EXPECT_THAT(preview.plan.rebinds[0].notes, ElementsAre(HasSubstr("the host has no module nova to load")));

  const RebindResult result = back();
  ASSERT_EQ(result.status, Status::done);
  EXPECT_THAT(drivers(), ElementsAre("", "snd_hda_intel", "xhci_hcd"));
  EXPECT_EQ(kernel_.override_of(kGpu), "");
  EXPECT_EQ(result.rebind.members.at(1).driver_after, "");
  EXPECT_THAT(result.rebind.notes, testing::Contains(HasSubstr("one that is loaded later will")));
  EXPECT_FALSE(kernel_.exists("run/ferry/hostd/moves/41.json"));
  for (const HostChange& change : kernel_.changes()) EXPECT_NE(change.path, "module");

  kernel_.forget_changes();
  EXPECT_EQ(back().status, Status::already);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

// As one that is loaded right then does.
TEST_F(RollbackToAContainersDriver, GivesItTheOverrideThatItHad) {
  auto record = must(read_undo_journal(kernel_)).members;
  record.at(at(kGpu)).driver_override = "nova";
  const PriorState gpu = record.at(at(kGpu));
  must(write_undo_journal(kernel_, 41, {{at(kGpu), gpu}}, {at(kGpu)}));
  EXPECT_EQ(back().status, Status::done);
  EXPECT_EQ(kernel_.driver_of(kGpu), "") << "nouveau is not the one";
  EXPECT_EQ(kernel_.override_of(kGpu), "nova");
}

// The other is here, and would take the function before the container brings the one that it had.
TEST_F(RollbackToAContainersDriver, PutsNoOverrideBackThatNamesAnother) {
  auto record = must(read_undo_journal(kernel_)).members;
  record.at(at(kGpu)).driver_override = "nouveau";
  const PriorState gpu = record.at(at(kGpu));
  must(write_undo_journal(kernel_, 41, {{at(kGpu), gpu}}, {at(kGpu)}));
  EXPECT_EQ(back().status, Status::done);
  EXPECT_EQ(kernel_.override_of(kGpu), "");
  EXPECT_THAT(kernel_.writes(), testing::Not(testing::Contains(testing::HasSubstr(
                                    "nouveau > sys/bus/pci/devices/0000:65:00.0/driver_override"))));
}

TEST_F(RollbackToAContainersDriver, IsGoneOnWhereItWasBrokenOff) {
  must(kernel_.write_attribute("sys/bus/pci/devices/0000:65:00.0/driver_override", "\n"));
  must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", kGpu));
  kernel_.forget_changes();
  EXPECT_EQ(back().status, Status::done);
  EXPECT_EQ(kernel_.driver_of(kGpu), "nouveau");
}

TEST_F(RollbackToAContainersDriver, LeavesWhatSomebodyElseHasRebound) {
  must(kernel_.write_attribute("sys/bus/pci/devices/0000:65:00.0/driver_override", "\n"));
  must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", kGpu));
  must(kernel_.write_attribute("sys/bus/pci/drivers/nouveau/bind", kGpu));
  const RebindResult result = back();
  EXPECT_EQ(result.status, Status::done) << "the others of its card";
  EXPECT_EQ(kernel_.driver_of(kGpu), "nouveau");
  EXPECT_EQ(result.rebind.members.at(1).driver_after, "nouveau");
  EXPECT_THAT(result.rebind.notes, IsEmpty()) << "the kernel has chosen it, for all that is known";
}

// Each way in which a load may bring it for all that is known: it is loaded, and in vain here.
TEST_F(RollbackToAContainersDriver, IsLoadedWhereTheHostMayHaveIt) {
  const std::map<std::string, std::pair<std::filesystem::path, std::string>> ways = {
      {"a module", {modules() / "modules.dep", std::string(kOthers) + "updates/dkms/nova.ko.xz:\n"}},
      {"built in", {modules() / "modules.builtin", "kernel/drivers/gpu/nova.ko\n"}},
      {"an alias of a module's own", {modules() / "modules.alias", "alias no[uv]a supernova\n"}},
      {"the administrator's alias", {"etc/modprobe.d/gpu.conf", "alias nova supernova\n"}},
      {"a command", {"etc/modprobe.d/gpu.conf", "install nova modprobe supernova\n"}},
      {"an empty list", {modules() / "modules.dep", ""}},
      {"a list that is none", {modules() / "modules.dep", std::string("\x01")}},
      {"a configuration that is none", {"etc/modprobe.d/gpu.conf", std::string("\x01")}},
  };
  for (const auto& [what, file] : ways) {
    const auto before = kernel_.read_file(file.first);
    kernel_.file(file.first, file.second);
    kernel_.forget_changes();
    const RebindResult result = back();
    EXPECT_EQ(result.status, Status::failed) << what;
    EXPECT_THAT(kernel_.changes(), testing::Contains(HostChange{"module", "nova"})) << what;
    EXPECT_EQ(kernel_.driver_of(kGpu), "vfio-pci") << what;
    kernel_.remove(file.first);
    if (before) kernel_.file(file.first, *before);
  }
  EXPECT_EQ(back().status, Status::done);
}

TEST_F(RollbackToAContainersDriver, IsOfAKernelWhoseModulesWereRemoved) {
  kernel_.remove("lib/modules");
  EXPECT_EQ(back().status, Status::failed) << "nothing is known";
  kernel_.directory("lib/modules/9.9.9-next");
  EXPECT_EQ(back().status, Status::done);
}

TEST_F(RollbackToAContainersDriver, FailsWhereTheLoadOfWhatIsThereFails) {
  list_modules("extra/nova.ko:\n");
  kernel_.add_module({.name = "nova", .ids = {"10de:2684"}});
  kernel_.fail_for_good({.path = "module", .value = "nova"}, ENODEV);
  const RebindResult result = back();
  ASSERT_EQ(result.status, Status::failed);
  EXPECT_THAT(error_of(result).message, HasSubstr("load module nova: "));
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "snd_hda_intel", "xhci_hcd"));
  kernel_.mend();
  EXPECT_EQ(back().status, Status::done);
  EXPECT_THAT(drivers(), ElementsAre("nova", "snd_hda_intel", "xhci_hcd"));
}

/// Unloaded while its GPU was on the way to vfio, which fails.
class UnloadedOnTheWay : public RollbackToAContainersDriver {
 protected:
  void bind_in_vain() {
    must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", kGpu));
    kernel_.fail_for_good({.path = "sys/bus/pci/drivers/vfio-pci/bind", .value = kGpu}, EBUSY);
    const RebindResult result = must(apply(Direction::to_vfio, {kGpu})).results.at(0);
    ASSERT_EQ(result.status, Status::failed);
    EXPECT_THAT(error_of(result).message, HasSubstr("everything written to this group was taken back"));
    EXPECT_EQ(kernel_.override_of(kGpu), "");
  }
};

TEST_F(UnloadedOnTheWay, IsNotMissed) {
  unload("nouveau");
  bind_in_vain();
  EXPECT_EQ(kernel_.driver_of(kGpu), "");
}

TEST_F(UnloadedOnTheWay, MayBeReplacedByTheKernel) {
  bind_in_vain();
  EXPECT_EQ(kernel_.driver_of(kGpu), "nouveau");
}

TEST_F(Rollback, LeavesAFunctionOnVfioWhoseModuleBringsAnotherDriver) {
  unload_nova();
  kernel_.add_module({.name = "supernova", .module = "nova", .ids = {"10de:2684"}});
  const RebindResult result = back();
  ASSERT_EQ(result.status, Status::failed);
  EXPECT_THAT(error_of(result).message,
              HasSubstr("load module nova: it is loaded and has not brought driver nova"));
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "snd_hda_intel", "xhci_hcd"));
}

TEST_F(Rollback, LeavesAFunctionOnVfioWhoseOverrideStays) {
  // One override is refused for good.
  class Refusing final : public HostWriter {
   public:
    explicit Refusing(FakeKernel& kernel) : kernel_(&kernel) {}
    Result<> write(const std::filesystem::path& path, std::string_view value,
                   std::chrono::milliseconds deadline) override {
      if (path == sysfs_path(at("0000:65:00.1")) / "driver_override")
        return fail(error_from_errno(EIO, "write /" + path.string()));
      return kernel_->write(path, value, deadline);
    }
    Result<> load_module(std::string_view name, std::chrono::milliseconds deadline) override {
      return kernel_->load_module(name, deadline);
    }
    Result<> unload_module(std::string_view name, std::chrono::milliseconds deadline) override {
      return kernel_->unload_module(name, deadline);
    }
    Result<> run(const HostCommand& command, std::chrono::milliseconds deadline) override {
      return kernel_->run(command, deadline);
    }
    Result<std::string> read(const std::filesystem::path& path, std::chrono::milliseconds deadline) override {
      return kernel_->read(path, deadline);
    }

   private:
    FakeKernel* kernel_;
  } refusing(kernel_);
  auto ctx = context();
  ctx.writer = &refusing;
  RebindRequest request;
  request.accelerators = {at(kGpu)};
  const auto outcome = must(apply_rebinds(ctx, request, Direction::back));
  ASSERT_EQ(outcome.results.at(0).status, Status::failed);
  EXPECT_THAT(error_of(outcome.results[0]).message, HasSubstr("; 0000:65:00.1 stays on vfio-pci"));
  EXPECT_THAT(drivers(), ElementsAre("nova", "vfio-pci", "xhci_hcd"));
  EXPECT_EQ(back().status, Status::done);
  EXPECT_THAT(drivers(), ElementsAre("nova", "snd_hda_intel", "xhci_hcd"));
}

TEST_F(Rollback, LeavesOnVfioWhatTheHostsDriverDoesNotTake) {
  kernel_.fail_for_good({.path = "sys/bus/pci/drivers/nova/bind", .value = kGpu}, EIO);
  for (int run = 0; run < 2; ++run) {
    const RebindResult result = back();
    ASSERT_EQ(result.status, Status::failed);
    EXPECT_THAT(error_of(result).message, HasSubstr("; 0000:65:00.0 stays on vfio-pci"));
    EXPECT_THAT(error_of(result).hint, HasSubstr("run the same command again: the record is kept"));
    EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "snd_hda_intel", "xhci_hcd"));
    EXPECT_EQ(kernel_.override_of(kGpu), "vfio-pci") << "else a driver that is loaded later takes it";
  }
  kernel_.mend();
  EXPECT_EQ(back().status, Status::done);
  EXPECT_THAT(drivers(), ElementsAre("nova", "snd_hda_intel", "xhci_hcd"));
}

// The GPU is back, so its users have it rightly; only the audio function is left to unbind.
TEST_F(Rollback, IsFinishedBesideUsersOfAFunctionThatIsBack) {
  constexpr const char* kAudio = "0000:65:00.1";
  const DeviceUser vm{.kind = DeviceUser::Kind::virtual_machine,
                      .name = "tenant",
                      .pid = 412,
                      .what = "/dev/vfio/41",
                      .pod_uid = {}};
  for (const bool driverless : {false, true}) {
    SCOPED_TRACE(driverless);
    kernel_.fail_for_good({.path = "sys/bus/pci/drivers/snd_hda_intel/bind", .value = kAudio}, EIO);
    ASSERT_EQ(back().status, Status::failed);
    ASSERT_THAT(drivers(), ElementsAre("nova", "vfio-pci", "xhci_hcd"));
    kernel_.mend();
    if (driverless) must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", kAudio));
    kernel_.forget_changes();
    probe_.users[kGpu] = {{.name = "job", .pid = 9, .what = "/dev/nvidia0", .pod_uid = {}}};
    if (!driverless) {
      probe_.users[kAudio] = {vm};
      const RebindResult refused = back();
      ASSERT_EQ(refused.status, Status::refused);
      EXPECT_THAT(refused.refusal.reasons, ElementsAre(HasSubstr("0000:65:00.1 is in use: VM tenant")));
      probe_.users.erase(kAudio);
    }
    EXPECT_EQ(back().status, Status::done);
    EXPECT_THAT(drivers(), ElementsAre("nova", "snd_hda_intel", "xhci_hcd"));
    EXPECT_THAT(kernel_.writes(), testing::Each(Not(HasSubstr(kGpu))));
    probe_.users.clear();
    must(apply(Direction::to_vfio, {kGpu}));
  }
}

TEST_F(Rollback, PutsTheOverrideBackOnWhatVfioKeeps) {
  kernel_.fail_for_good({.path = "sys/bus/pci/drivers/vfio-pci/unbind", .value = kGpu}, EIO);
  EXPECT_THAT(error_of(back()).message, HasSubstr("; 0000:65:00.0 stays on vfio-pci"));
  EXPECT_EQ(kernel_.override_of(kGpu), "vfio-pci");
}

TEST_F(Rollback, SaysWhatIsLeftWithoutADriver) {
  kernel_.fail_for_good({.path = "sys/bus/pci/drivers/nova/bind", .value = kGpu}, EIO);
  kernel_.fail_for_good({.path = "sys/bus/pci/drivers/vfio-pci/bind", .value = kGpu}, EBUSY);
  const RebindResult result = back();
  ASSERT_EQ(result.status, Status::failed);
  EXPECT_THAT(error_of(result).message, HasSubstr("; 0000:65:00.0 has no driver now"));
  kernel_.mend();
  EXPECT_EQ(back().status, Status::done);
}

TEST_F(Rollback, WritesNoMoreOnceStayingHangs) {
  kernel_.fail_for_good({.path = "sys/bus/pci/drivers/nova/bind", .value = kGpu}, EIO);
  kernel_.hang_write({.path = "sys/bus/pci/drivers/vfio-pci/bind", .value = kGpu});
  EXPECT_EQ(error_of(back()).code, Errc::stuck);
  kernel_.forget_changes();
  EXPECT_EQ(back().status, Status::refused);
  EXPECT_THAT(kernel_.writes(), IsEmpty());
}

// Nobody knows what it had; the kernel's own choice has failed.
TEST_F(Rollback, LeavesOnVfioWhatTheKernelFindsNoDriverFor) {
  must(erase_from_undo_journal(kernel_, {at(kOther)}));
  kernel_.fail_for_good({.path = "sys/bus/pci/drivers_probe", .value = kOther}, EINVAL);
  EXPECT_EQ(back(kOther).status, Status::failed);
  EXPECT_EQ(kernel_.driver_of(kOther), "vfio-pci");
  EXPECT_EQ(kernel_.override_of(kOther), "vfio-pci");
}

TEST_F(Rollback, KeepsOnlyTheGroupWhoseRecordCannotBeRead) {
  kernel_.file("run/ferry/hostd/moves/41.json", "{\"version\":1,");
  for (const Direction direction : {Direction::back, Direction::to_vfio}) {
    // Driverless, it is in need of the record either way.
    if (direction == Direction::to_vfio)
      must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", kGpu));
    kernel_.forget_changes();
    const auto outcome = must(apply(direction, {kGpu, kOther}));
    ASSERT_EQ(outcome.results.size(), 2U);
    EXPECT_EQ(outcome.results[0].status, Status::refused);
    EXPECT_THAT(outcome.results[0].refusal.reasons, ElementsAre(HasSubstr("/run/ferry/hostd/moves/41.json")));
    EXPECT_THAT(outcome.results[0].refusal.hint, HasSubstr("mend it, or remove it"));
    EXPECT_EQ(outcome.results[1].status, Status::done);
    for (const auto& change : kernel_.changes()) {
      EXPECT_THAT(change.path, Not(HasSubstr("0000:65:")));
      EXPECT_THAT(change.value, Not(HasSubstr("0000:65:")));
    }
    EXPECT_THAT(outcome.notes, testing::Contains(HasSubstr("group 41 keeps its drivers")));
  }
}

// After an unbind that was killed, the record says that Ferry has put it there, and the override is gone.
TEST_F(Rollback, BrokenOffIsMendedByABindWhoeverUsesTheDevice) {
  must(kernel_.write_attribute("sys/bus/pci/devices/0000:65:00.0/driver_override", "\n"));
  kernel_.forget_changes();
  probe_.users[kGpu] = {{.kind = DeviceUser::Kind::virtual_machine,
                         .name = "tenant",
                         .pid = 412,
                         .what = "/dev/vfio/41",
                         .pod_uid = {}}};
  EXPECT_EQ(must(apply(Direction::to_vfio, {kGpu})).results.at(0).status, Status::done);
  EXPECT_THAT(kernel_.writes(), ElementsAre("vfio-pci > sys/bus/pci/devices/0000:65:00.0/driver_override"));
  EXPECT_EQ(must(apply(Direction::to_vfio, {kGpu})).results.at(0).status, Status::already);
  probe_.users.clear();
  EXPECT_EQ(back().status, Status::done);
  EXPECT_EQ(kernel_.driver_of(kGpu), "nova");
}

TEST_F(Rollback, IsNotGoneBecauseAnOverrideCannotBeMended) {
  must(kernel_.write_attribute("sys/bus/pci/devices/0000:65:00.0/driver_override", "\n"));
  kernel_.forget_changes();
  kernel_.fail_change(1, EIO);
  EXPECT_EQ(must(apply(Direction::to_vfio, {kGpu})).results.at(0).status, Status::failed);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "vfio-pci"));
}

// What others have put on vfio, and Ferry has no record of.
TEST(RollbackByOthers, SaysWhatTheKernelHasChosen) {
  FakeKernel kernel;
  kernel.add_driver({.name = "vfio-pci", .vfio = true});
  test::add_host_drivers(kernel);
  const auto add = [&](const char* address, const char* ids, std::uint32_t class_code) {
    kernel.add_function({.address = address,
                         .ids = ids,
                         .class_code = class_code,
                         .group = 41,
                         .driver = "vfio-pci",
                         .driver_override = "vfio-pci"});
  };
  add(kGpu, "10de:1eb8", 0x030200);  // its driver is not loaded
  add("0000:65:00.1", "10de:22ba", 0x040300);
  test::TableProbe probe;
  const RebindContext context{
      .host = &kernel, .writer = &kernel, .probe = &probe, .rules = test::gpu_rules(), .on_step = {}};
  RebindRequest request;
  request.accelerators = {at(kGpu)};
  const RebindResult result = must(apply_rebinds(context, request, Direction::back)).results.at(0);
  EXPECT_EQ(result.status, Status::done);
  EXPECT_EQ(kernel.driver_of("0000:65:00.1"), "snd_hda_intel");
  ASSERT_EQ(result.rebind.members.size(), 2U);
  EXPECT_EQ(result.rebind.members[0].driver_after, "");
  EXPECT_EQ(result.rebind.members[1].driver_after, "snd_hda_intel");
  EXPECT_THAT(result.rebind.notes, testing::Contains(HasSubstr(std::string(kGpu) + " has no driver now")));
}

/// What somebody else has put on vfio, its way back broken off by a kill: all overrides are gone, and the
/// GPU's driver.
class BrokenOffForOthers : public Rollback {
 protected:
  BrokenOffForOthers() {
    std::map<PciAddress, PriorState> members;
    const Inventory inventory = must(scan(kernel_));
    std::vector<PciAddress> all;
    for (const char* function : {"0000:65:00.0", "0000:65:00.1", "0000:65:00.2"}) {
      all.push_back(at(function));
      members[at(function)] = {.ids = inventory.find(at(function))->ids(),
                               .driver = {},
                               .driver_override = "vfio-pci",
                               .role = "companion",
                               .kernels_choice = true};
      must(kernel_.write_attribute(sysfs_path(at(function)) / "driver_override", "\n"));
    }
    must(erase_from_undo_journal(kernel_, all));
    must(write_undo_journal(kernel_, 41, members));
    must(kernel_.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", kGpu));
    kernel_.forget_changes();
  }
};

TEST_F(BrokenOffForOthers, IsMendedByABind) {
  EXPECT_EQ(must(apply(Direction::to_vfio, {kGpu})).results.at(0).status, Status::done);
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "vfio-pci"));
}

// They are on somebody else's vfio, and in use there perhaps.
TEST_F(BrokenOffForOthers, KeepsTheirsOnVfioWhenTheBindIsUndone) {
  kernel_.fail_for_good({.path = "sys/bus/pci/drivers/vfio-pci/bind", .value = kGpu}, EBUSY);
  const RebindResult result = must(apply(Direction::to_vfio, {kGpu})).results.at(0);
  ASSERT_EQ(result.status, Status::failed);
  EXPECT_THAT(error_of(result).message, HasSubstr("everything written to this group was taken back"));
  EXPECT_THAT(drivers(), ElementsAre(testing::AnyOf("nova", "nouveau"), "vfio-pci", "vfio-pci"));
  for (const char* function : {"0000:65:00.1", "0000:65:00.2"})
    EXPECT_EQ(kernel_.override_of(function), "vfio-pci") << "as it was found";
  EXPECT_THAT(must(read_undo_journal(kernel_)).members,
              testing::Not(testing::Contains(testing::Key(at(kGpu)))));
}

// By another tool, by its IDs perhaps: a node that runs is taken over without a write.
TEST_F(Rollback, LeavesTheOverrideOfWhatSomebodyElsePutOnVfio) {
  must(erase_from_undo_journal(kernel_, {at(kOther)}));
  must(kernel_.write_attribute("sys/bus/pci/devices/0000:01:00.0/driver_override", "\n"));
  kernel_.forget_changes();
  EXPECT_EQ(must(apply(Direction::to_vfio, {kOther})).results.at(0).status, Status::already);
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

}  // namespace
}  // namespace ferry::vfio
