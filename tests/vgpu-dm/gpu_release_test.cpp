// SPDX-License-Identifier: Apache-2.0
// GPUs that are switched while services of the host have them open: who is on the release list lets go
// before, and takes hold again whatever happens, even to us.
#include <cerrno>
#include <map>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/support/file_services.h"
#include "tests/vgpu-dm/kind_node.h"
#include "tests/vgpu-dm/mig_node.h"

namespace ferry::vgpu {
namespace {

using Kind = GpuOutcome::Kind;
using test::message_of;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr const char* kDaemon = "nvidia-persistenced.service";
constexpr const char* kDcgm = "nvidia-dcgm.service";
constexpr const char* kRecord = "run/ferry/hostd/stopped-services.json";
constexpr const char* kToMig = "{H200X-2-35C: 2}";

vfio::DeviceUser process_of(const std::string& unit) {
  return {.name = "daemon", .pid = 77, .what = "/dev/nvidia0", .pod_uid = {}, .service = unit};
}

/// Holds on to GPUs until it is logged otherwise.
class Persistence final : public vfio::PersistenceSwitch {
 public:
  std::vector<std::string> orders;
  bool on_of(const std::string& gpu) const { return off_.count(gpu) == 0; }
  Result<> set(const vfio::PciAddress& gpu, bool on) override {
    orders.push_back(gpu.text() + (on ? " on" : " off"));
    if (on) {
      off_.erase(gpu.text());
    } else {
      off_.insert(gpu.text());
    }
    return {};
  }

 private:
  std::set<std::string> off_;
};

/// A node of GPUs that services, while they run, and others have open.
template <typename Node>
class Held : public Node {
 public:
  template <typename... Args>
  explicit Held(Args... args) : Node(args...) {
    services.add(kDaemon);
    services.add(kDcgm);
    this->probe.before_scan = [this](int look) {
      this->probe.users = others;
      for (const auto& [gpu, unit] : held) {
        const bool closes_alone = unit == kDaemon && !persistence.on_of(gpu);
        if (!services.runs(unit) || closes_alone) continue;
        vfio::DeviceUser& user = this->probe.users[gpu].emplace_back(process_of(unit));
        if (!daemon_in_container) continue;
        user.service.clear();
        user.pod_uid = "0f2c1d3e-1111-2222-3333-444455556666";
        user.closes_on_request = true;
      }
      if (look == 2 && before_second_look) before_second_look();
    };
  }
  VgpuHost host() {
    VgpuHost on = Node::host();
    on.release = release;
    on.service_manager = service_manager;
    on.persistence = by_gpu ? &persistence : nullptr;
    on.on_release = [this](const vfio::Step& step) { logged.push_back(step.text()); };
    return on;
  }
  Result<VgpuOutcome> try_to_apply(const Profile& profile) {
    logged.clear();
    return apply_profile(host(), profile, [this](const VgpuStep& step, const Result<>& done) {
      logged.push_back(step.text() + (done ? "" : ": " + done.error().message));
    });
  }
  VgpuOutcome apply(const char* vgpus, const char* gpus = "[0]") {
    return test::must(try_to_apply(test::on(gpus, vgpus)));
  }
  VgpuPlan plan(const char* vgpus, const char* gpus = "[0]") {
    const Profile profile = test::on(gpus, vgpus);
    return plan_profile(profile, test::must(look(host(), {&profile, 1})));
  }

  test::FileServices services{this->kernel};
  Persistence persistence;
  bool by_gpu = false;
  bool daemon_in_container = false;
  vfio::ServiceManager* service_manager = &services;
  std::set<std::string> release = {kDaemon, kDcgm};
  std::multimap<std::string, std::string> held;                 ///< units by GPU
  std::map<std::string, std::vector<vfio::DeviceUser>> others;  ///< by GPU
  std::function<void()> before_second_look;
  std::vector<std::string> logged;
};

/// One GPU, as after a boot, that DCGM has open.
class Mig : public Held<test::MigNode> {
 public:
  Mig() { held.emplace(kGpu, kDcgm); }
};

/// Two GPUs without virtual functions.
class Two : public Held<test::KindNode> {
 public:
  Two() : Held(&mdev::vendor_vfio(), 2U, false) {}
};

const vfio::Releasable kDcgmItself{.kind = vfio::Releasable::Kind::service, .name = kDcgm};

TEST(GpuRelease, IsPlanned) {
  Mig node;
  const GpuPlan plan = node.plan(kToMig).gpus.at(0);
  EXPECT_FALSE(plan.refusal) << message_of(plan.refusal);
  EXPECT_THAT(plan.releases, ElementsAre(kDcgmItself));
  EXPECT_THAT(node.services.orders, IsEmpty());
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST(GpuRelease, ComesBeforeTheFirstWriteAndEndsBehindTheLast) {
  Mig node;
  const VgpuOutcome outcome = node.apply(kToMig);
  EXPECT_EQ(outcome.status(), ExitStatus::done) << message_of(outcome.gpus.at(0).error);
  EXPECT_EQ(node.logged.front(), "stop nvidia-dcgm.service");
  EXPECT_EQ(node.logged.at(1), "switch MIG mode on on 0000:17:00.0");
  EXPECT_EQ(node.logged.back(), "start nvidia-dcgm.service");
  EXPECT_THAT(outcome.gpus.at(0).released, ElementsAre(kDcgmItself));
  EXPECT_TRUE(node.services.runs(kDcgm));
  EXPECT_FALSE(node.kernel.exists(kRecord));
}

TEST(GpuRelease, OfWhoIsNotOnTheListIsRefusedByName) {
  Mig node;
  node.release = {kDaemon};
  const GpuPlan plan = node.plan(kToMig).gpus.at(0);
  ASSERT_TRUE(plan.refusal);
  EXPECT_EQ(plan.refusal->message,
            "GPU 0 (0000:17:00.0): is in use: process daemon (pid 77) of nvidia-dcgm.service holds "
            "/dev/nvidia0, and has to be free to switch MIG mode on on 0000:17:00.0");
  EXPECT_THAT(plan.refusal->hint, HasSubstr("--release nvidia-dcgm.service"));
  EXPECT_THAT(plan.steps, IsEmpty());
  const VgpuOutcome outcome = node.apply(kToMig);
  EXPECT_EQ(outcome.gpus.at(0).kind, Kind::refused);
  EXPECT_EQ(outcome.status(), ExitStatus::refused);
  EXPECT_THAT(node.services.orders, IsEmpty());
  EXPECT_THAT(node.kernel.writes(), IsEmpty());
}

TEST(GpuRelease, IsOfNoUseWithoutAServiceManager) {
  Mig node;
  node.service_manager = nullptr;
  EXPECT_EQ(node.apply(kToMig).gpus.at(0).kind, Kind::refused);
  EXPECT_THAT(node.kernel.writes(), IsEmpty());
}

// Nobody is stopped for a GPU that somebody keeps all the same.
TEST(GpuRelease, NeverTakesAGpuFromWhoComputesOrRunsAVm) {
  for (const vfio::DeviceUser& user :
       {vfio::DeviceUser{.name = "python", .pid = 5, .what = "/dev/nvidia0", .pod_uid = {}},
        vfio::DeviceUser{.name = "pod", .pid = 6, .what = "/dev/nvidia0", .pod_uid = "u", .service = kDcgm},
        vfio::DeviceUser{.kind = vfio::DeviceUser::Kind::virtual_machine,
        .name = "render",
        .pid = 7,
        .what = "/dev/nvidia0",
        .pod_uid = {}}}) {
    Mig node;
    node.others[Mig::kGpu] = {user};
    const VgpuOutcome outcome = node.apply(kToMig);
    EXPECT_EQ(outcome.gpus.at(0).kind, Kind::refused) << user.text();
    EXPECT_THAT(message_of(outcome.gpus.at(0).error), HasSubstr(user.text()));
    EXPECT_THAT(node.services.orders, IsEmpty());
    EXPECT_THAT(node.kernel.writes(), IsEmpty());
  }
}

// It is what drives their switches; NVIDIA's own tools turn functions on while it runs.
TEST(GpuRelease, IsNotForTheManagerOfVgpus) {
  Mig node;
  node.others[Mig::kGpu] = {
      {.name = "nvidia-vgpu-mgr", .pid = 412, .what = "/dev/nvidia0", .pod_uid = {}, .service = {}}};
  const VgpuOutcome outcome = node.apply(kToMig);
  EXPECT_EQ(outcome.status(), ExitStatus::done) << message_of(outcome.gpus.at(0).error);
}

TEST(GpuRelease, IsAskedForAgainInARollback) {
  Mig node;
  const VgpuOutcome outcome = node.apply(kToMig);
  ASSERT_EQ(outcome.status(), ExitStatus::done) << message_of(outcome.gpus.at(0).error);
  node.logged.clear();
  const auto errors =
      put_back(node.host(), test::on("[0]", kToMig), outcome.gpus.at(0),
               [&node](const VgpuStep& step, const Result<>& done) {
                 node.logged.push_back(step.text() + (done ? "" : ": " + done.error().message));
               });
  EXPECT_THAT(errors, IsEmpty());
  ASSERT_FALSE(node.logged.empty());
  EXPECT_EQ(node.logged.front(), "stop nvidia-dcgm.service");
  EXPECT_THAT(node.logged, Contains("switch MIG mode off on 0000:17:00.0"));
  EXPECT_EQ(node.logged.back(), "start nvidia-dcgm.service");
  EXPECT_TRUE(node.services.runs(kDcgm));
}

TEST(GpuRelease, IsAskedOfNobodyForVgpusAlone) {
  Mig node;
  EXPECT_EQ(node.apply("{H200X-35C: 2}").status(), ExitStatus::done);
  node.services.orders.clear();
  node.release.clear();
  EXPECT_EQ(node.apply("{H200X-35C: 1}").status(), ExitStatus::done);
  EXPECT_EQ(node.apply("{H200X-35C: 3}").status(), ExitStatus::done);
  EXPECT_THAT(node.services.orders, IsEmpty());
}

TEST(GpuRelease, IsForMixedSizesToo) {
  Mig node;
  EXPECT_EQ(node.apply("{H200X-35C: 2}").status(), ExitStatus::done);
  EXPECT_EQ(node.apply("{}").status(), ExitStatus::done);
  Profile mixed = test::on("[0]", "{H200X-70C: 1, H200X-35C: 1}");
  mixed.items.front().mixed_sizes = true;
  const VgpuOutcome outcome = test::must(node.try_to_apply(mixed));
  EXPECT_EQ(outcome.status(), ExitStatus::done) << message_of(outcome.gpus.at(0).error);
  EXPECT_THAT(node.logged, Contains("switch mixed sizes on on 0000:17:00.0"));
  ASSERT_THAT(node.logged, Not(IsEmpty()));
  EXPECT_EQ(node.logged.front(), "stop nvidia-dcgm.service");
  EXPECT_EQ(node.logged.back(), "start nvidia-dcgm.service");
}

TEST(GpuRelease, OfWhoHoldsOnIsRefusedAndEnds) {
  Mig node;
  node.services.will_not_stop = {kDcgm};
  const GpuOutcome gpu = node.apply(kToMig).gpus.at(0);
  EXPECT_EQ(gpu.kind, Kind::refused);
  EXPECT_THAT(message_of(gpu.error), HasSubstr("although Ferry quiesced it"));
  EXPECT_THAT(node.services.orders, ElementsAre("stop nvidia-dcgm.service", "start nvidia-dcgm.service"));
  EXPECT_THAT(node.kernel.writes(), IsEmpty());
  EXPECT_FALSE(node.kernel.exists(kRecord));
}

TEST(GpuRelease, EndsWhenSomebodyOpensTheGpuMeanwhile) {
  Mig node;
  node.before_second_look = [&] {
    node.probe.users[Mig::kGpu] = {{.name = "late", .pid = 9, .what = "it", .pod_uid = {}}};
  };
  const GpuOutcome gpu = node.apply(kToMig).gpus.at(0);
  EXPECT_EQ(gpu.kind, Kind::refused);
  EXPECT_THAT(message_of(gpu.error), HasSubstr("process late (pid 9) holds it"));
  EXPECT_TRUE(node.services.runs(kDcgm));
  EXPECT_THAT(node.kernel.writes(), IsEmpty());
}

TEST(GpuRelease, ThatFailsLeavesTheGpuAsItIs) {
  Mig node;
  node.services.stop_fails = {kDcgm};
  const VgpuOutcome outcome = node.apply(kToMig);
  EXPECT_EQ(outcome.gpus.at(0).kind, Kind::failed);
  EXPECT_THAT(message_of(outcome.gpus.at(0).error),
              HasSubstr("stop nvidia-dcgm.service: systemd: the job timed out"));
  EXPECT_TRUE(node.services.runs(kDcgm));
  EXPECT_THAT(node.kernel.writes(), IsEmpty());
}

TEST(GpuRelease, WhoDoesNotStartAgainIsTriedByTheNextRun) {
  Mig node;
  node.services.start_fails = {kDcgm};
  const VgpuOutcome outcome = node.apply(kToMig);
  EXPECT_EQ(outcome.gpus.at(0).kind, Kind::changed);
  ASSERT_THAT(outcome.errors, Not(IsEmpty()));
  EXPECT_EQ(outcome.status(), ExitStatus::failed);
  EXPECT_FALSE(node.services.runs(kDcgm));
  node.services.start_fails.clear();
  EXPECT_EQ(node.apply(kToMig).status(), ExitStatus::done);
  EXPECT_TRUE(node.services.runs(kDcgm));
}

TEST(GpuRelease, IsAskedOfNobodyWhileItsRecordCannotBeRead) {
  Mig node;
  node.kernel.file(kRecord, "{");
  EXPECT_FALSE(node.try_to_apply(test::on("[0]", kToMig)));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST(GpuRelease, OfOneGpuLeavesPersistencedToTheOther) {
  Two node;
  node.by_gpu = true;
  node.held = {{Two::gpu(0), kDaemon}, {Two::gpu(1), kDaemon}};
  const VgpuOutcome outcome = node.apply("{T4-4Q: 1}");
  EXPECT_EQ(outcome.status(), ExitStatus::done) << message_of(outcome.gpus.at(0).error);
  EXPECT_THAT(node.persistence.orders, ElementsAre(Two::gpu(0) + " off", Two::gpu(0) + " on"));
  EXPECT_THAT(node.services.orders, IsEmpty());
}

TEST(GpuRelease, OfAllGpusStopsPersistencedOnce) {
  Two node;
  node.by_gpu = true;
  node.held = {{Two::gpu(0), kDaemon}, {Two::gpu(1), kDaemon}};
  EXPECT_EQ(node.apply("{T4-4Q: 1}", "all").status(), ExitStatus::done);
  EXPECT_THAT(node.persistence.orders, IsEmpty());
  EXPECT_THAT(node.services.orders,
              ElementsAre(std::string("stop ") + kDaemon, std::string("start ") + kDaemon));
}

TEST(GpuRelease, OfADriverContainerAsksItsDaemonForEachGpu) {
  Two node;
  node.by_gpu = true;
  node.daemon_in_container = true;
  node.held = {{Two::gpu(0), kDaemon}, {Two::gpu(1), kDaemon}};
  EXPECT_EQ(node.apply("{T4-4Q: 1}", "all").status(), ExitStatus::done);
  EXPECT_THAT(node.services.orders, IsEmpty()) << "no unit of the host runs it";
  EXPECT_THAT(node.persistence.orders,
              testing::UnorderedElementsAre(Two::gpu(0) + " off", Two::gpu(1) + " off", Two::gpu(0) + " on",
                                            Two::gpu(1) + " on"));
}

TEST(GpuRelease, OfTheConsoleNeedsAllItsGpus) {
  Two node;
  node.release.insert(vfio::kConsoleModule);
  for (const unsigned gpu : {0U, 1U}) {
    node.others[Two::gpu(gpu)] = {{.kind = vfio::DeviceUser::Kind::console,
                                   .name = vfio::kConsoleModule,
                                   .pid = {},
                                   .what = Two::gpu(gpu),
                                   .pod_uid = {},
                                   .also = {Two::gpu(0), Two::gpu(1)}}};
  }
  const GpuPlan one = node.plan("{T4-4Q: 1}").gpus.at(0);
  EXPECT_THAT(
      message_of(one.refusal),
      AllOf(HasSubstr("nvidia_drm is not unloaded: it also serves " + Two::gpu(1)), StartsWith("GPU 0")));
  const VgpuPlan both = node.plan("{T4-4Q: 1}", "all");
  for (const GpuPlan& gpu : both.gpus) {
    EXPECT_THAT(gpu.releases, ElementsAre(vfio::Releasable{.kind = vfio::Releasable::Kind::module,
                                                           .name = vfio::kConsoleModule}));
  }
}

std::size_t changes_of_an_undisturbed_run() {
  Mig node;
  node.apply(kToMig);
  return node.kernel.changes().size();
}

/// What the next run makes good, whatever became of the one before.
void runs_again(Mig& node) {
  const VgpuOutcome again = node.apply(kToMig);
  EXPECT_EQ(again.status(), ExitStatus::done) << message_of(again.gpus.at(0).error);
  EXPECT_TRUE(node.services.runs(kDcgm));
  EXPECT_FALSE(node.kernel.exists(kRecord));
  node.kernel.forget_changes();
  EXPECT_EQ(node.apply(kToMig).gpus.at(0).kind, Kind::already_so);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST(GpuReleaseAtEachChange, ThatFailsTheServiceRunsOrIsRecorded) {
  const std::size_t count = changes_of_an_undisturbed_run();
  ASSERT_GT(count, 8U);
  for (std::size_t n = 1; n <= count; ++n) {
    SCOPED_TRACE(n);
    Mig node;
    const std::string before = node.state();
    node.kernel.fail_change(n, EIO);
    const VgpuOutcome outcome = node.apply(kToMig);
    EXPECT_TRUE(node.services.runs(kDcgm) || node.kernel.exists(kRecord));
    if (outcome.gpus.at(0).kind == Kind::failed) {
      EXPECT_EQ(node.state(), before);
    }
    runs_again(node);
  }
}

TEST(GpuReleaseAtEachChange, ThatHangsTheServiceRunsOrIsRecorded) {
  const std::size_t count = changes_of_an_undisturbed_run();
  for (std::size_t n = 1; n <= count; ++n) {
    SCOPED_TRACE(n);
    Mig node;
    node.kernel.hang_change(n);
    node.apply(kToMig);
    EXPECT_TRUE(node.services.runs(kDcgm) || node.kernel.exists(kRecord));
    node.kernel.release_stuck();
    runs_again(node);
  }
}

TEST(GpuReleaseAtEachChange, ThatIsTheLastBeforeDeathTheNextRunStartsTheService) {
  const std::size_t count = changes_of_an_undisturbed_run();
  for (std::size_t n = 1; n <= count; ++n) {
    SCOPED_TRACE(n);
    Mig node;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      node.kernel.die_at_change(n);
      node.apply(kToMig);
      ::_exit(EXIT_FAILURE);  // it should have died
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    node.kernel.adopt_vfs(Mig::kGpu);
    runs_again(node);
  }
}

}  // namespace
}  // namespace ferry::vgpu
