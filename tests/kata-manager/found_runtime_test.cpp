// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/found_runtime.h"

#include <gmock/gmock.h>

#include "tests/kata-manager/stub_programs.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using test::containerd_of;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// What answers at the socket.
class Answering final : public ContainerRuntime {
 public:
  Result<RuntimeState> state() override {
    if (version.empty()) return fail(Errc::not_found, "nobody listens");
    return RuntimeState{.name = "containerd", .version = version, .handlers = {}, .runtimes = {}};
  }
  Result<std::vector<RunningPod>> pods() override { return std::vector<RunningPod>(); }
  std::string version;
};

class FoundRuntimeTest : public testing::Test {
 protected:
  void program(const std::string& path, const std::string& release) {
    scratch.file(path.substr(1), "");
    writer.programs[path] = containerd_of(release);
  }
  void runs(int pid, const std::string& program, std::vector<std::string> words) const {
    const std::string process = "proc/" + std::to_string(pid);
    scratch.link(process + "/exe", program);
    std::string line;
    for (const std::string& word : words) line += word + '\0';
    scratch.file(process + "/cmdline", line);
  }
  FoundRuntime look() { return must(found_runtime(host, writer, running, must(find_runtime(host, {})), {})); }
  std::vector<std::string> notes_of_plan(const FoundRuntime& runtime) const {
    return must(plan_runtime(host, runtime, ours)).notes;
  }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  test::StubPrograms writer;
  Answering running;
  std::vector<RuntimeHandler> ours = {
      {.name = "kata-a", .shim = "/opt/kata/bin/containerd-shim-kata-v2", .configuration = "/opt/a.toml"}};
};

TEST_F(FoundRuntimeTest, TheProgramOfTheUnitSaysWhatARestartStarts) {
  scratch.file("lib/systemd/system/containerd.service", "[Service]\nExecStart=/opt/bin/containerd\n");
  program("/opt/bin/containerd", "2.1.9");
  program("/usr/bin/containerd", "1.6.20");
  running.version = "2.0.11";
  const auto found_runtime = look();
  EXPECT_EQ(found_runtime.release.text(), "2.1.9");
  EXPECT_EQ(found_runtime.release_by, "/opt/bin/containerd, which its unit starts");
  EXPECT_THAT(found_runtime.notes,
              ElementsAre(HasSubstr("containerd 2.0.11 runs, and 2.1.9 starts with its next")));
  EXPECT_THAT(writer.asked, ElementsAre("/opt/bin/containerd --version"));
}

TEST_F(FoundRuntimeTest, AStrayProgramIsNotTakenForTheOneThatRuns) {
  program("/usr/bin/containerd", "1.6.20");
  running.version = "2.1.9";
  const auto by_itself = look();
  EXPECT_EQ(by_itself.release.text(), "2.1.9");
  EXPECT_EQ(by_itself.release_by, "the running containerd itself");
  EXPECT_EQ(by_itself.program, std::nullopt) << "what it would read is of no matter";
  EXPECT_THAT(by_itself.no_program,
              HasSubstr("/usr/bin/containerd is containerd 1.6.20, and containerd 2.1.9"));
  EXPECT_THAT(notes_of_plan(by_itself),
              ElementsAre(testing::AllOf(HasSubstr("only Ferry's model of containerd 2.1.9 has judged"),
                                         HasSubstr("1.6.20"))));

  // proc shows which one it is.
  program("/opt/containerd/bin/containerd", "2.1.9");
  runs(7, "/usr/bin/containerd", {"containerd", "--address", "/run/docker/containerd/containerd.sock"});
  runs(8, "/opt/containerd/bin/containerd (deleted)", {"containerd"});
  runs(9, "/usr/bin/containerd-shim", {"containerd"});
  const auto by_process = look();
  EXPECT_EQ(by_process.release_by, "/opt/containerd/bin/containerd, which runs");
  EXPECT_EQ(by_process.program, "/opt/containerd/bin/containerd");

  // Its file names another socket, and its command none.
  scratch.file("etc/containerd/config.toml", "[grpc]\naddress = \"/run/other.sock\"\n");
  EXPECT_EQ(look().release_by, "/opt/containerd/bin/containerd, which runs");
  scratch.file("etc/containerd/config.toml", "");

  // Two of them at one socket: one is in a container.
  runs(10, "/usr/bin/containerd", {"containerd", "-a", "/run/containerd/containerd.sock"});
  EXPECT_EQ(look().release_by, "the running containerd itself");
}

TEST_F(FoundRuntimeTest, TheUsualProgramCountsWhereNobodySaysOtherwise) {
  program("/usr/bin/containerd", "1.7.24");
  for (const char* version : {"", "1.7.24"}) {
    running.version = version;
    const auto found_runtime = look();
    EXPECT_EQ(found_runtime.release_by, "/usr/bin/containerd, where containerd usually is");
    EXPECT_EQ(found_runtime.program, "/usr/bin/containerd");
    EXPECT_THAT(notes_of_plan(found_runtime), Not(testing::Contains(HasSubstr("model"))));
  }
}

// As in the chart without hostTools: no program of the host's may be started.
TEST_F(FoundRuntimeTest, ThePlanSaysThatOnlyTheModelVerifiesIt) {
  scratch.file("usr/bin/containerd", "");
  running.version = "1.7.24";
  auto found_runtime = look();
  EXPECT_EQ(found_runtime.release.text(), "1.7.24");
  EXPECT_THAT(notes_of_plan(found_runtime),
              ElementsAre(testing::AllOf(
                  HasSubstr("not tried: only Ferry's model of containerd 1.7.24 has judged this"),
                  HasSubstr("/usr/bin/containerd --version"))));
  EXPECT_THAT(must(plan_runtime(host, found_runtime, {})).notes, IsEmpty()) << "nothing is changed";
  EXPECT_FALSE(config_dump_check(writer, found_runtime, RuntimePlan(), ours));
}

TEST_F(FoundRuntimeTest, SaysThatTheReleaseIsUnknown) {
  scratch.file("etc/containerd/config.toml", "");
  const auto unknown = found_runtime(host, writer, running, must(find_runtime(host, {})), {});
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message,
              testing::AllOf(HasSubstr("there is no /usr/bin/containerd"), HasSubstr("nobody listens")));
}

}  // namespace
}  // namespace ferry::kata
