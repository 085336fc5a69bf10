// SPDX-License-Identifier: Apache-2.0
// The files by which the agent and the host's own process meet.
#include "api/files.h"

#include <filesystem>
#include <string>
#include <sys/stat.h>

#include <gmock/gmock.h>

#include "agent/desired_state/written_policy.h"
#include "agent/host_files.h"
#include "agent/operator_compat/validation_files.h"
#include "api/serving.h"
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

DesiredState desired_state_for(Labels labels) {
  return resolve_desired_state(node_with(std::move(labels)), test::usual_configs(), {});
}

// ---- a FIFO in the place of a file, whose reader waits for ever

TEST(FilesBetweenProcesses, KeepTheAgentWaitingNowhere) {
  for (const char* file :
       {api::kDesiredFile, api::kStatusFile, api::kReadyHandlersFile, api::kDesiredClassesFile}) {
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
  scratch.directory(std::filesystem::path(api::kServingFile).parent_path());
  ASSERT_EQ(::mkfifo((scratch.path() / api::kServingFile).c_str(), 0600), 0);
  ReconcileResult step;
  step.standby = "another serves";
  EXPECT_FALSE(write_serving(host, step, false));
}

// ---- serving.json

TEST(ServingFileOfTheAgent, IsThereWhileThePluginIsOnStandby) {
  const test::ScratchDirectory scratch;
  HostFs host(scratch.path());
  ReconcileResult step;
  const auto write = [&](bool dry_run = false) { return must(write_serving(host, step, dry_run)); };
  EXPECT_FALSE(write()) << "nothing is said of it";
  step.standby = "";
  EXPECT_FALSE(write()) << "there is none";
  step.standby = "another serves";
  EXPECT_TRUE(write(true));
  EXPECT_FALSE(host.exists(api::kServingFile)) << "a dry run";
  EXPECT_TRUE(write());
  EXPECT_EQ(must(api::read_serving_file(must(host.read_file(api::kServingFile)))), "another serves");
  EXPECT_FALSE(write()) << "it says so";
  step.standby.reset();
  EXPECT_FALSE(write());
  EXPECT_TRUE(host.exists(api::kServingFile)) << "what was said stands";
  step.standby = "";
  EXPECT_TRUE(write());
  EXPECT_FALSE(host.exists(api::kServingFile));
}

TEST(ServingFileOfTheAgent, IsNoPersons) {
  const test::ScratchDirectory scratch;
  HostFs host(scratch.path());
  ReconcileResult step;
  for (const char* const text :
       {R"({"version": 1, "serve": false})", R"({"version": 1, "serve": true, "by": "me"})", "half of"}) {
    must(host.write_file(api::kServingFile, text));
    for (const char* const said : {"", "another serves"}) {
      step.standby = said;
      EXPECT_FALSE(must(write_serving(host, step))) << text;
      EXPECT_EQ(must(host.read_file(api::kServingFile)), text);
    }
  }
}

// ---- desired.json

TEST(WrittenPolicy, IsReadBackAsItIs) {
  const DesiredState desired_state = desired_state_for({{api::kPolicyLabel, "mixed"}});
  const api::DesiredFile written = test::written(desired_state, 12);
  const auto again = read_written(api::desired_file_text(written)).value_or(api::DesiredFile{});
  EXPECT_EQ(again.generation, 12U);
  EXPECT_TRUE(says(again, desired_state.desired_policy));
  EXPECT_TRUE(says(written, desired_state.desired_policy));
}

TEST(WrittenPolicy, SaysAnotherThingWhenAnythingOfItDiffers) {
  const DesiredState desired_state = desired_state_for({{api::kPolicyLabel, "mixed"}});
  const api::DesiredFile written = test::written(desired_state);
  for (auto field : {&api::DesiredFile::policy, &api::DesiredFile::source}) {
    api::DesiredFile other = written;
    other.*field += "x";
    EXPECT_FALSE(says(other, desired_state.desired_policy));
  }
  api::DesiredFile other = written;
  other.config.text += "x";
  EXPECT_FALSE(says(other, desired_state.desired_policy));
}

TEST(WrittenPolicy, OfAnotherFormIsNotTheAgents) {
  const std::string good = api::desired_file_text(
      {.generation = 1, .policy = "a", .config = {.file = {}, .text = "b"}, .source = "c"});
  ASSERT_TRUE(read_written(good));
  for (const auto& [from, to] : {std::pair{"\"version\": 2", "\"version\": 3"},
                                 {"\"generation\": 1,", ""},
                                 {"\"generation\": 1", "\"generation\": 1.5"},
                                 {"\"generation\"", "\"generatino\""},
                                 {"\"config\": \"b\"", "\"file\": \"/etc/ferry/p.yaml\""},
                                 {"\"source\": \"c\"", "\"source\": \"\""},
                                 {"\"source\": \"c\"", "\"source\": null"}}) {
    std::string bad = good;
    bad.replace(bad.find(from), std::string_view(from).size(), to);
    EXPECT_FALSE(read_written(bad)) << bad;
  }
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

  const DesiredState passthrough_ = desired_state_for({{api::kWorkloadLabel, "vm-passthrough"}});
  const DesiredState vgpus_ = desired_state_for({{policy::kVgpuConfigLabel, "render-mix"}});
  const DesiredState mixed_ = desired_state_for({{api::kPolicyLabel, "mixed"}});
  test::ScratchDirectory scratch_;
  HostFs host_{scratch_.path()};
};

TEST_F(ValidationFiles, OfPassthroughSayWhenEveryGpuIsOnVfio) {
  EXPECT_THAT(write(passthrough_, answer(passthrough_, api::NodePhase::applying)),
              ElementsAre("+workload-type"));
  EXPECT_EQ(content("workload-type"), "vm-passthrough\n");
  EXPECT_THAT(write(passthrough_, answer(passthrough_, api::NodePhase::blocked)), IsEmpty());
  EXPECT_THAT(write(passthrough_, answer(passthrough_, api::NodePhase::ready,
                                         {gpu(policy::Mode::passthrough, policy::Mode::passthrough)})),
              ElementsAre("+vfio-pci-ready"));
  EXPECT_THAT(names(), ElementsAre("vfio-pci-ready", "workload-type"));
  struct stat status {};
  ASSERT_EQ(::stat((scratch_.path() / kFolder / "vfio-pci-ready").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0644U);
}

TEST_F(ValidationFiles, WrittenTwiceAreNotWritten) {
  const HostSide done = answer(passthrough_, api::NodePhase::ready,
                               {gpu(policy::Mode::passthrough, policy::Mode::passthrough)});
  EXPECT_THAT(write(passthrough_, done), ElementsAre("+vfio-pci-ready", "+workload-type"));
  EXPECT_THAT(write(passthrough_, done), IsEmpty());
}

// NVIDIA's validator says ready; but no VM can have a GPU here.
TEST_F(ValidationFiles, OfPassthroughOnAHostWithoutGpusDoNotSayReady) {
  EXPECT_THAT(write(passthrough_, answer(passthrough_, api::NodePhase::ready)),
              ElementsAre("+workload-type"));
}

TEST_F(ValidationFiles, OfVgpusSayWhenThereIsOne) {
  api::AcceleratorStatus empty = gpu(policy::Mode::vgpu, policy::Mode::vgpu);
  empty.vgpus.clear();
  EXPECT_THAT(write(vgpus_, answer(vgpus_, api::NodePhase::ready, {empty})), ElementsAre("+workload-type"));
  EXPECT_EQ(content("workload-type"), "vm-vgpu\n");
  EXPECT_THAT(write(vgpus_, answer(vgpus_, api::NodePhase::ready,
                                   {empty, gpu(policy::Mode::vgpu, policy::Mode::vgpu)})),
              ElementsAre("+vgpu-devices-ready"));
  // By vendor-specific VFIO one is a virtual function.
  api::AcceleratorStatus by_function = gpu(policy::Mode::vgpu, policy::Mode::vgpu);
  by_function.vgpus = {{.id = "0000:02:00.4", .type = "NVIDIA L40S-12Q"}};
  write(vgpus_, answer(vgpus_, api::NodePhase::ready, {empty}));
  EXPECT_THAT(write(vgpus_, answer(vgpus_, api::NodePhase::ready, {by_function})),
              ElementsAre("+vgpu-devices-ready"));
}

TEST_F(ValidationFiles, ThatAreNoLongerTrueGo) {
  write(passthrough_, answer(passthrough_, api::NodePhase::ready,
                             {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}));
  EXPECT_THAT(write(passthrough_, answer(passthrough_, api::NodePhase::applying)),
              ElementsAre("-vfio-pci-ready"));
  write(passthrough_, answer(passthrough_, api::NodePhase::ready,
                             {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}));
  EXPECT_THAT(
      write(vgpus_, answer(vgpus_, api::NodePhase::ready, {gpu(policy::Mode::vgpu, policy::Mode::vgpu)})),
      ElementsAre("-vfio-pci-ready", "+vgpu-devices-ready", "+workload-type"));
  const DesiredState container = desired_state_for({{api::kWorkloadLabel, "container"}});
  EXPECT_THAT(write(container, answer(container, api::NodePhase::ready)),
              ElementsAre("-vgpu-devices-ready", "-workload-type"));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(ValidationFiles, OfANodeOfSeveralKindsSayBoth) {
  EXPECT_THAT(write(mixed_, answer(mixed_, api::NodePhase::ready,
                                   {gpu(policy::Mode::vgpu, policy::Mode::vgpu),
                                    gpu(policy::Mode::passthrough, policy::Mode::passthrough),
                                    gpu(policy::Mode::host, std::nullopt, api::GpuState::unmanaged)})),
              ElementsAre("+vfio-pci-ready", "+vgpu-devices-ready", "+workload-type"));
  EXPECT_EQ(content("workload-type"), "vm-vgpu\n");
}

TEST_F(ValidationFiles, OfOthersAreLeftAlone) {
  for (const char* name : {"driver-ready", ".driver-ctr-ready", ".vfio-pci-ready", "vgpu-manager-ready"})
    scratch_.file(std::string(kFolder) + name, "theirs\n");
  scratch_.file(std::string(kFolder) + "vfio-pci-ready", "");
  const HostSide done = answer(passthrough_, api::NodePhase::ready,
                               {gpu(policy::Mode::passthrough, policy::Mode::passthrough)});
  EXPECT_THAT(write(passthrough_, done), ElementsAre("+workload-type"));
  EXPECT_THAT(write(passthrough_, answer(passthrough_, api::NodePhase::applying)), IsEmpty());
  EXPECT_EQ(content("vfio-pci-ready"), "") << "the validator's own";
  scratch_.file(std::string(kFolder) + "workload-type", "container\n");
  const DesiredState container = desired_state_for({{api::kWorkloadLabel, "container"}});
  EXPECT_THAT(write(container, answer(container, api::NodePhase::ready)), IsEmpty());
  EXPECT_THAT(names(), ElementsAre(".driver-ctr-ready", ".vfio-pci-ready", "driver-ready", "vfio-pci-ready",
                                   "vgpu-manager-ready", "workload-type"));
}

TEST_F(ValidationFiles, AreLeftToAnotherOwnerAndWhereTheHostIsLeft) {
  write(passthrough_, answer(passthrough_, api::NodePhase::ready,
                             {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}));
  EXPECT_THAT(write(desired_state_for({{api::kPolicyLabel, "typo"}}), {}), IsEmpty());
  EXPECT_THAT(write(desired_state_for({}), {}), ElementsAre("-vfio-pci-ready"));

  write(passthrough_, answer(passthrough_, api::NodePhase::ready,
                             {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}));
  DesiredState standby = passthrough_;
  standby.kind = DesiredState::Kind::standby;
  EXPECT_THAT(write(standby, {}), ElementsAre("-vfio-pci-ready")) << "ours, which nobody keeps true now";
  scratch_.file(std::string(kFolder) + "vfio-pci-ready", "the validator's");
  EXPECT_THAT(write(standby, {}), IsEmpty());
}

TEST_F(ValidationFiles, OfADryRunAreSaidAlone) {
  const auto files =
      validation_files(passthrough_, answer(passthrough_, api::NodePhase::ready,
                                            {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}));
  EXPECT_EQ(must(write_validation_files(host_, files, true)).size(), 2U);
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(ValidationFiles, ThatCannotBeReadAreAnError) {
  scratch_.directory(std::string(kFolder) + "vfio-pci-ready");
  const auto files =
      validation_files(passthrough_, answer(passthrough_, api::NodePhase::ready,
                                            {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}));
  const auto done = write_validation_files(host_, files);
  EXPECT_EQ(done ? "" : done.error().message, "read /run/nvidia/validations/vfio-pci-ready: Is a directory");
}

}  // namespace
}  // namespace ferry::agent
