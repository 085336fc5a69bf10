// SPDX-License-Identifier: Apache-2.0
// The files by which the agent and the host's own process meet.
#include "api/files.h"

#include <filesystem>
#include <string>
#include <sys/stat.h>

#include <gmock/gmock.h>

#include "agent/desired_state/written_policy.h"
#include "agent/host_files.h"
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

}  // namespace
}  // namespace ferry::agent
