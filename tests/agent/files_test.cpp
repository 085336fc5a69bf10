// SPDX-License-Identifier: Apache-2.0
// The files by which the agent and the host's own process meet.
#include <filesystem>
#include <ostream>
#include <string>
#include <sys/stat.h>

#include <gmock/gmock.h>

#include "agent/desired_state/desired_file.h"
#include "agent/host_files.h"
#include "agent/host_status.h"
#include "agent/operator_compat/validation_files.h"
#include "common/plugin_files.h"
#include "kata-manager/classes/desired_classes.h"
#include "kata-manager/controller/ready_handlers.h"
#include "tests/agent/snapshots.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::agent {
namespace {

using test::answer;
using test::gpu;
using test::must;
using test::node_with;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

DesiredState desired_state_for(Labels labels) {
  return resolve_desired_state(node_with(std::move(labels)), test::usual_configs(), {});
}

// ---- a FIFO in the place of a file, whose reader waits for ever

TEST(FilesBetweenProcesses, KeepTheAgentWaitingNowhere) {
  for (const char* file : {kDesiredFile, kStatusFile, kata::kReadyHandlersFile, kata::kDesiredClassesFile}) {
    const test::ScratchDirectory scratch;
    const HostFs host(scratch.path());
    scratch.directory(std::filesystem::path(file).parent_path());
    ASSERT_EQ(::mkfifo((scratch.path() / file).c_str(), 0600), 0);
    const auto read = read_host_side(host);
    ASSERT_FALSE(read) << file;
    EXPECT_EQ(read.error().message, std::string("read /") + file + ": it is no regular file");
  }
  const test::ScratchDirectory scratch;
  HostFs host(scratch.path());
  scratch.directory(std::filesystem::path(kServingFile).parent_path());
  ASSERT_EQ(::mkfifo((scratch.path() / kServingFile).c_str(), 0600), 0);
  ReconcileResult step;
  step.standby = "another serves";
  EXPECT_FALSE(write_serving(host, step, false));
}

// ---- serving.json

TEST(ServingFileOfTheAgent, IsThereWhileThePluginStandsBack) {
  const test::ScratchDirectory scratch;
  HostFs host(scratch.path());
  ReconcileResult step;
  const auto write = [&](bool dry_run = false) { return must(write_serving(host, step, dry_run)); };
  EXPECT_FALSE(write()) << "nothing is said of it";
  step.standby = "";
  EXPECT_FALSE(write()) << "there is none";
  step.standby = "another serves";
  EXPECT_TRUE(write(true));
  EXPECT_FALSE(host.exists(kServingFile)) << "a dry run";
  EXPECT_TRUE(write());
  EXPECT_EQ(must(read_serving_file(must(host.read_file(kServingFile)))), "another serves");
  EXPECT_FALSE(write()) << "it says so";
  step.standby.reset();
  EXPECT_FALSE(write());
  EXPECT_TRUE(host.exists(kServingFile)) << "what was said stands";
  step.standby = "";
  EXPECT_TRUE(write());
  EXPECT_FALSE(host.exists(kServingFile));
}

TEST(ServingFileOfTheAgent, IsNoPersons) {
  const test::ScratchDirectory scratch;
  HostFs host(scratch.path());
  ReconcileResult step;
  for (const char* const text :
       {R"({"version": 1, "serve": false})", R"({"version": 1, "serve": true, "by": "me"})", "half of"}) {
    must(host.write_file(kServingFile, text));
    for (const char* const said : {"", "another serves"}) {
      step.standby = said;
      EXPECT_FALSE(must(write_serving(host, step))) << text;
      EXPECT_EQ(must(host.read_file(kServingFile)), text);
    }
  }
}

// ---- desired.json

TEST(DesiredFile, IsReadBackAsItIs) {
  const DesiredState desired_state = desired_state_for({{kPolicyLabel, "mixed"}});
  const DesiredFile written = test::written(desired_state, 12);
  const auto again = read_desired_file(desired_file_text(written));
  ASSERT_EQ(again.has_value(), true);
  EXPECT_EQ(again.value_or(DesiredFile{}), written);
  EXPECT_TRUE(written.says(desired_state.desired_policy));
  EXPECT_EQ(desired_file_text({.generation = 1, .policy = "a", .config = "b\n", .source = "c"}),
            "{\n  \"version\": 2,\n  \"generation\": 1,\n  \"policy\": \"a\",\n  \"config\": \"b\\n\",\n"
            "  \"source\": \"c\"\n}\n");
}

TEST(DesiredFile, SaysAnotherThingWhenAnythingOfItDiffers) {
  const DesiredState desired_state = desired_state_for({{kPolicyLabel, "mixed"}});
  const DesiredFile written = test::written(desired_state);
  for (auto field : {&DesiredFile::policy, &DesiredFile::config, &DesiredFile::source}) {
    DesiredFile other = written;
    other.*field += "x";
    EXPECT_FALSE(other.says(desired_state.desired_policy));
  }
}

TEST(DesiredFile, OfAnotherFormIsNotTheAgents) {
  const std::string good = desired_file_text({.generation = 1, .policy = "a", .config = "b", .source = "c"});
  ASSERT_EQ(read_desired_file(good).has_value(), true);
  for (const auto& [from, to] : {std::pair{"\"version\": 2", "\"version\": 3"},
                                 {"\"version\"", "\"revision\""},
                                 {"\"generation\": 1", "\"generation\": -1"},
                                 {"\"generation\": 1", "\"generation\": 1.5"},
                                 {"\"generation\": 1", "\"generation\": \"1\""},
                                 {"\"generation\"", "\"generatino\""},
                                 {"\"policy\": \"a\"", "\"policy\": 7"},
                                 {"\"config\"", "\"file\""},
                                 {"\"source\": \"c\"", "\"source\": null"}}) {
    std::string bad = good;
    bad.replace(bad.find(from), std::string_view(from).size(), to);
    EXPECT_EQ(read_desired_file(bad).has_value(), false) << bad;
  }
  for (const char* bad : {"", "null", "[]", "{", "\"text\"", "\xff"})
    EXPECT_EQ(read_desired_file(bad).has_value(), false) << bad;
}

// ---- status.json

constexpr const char* kState = R"({
  "version": 2, "generation": 17, "pid": 4711, "boot_id": "b",
  "desired": {"generation": 12, "policy": "mixed", "source": "label gpu-ferry.io/policy=mixed"},
  "phase": "blocked",
  "accelerators": [
    {"address": "0000:02:00.0", "id": "10de:26b9", "subsystem": "10de:16c1", "class": "0302", "model": "NVIDIA L40S", "iommu_group": 12,
     "driver": "nvidia", "mode": "vgpu", "desired": "passthrough", "state": "blocked",
     "reason": "in use", "hint": "stop the VM",
     "users": [{"kind": "virtual_machine", "name": "guest-7", "pid": 4711, "pod_uid": "uid-1"},
                 {"name": "nv-hostengine", "pid": null}, {"kind": "pod", "name": "a/b", "pid": null, "pod_uid": null, "by_the_plugin": false},
                 {"kind": "pod", "name": "given", "pid": null, "pod_uid": null, "by_the_plugin": true}],
     "only_in_use": true,
     "vgpus": [{"id": "0000:02:00.4", "type": "L40S-12Q"},
               {"id": "0000:02:00.5", "type": "L40S-12Q",
                "users": [{"kind": "virtual_machine", "name": "by-hand", "pid": 7}]}],
     "more_vgpus": {"L40S-12Q": 2, "L40S-24Q": 0}},
    {"address": "0000:03:00.0", "mode": "host", "desired": null, "state": "unmanaged", "users": [],
     "vgpus": [], "added_later": true}],
  "unavailable": [{"id": "0000:02:00.0", "reason": "it moves"}],
  "error": {"message": "one of two", "hint": "look"},
  "features": {"iommu": "on", "largest_group": 3, "machine": "R 1", "vgpu_types": {"L40S-12Q": 4, "L40S-1B": 32}}
})";

TEST(HostStatus, GivesWhatTheClusterIsTold) {
  const HostStatus host = must(read_host_status(kState));
  EXPECT_EQ(host.desired, 12U);
  EXPECT_EQ(host.phase, NodePhase::blocked);
  EXPECT_THAT(host.withdraw, ElementsAre("0000:02:00.0"));
  EXPECT_EQ(host.error, "one of two");
  EXPECT_EQ(host.hint, "look");
  ASSERT_EQ(host.accelerators.size(), 2U);
  const AcceleratorStatus& first = host.accelerators[0];
  EXPECT_EQ(first.address, "0000:02:00.0");
  EXPECT_EQ(first.model, "NVIDIA L40S");
  EXPECT_EQ(first.mode, policy::Mode::vgpu);
  EXPECT_EQ(first.desired, policy::Mode::passthrough);
  EXPECT_EQ(first.state, "blocked");
  EXPECT_EQ(first.reason, "in use");
  EXPECT_EQ(first.hint, "stop the VM");
  ASSERT_EQ(first.users.size(), 4U);
  EXPECT_EQ(first.users[0].text, "virtual machine guest-7 (pid 4711)");
  EXPECT_EQ(first.users[0].kind, "virtual_machine");
  EXPECT_EQ(first.users[0].pod_uid, "uid-1");
  EXPECT_EQ(first.users[1].text, "nv-hostengine");
  EXPECT_EQ(first.users[1].pod_uid, "");
  EXPECT_EQ(first.users[2].name, "a/b");
  EXPECT_FALSE(first.users[1].by_the_plugin) << "a hostd that does not know the word";
  EXPECT_FALSE(first.users[2].by_the_plugin);
  EXPECT_TRUE(first.users[3].by_the_plugin);
  EXPECT_TRUE(first.only_in_use);
  EXPECT_FALSE(host.accelerators[1].only_in_use);
  ASSERT_EQ(first.vgpus.size(), 2U);
  EXPECT_EQ(first.vgpus[1].id, "0000:02:00.5");
  EXPECT_EQ(first.vgpus[1].type, "L40S-12Q");
  EXPECT_FALSE(first.vgpus[0].users) << "a hostd that does not tell it";
  ASSERT_TRUE(first.vgpus[1].users);
  EXPECT_EQ(first.vgpus[1].users->at(0).text, "virtual machine by-hand (pid 7)");
  EXPECT_THAT(first.more_vgpus, ElementsAre(std::pair("L40S-12Q", 2U), std::pair("L40S-24Q", 0U)));
  EXPECT_THAT(host.accelerators[1].more_vgpus, testing::IsEmpty()) << "a hostd that does not tell it";
  EXPECT_EQ(first.id, "10de:26b9");
  EXPECT_EQ(first.iommu_group, 12U);
  EXPECT_EQ(first.driver, "nvidia");
  EXPECT_EQ(host.accelerators[1].iommu_group, std::nullopt);
  EXPECT_EQ(host.accelerators[1].driver, "");
  EXPECT_EQ(host.accelerators[1].desired, std::nullopt);
  EXPECT_EQ(first.subsystem, "10de:16c1");
  EXPECT_EQ(first.pci_class, "0302");
  EXPECT_EQ(host.accelerators[1].pci_class, "") << "a hostd that does not know the word";
  const NodeFeatures features = host.features.value_or(NodeFeatures());
  EXPECT_EQ(features.iommu, "on");
  EXPECT_EQ(features.largest_group, 3U);
  EXPECT_EQ(features.machine, "R 1");
  EXPECT_THAT(features.vgpu_types, ElementsAre(Pair("L40S-12Q", 4), Pair("L40S-1B", 32)));
}

TEST(HostStatus, MayHaveSeenNothing) {
  const HostStatus host = must(read_host_status(
      R"({"version": 2, "desired": null, "phase": "idle", "accelerators": [], "unavailable": []})"));
  EXPECT_EQ(host.desired, std::nullopt);
  EXPECT_EQ(host.error, "");
  EXPECT_FALSE(host.features.has_value());
  const HostStatus by_hand = must(read_host_status(
      R"({"version": 2, "desired": {"policy": "a"}, "phase": "ready", "accelerators": [], "unavailable": []})"));
  EXPECT_EQ(by_hand.desired, std::nullopt);
}

TEST(HostStatus, OfAnotherFormIsAnErrorThatNamesTheFile) {
  for (const auto& [from, to] : {std::pair{R"("version": 2)", R"("version": 3)"},
                                 {R"("phase": "blocked")", R"("phase": "refsued")"},
                                 {R"("phase": "blocked")", R"("phase": 7)"},
                                 {R"("phase")", R"("phsae")"},
                                 {R"("generation": 12)", R"("generation": -12)"},
                                 {R"("generation": 12)", R"("generation": "12")"},
                                 {R"("desired": {)", R"("wnated": {)"},
                                 {R"("mode": "vgpu")", R"("mode": "vpgu")"},
                                 {R"("desired": "passthrough")", R"("desired": "all")"},
                                 {R"("desired": null)", R"("desired": 1)"},
                                 {R"("address": "0000:02:00.0")", R"("address": 2)"},
                                 {R"("users": [])", R"("users": {"name": "a"})"},
                                 {R"("name": "guest-7")", R"("nmae": "guest-7")"},
                                 {R"("pid": 4711, "pod)", R"("pid": "4711", "pod)"},
                                 {R"("pod_uid": "uid-1")", R"("pod_uid": 1)"},
                                 {R"("by_the_plugin": true)", R"("by_the_plugin": "yes")"},
                                 {R"("only_in_use": true)", R"("only_in_use": "true")"},
                                 {R"("vgpus": [])", R"("vgpus": 2)"},
                                 {R"("vgpus": [])", R"("vgpus": ["a"])"},
                                 {R"("L40S-24Q": 0)", R"("L40S-24Q": -1)"},
                                 {R"("iommu_group": 12)", R"("iommu_group": "12")"},
                                 {R"("iommu_group": 12)", R"("iommu_group": -1)"},
                                 {R"("iommu_group": 12)", R"("iommu_group": 4294967296)"},
                                 {R"("driver": "nvidia")", R"("driver": 1)"},
                                 {R"("unavailable": [)", R"("unavailable": [7, )"},
                                 {R"("subsystem": "10de:16c1")", R"("subsystem": 7)"},
                                 {R"("class": "0302")", R"("class": 770)"},
                                 {R"("features": {)", R"("features": [], "f": {)"},
                                 {R"("iommu": "on")", R"("iommu": true)"},
                                 {R"("iommu": "on", )", ""},
                                 {R"("largest_group": 3)", R"("largest_group": -3)"},
                                 {R"("machine": "R 1")", R"("machine": 1)"},
                                 {R"("vgpu_types": {)", R"("vgpu_types": [], "v": {)"},
                                 {R"("L40S-1B": 32)", R"("L40S-1B": "32")"},
                                 {R"("L40S-1B": 32)", R"("L40S-1B": 4294967296)"},
                                 {R"("message")", R"("massage")"}}) {
    std::string bad = kState;
    bad.replace(bad.find(from), std::string_view(from).size(), to);
    const auto host = read_host_status(bad);
    EXPECT_EQ(host.has_value(), false) << bad;
    if (host) continue;
    EXPECT_EQ(host.error().code, Errc::malformed_host);
    EXPECT_THAT(host.error().message, testing::StartsWith("/run/ferry/status.json: "));
  }
  for (const char* bad : {"", "null", "[]", "{", "{}", "7", "\xff"})
    EXPECT_EQ(read_host_status(bad).has_value(), false) << bad;
}

// ---- /run/nvidia/validations

class ValidationFiles : public testing::Test {
 protected:
  static constexpr const char* kFolder = "run/nvidia/validations/";
  std::vector<std::string> write(const DesiredState& desired_state, const HostSide& side) {
    std::vector<std::string> out;
    for (const ValidationFileChange& change :
         must(write_validation_files(host_, validation_files(desired_state, side))))
      out.push_back((change.removed ? "-" : "+") + change.path.substr(std::string_view(kFolder).size()));
    return out;
  }
  std::string content(const std::string& name) const {
    return host_.read_file(kFolder + name).value_or("(none)");
  }
  std::vector<std::string> names() const { return host_.list(kFolder).value_or(std::vector<std::string>()); }

  const DesiredState passthrough_ = desired_state_for({{kWorkloadLabel, "vm-passthrough"}});
  const DesiredState vgpus_ = desired_state_for({{policy::kVgpuConfigLabel, "render-mix"}});
  const DesiredState mixed_ = desired_state_for({{kPolicyLabel, "mixed"}});
  test::ScratchDirectory scratch_;
  HostFs host_{scratch_.path()};
};

TEST_F(ValidationFiles, OfPassthroughSayWhenEveryGpuIsOnVfio) {
  EXPECT_THAT(write(passthrough_, answer(passthrough_, NodePhase::applying)), ElementsAre("+workload-type"));
  EXPECT_EQ(content("workload-type"), "vm-passthrough\n");
  EXPECT_THAT(write(passthrough_, answer(passthrough_, NodePhase::blocked)), IsEmpty());
  EXPECT_THAT(write(passthrough_, answer(passthrough_, NodePhase::ready,
                                         {gpu(policy::Mode::passthrough, policy::Mode::passthrough)})),
              ElementsAre("+vfio-pci-ready"));
  EXPECT_THAT(names(), ElementsAre("vfio-pci-ready", "workload-type"));
  struct stat status {};
  ASSERT_EQ(::stat((scratch_.path() / kFolder / "vfio-pci-ready").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0644U);
}

TEST_F(ValidationFiles, WrittenTwiceAreNotWritten) {
  const HostSide done =
      answer(passthrough_, NodePhase::ready, {gpu(policy::Mode::passthrough, policy::Mode::passthrough)});
  EXPECT_THAT(write(passthrough_, done), ElementsAre("+vfio-pci-ready", "+workload-type"));
  EXPECT_THAT(write(passthrough_, done), IsEmpty());
}

// NVIDIA's validator says ready; but no VM can have a GPU here.
TEST_F(ValidationFiles, OfPassthroughOnAHostWithoutGpusDoNotSayReady) {
  EXPECT_THAT(write(passthrough_, answer(passthrough_, NodePhase::ready)), ElementsAre("+workload-type"));
}

TEST_F(ValidationFiles, OfVgpusSayWhenThereIsOne) {
  AcceleratorStatus empty = gpu(policy::Mode::vgpu, policy::Mode::vgpu);
  empty.vgpus.clear();
  EXPECT_THAT(write(vgpus_, answer(vgpus_, NodePhase::ready, {empty})), ElementsAre("+workload-type"));
  EXPECT_EQ(content("workload-type"), "vm-vgpu\n");
  EXPECT_THAT(
      write(vgpus_, answer(vgpus_, NodePhase::ready, {empty, gpu(policy::Mode::vgpu, policy::Mode::vgpu)})),
      ElementsAre("+vgpu-devices-ready"));
  // By vendor-specific VFIO one is a virtual function.
  AcceleratorStatus by_function = gpu(policy::Mode::vgpu, policy::Mode::vgpu);
  by_function.vgpus = {{.id = "0000:02:00.4", .type = "NVIDIA L40S-12Q"}};
  write(vgpus_, answer(vgpus_, NodePhase::ready, {empty}));
  EXPECT_THAT(write(vgpus_, answer(vgpus_, NodePhase::ready, {by_function})),
              ElementsAre("+vgpu-devices-ready"));
}

TEST_F(ValidationFiles, ThatAreNoLongerTrueGo) {
  write(passthrough_,
        answer(passthrough_, NodePhase::ready, {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}));
  EXPECT_THAT(write(passthrough_, answer(passthrough_, NodePhase::applying)), ElementsAre("-vfio-pci-ready"));
  write(passthrough_,
        answer(passthrough_, NodePhase::ready, {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}));
  EXPECT_THAT(write(vgpus_, answer(vgpus_, NodePhase::ready, {gpu(policy::Mode::vgpu, policy::Mode::vgpu)})),
              ElementsAre("-vfio-pci-ready", "+vgpu-devices-ready", "+workload-type"));
  const DesiredState container = desired_state_for({{kWorkloadLabel, "container"}});
  EXPECT_THAT(write(container, answer(container, NodePhase::ready)),
              ElementsAre("-vgpu-devices-ready", "-workload-type"));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(ValidationFiles, OfANodeOfSeveralKindsSayBoth) {
  EXPECT_THAT(write(mixed_, answer(mixed_, NodePhase::ready,
                                   {gpu(policy::Mode::vgpu, policy::Mode::vgpu),
                                    gpu(policy::Mode::passthrough, policy::Mode::passthrough),
                                    gpu(policy::Mode::host, std::nullopt, "unmanaged")})),
              ElementsAre("+vfio-pci-ready", "+vgpu-devices-ready", "+workload-type"));
  EXPECT_EQ(content("workload-type"), "vm-vgpu\n");
}

TEST_F(ValidationFiles, OfOthersAreLeftAlone) {
  for (const char* name : {"driver-ready", ".driver-ctr-ready", ".vfio-pci-ready", "vgpu-manager-ready"})
    scratch_.file(std::string(kFolder) + name, "theirs\n");
  scratch_.file(std::string(kFolder) + "vfio-pci-ready", "");
  const HostSide done =
      answer(passthrough_, NodePhase::ready, {gpu(policy::Mode::passthrough, policy::Mode::passthrough)});
  EXPECT_THAT(write(passthrough_, done), ElementsAre("+workload-type"));
  EXPECT_THAT(write(passthrough_, answer(passthrough_, NodePhase::applying)), IsEmpty());
  EXPECT_EQ(content("vfio-pci-ready"), "") << "the validator's own";
  scratch_.file(std::string(kFolder) + "workload-type", "container\n");
  const DesiredState container = desired_state_for({{kWorkloadLabel, "container"}});
  EXPECT_THAT(write(container, answer(container, NodePhase::ready)), IsEmpty());
  EXPECT_THAT(names(), ElementsAre(".driver-ctr-ready", ".vfio-pci-ready", "driver-ready", "vfio-pci-ready",
                                   "vgpu-manager-ready", "workload-type"));
}

TEST_F(ValidationFiles, AreLeftToAnotherOwnerAndWhereTheHostIsLeft) {
  write(passthrough_,
        answer(passthrough_, NodePhase::ready, {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}));
  EXPECT_THAT(write(desired_state_for({{kPolicyLabel, "typo"}}), {}), IsEmpty());
  EXPECT_THAT(write(desired_state_for({}), {}), ElementsAre("-vfio-pci-ready"));

  write(passthrough_,
        answer(passthrough_, NodePhase::ready, {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}));
  DesiredState standby = passthrough_;
  standby.kind = DesiredState::Kind::standby;
  EXPECT_THAT(write(standby, {}), ElementsAre("-vfio-pci-ready")) << "ours, which nobody keeps true now";
  scratch_.file(std::string(kFolder) + "vfio-pci-ready", "the validator's");
  EXPECT_THAT(write(standby, {}), IsEmpty());
}

TEST_F(ValidationFiles, OfADryRunAreSaidAlone) {
  const auto files = validation_files(
      passthrough_,
      answer(passthrough_, NodePhase::ready, {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}));
  EXPECT_EQ(must(write_validation_files(host_, files, true)).size(), 2U);
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(ValidationFiles, ThatCannotBeReadAreAnError) {
  scratch_.directory(std::string(kFolder) + "vfio-pci-ready");
  const auto files = validation_files(
      passthrough_,
      answer(passthrough_, NodePhase::ready, {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}));
  const auto done = write_validation_files(host_, files);
  EXPECT_EQ(done ? "" : done.error().message, "read /run/nvidia/validations/vfio-pci-ready: Is a directory");
}

}  // namespace
}  // namespace ferry::agent
