// SPDX-License-Identifier: Apache-2.0
// `ferry status --watch` and `ferry explain` as a user meets them.
#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <pty.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/unique_fd.h"
#include "tests/cli/run_program.h"
#include "tests/support/machines.h"

namespace ferry::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::run_ferry;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::string content(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class StatusVerbs : public testing::Test {
 protected:
  void build(const std::string& name) {
    test::composed_machine(name).build(machine_);
    machine_.kernel.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
  }
  std::string root() const { return machine_.kernel.root().string(); }
  test::ProgramResult on(const fs::path& root, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--host-root", root.string()});
    return run_ferry(arguments);
  }
  test::Machine machine_;
  test::ScratchDirectory scratch_;
};

TEST_F(StatusVerbs, ExplainKnowsAddressesUuidsAndResources) {
  build("t4-server");
  for (const char* word :
       {"0000:3b:00.0", "566b0cda-8c18-5fd3-92cb-496c5a60815f", "nvidia.com/TU104GL_TESLA_T4"}) {
    const auto result = on(root(), {"explain", word});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, StartsWith(word));
  }
  const auto document = json::parse(on(root(), {"explain", "0000:5e:00.0", "-o", "json"}).out);
  EXPECT_EQ(document.at("place").at("slot"), "4");
  EXPECT_EQ(document.at("function").at("before").at("driver"), "nvidia");
  EXPECT_EQ(document.at("ways").back().at("command"), "ferry vfio unbind --device 0000:5e:00.0");
}

TEST_F(StatusVerbs, ExplainSuggestsWhatWasMeant) {
  build("t4-server");
  const auto result = on(root(), {"explain", "0000:3c:00.0"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("nothing on this node is called '0000:3c:00.0'"),
                                HasSubstr("did you mean '0000:3b:00.0'?"), HasSubstr("hint: ")));
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(on(root(), {"explain", "3b:00.0"}).err, HasSubstr("0000:3b:00.0"));
}

TEST_F(StatusVerbs, SaysWhichProgramWritesAFileOfAnotherVersion) {
  build("t4-server");
  machine_.kernel.file("run/ferry/plugin/advertised.json", R"({"version": 3})");
  machine_.kernel.file("run/ferry/status.json", R"({"version": 1})");
  const json document = json::parse(on(root(), {"status", "-o", "json"}).out);
  const auto notes = document.at("notes").get<std::vector<std::string>>();
  EXPECT_THAT(notes,
              Contains(HasSubstr("advertised.json: version: expected 2, found 3; ferry plugin writes it")));
  EXPECT_THAT(notes, Contains(HasSubstr("status.json: version: expected 2, found 1; ferry hostd writes it")));
}

TEST_F(StatusVerbs, WatchSaysEachChangeOnceAndEndsByCtrlC) {
  build("policy-node");
  const fs::path out = scratch_.path() / "out";
  test::RunningProgram program("ferry", {"--host-root", root(), "status", "--watch"}, {}, out);
  const auto says = [&](const std::string& what) {
    return program.until([&] { return content(out).find(what) != std::string::npos; });
  };
  ASSERT_TRUE(says("policy mixed"));
  // A file of Ferry's that is replaced, and one that is new.
  const std::string state = content(machine_.kernel.root() / "run/ferry/status.json");
  std::string other = state;
  other.replace(other.find("mixed"), 5, "other");
  ASSERT_TRUE(machine_.kernel.write_file("run/ferry/status.json", other));
  ASSERT_TRUE(says("policy other")) << content(out);
  // One that says nothing new draws nothing: it is read, and only then does something change again.
  const UniqueFd heard(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_TRUE(machine_.kernel.write_file("run/ferry/status.json", other));
  ASSERT_GE(::inotify_add_watch(heard.get(), (machine_.kernel.root() / "run/ferry/status.json").c_str(),
                                IN_CLOSE_NOWRITE),
            0);
  std::array<char, 4096> events{};
  ASSERT_TRUE(program.until([&] { return ::read(heard.get(), events.data(), events.size()) > 0; }));
  ASSERT_TRUE(machine_.kernel.write_file("run/ferry/status.json", state));
  ASSERT_TRUE(program.until([&] {
    const std::string text = content(out);
    return text.rfind("policy mixed") > text.find("policy other");
  }));
  EXPECT_EQ(program.end_by(SIGINT), 0);
  const std::string text = content(out);
  std::size_t blocks = 0;
  for (auto at = text.find("ACCELERATOR"); at != std::string::npos; at = text.find("ACCELERATOR", at + 1))
    ++blocks;
  EXPECT_EQ(blocks, 3U) << text;
  EXPECT_THAT(text, AllOf(StartsWith("ACCELERATOR"), HasSubstr("\n\nACCELERATOR"), Not(HasSubstr("\033["))));
}

// A line that the terminal broke would have the first ones scroll away.
TEST_F(StatusVerbs, WatchLeavesNoLineToTheTerminalToBreak) {
  build("policy-node");
  const winsize size{.ws_row = 30, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  int first = -1;
  int second = -1;
  std::array<char, 64> name{};
  ASSERT_EQ(::openpty(&first, &second, name.data(), nullptr, &size), 0);
  const UniqueFd screen(first);
  const UniqueFd terminal(second);
  test::RunningProgram program("ferry", {"--host-root", root(), "status", "--watch"}, {"COLUMNS=200"},
                               name.data());
  std::string drawn;
  ASSERT_TRUE(program.until([&] {
    int there = 0;
    std::array<char, 4096> some{};
    if (::ioctl(screen.get(), FIONREAD, &there) != 0 || there <= 0) return false;
    const auto count = ::read(screen.get(), some.data(), some.size());
    if (count > 0) drawn.append(some.data(), static_cast<std::size_t>(count));
    return drawn.find("\033[J") != std::string::npos && drawn.ends_with("h");
  }));
  EXPECT_THAT(drawn, AllOf(StartsWith("\033[?7l\033[H"), testing::EndsWith("\033[J\033[?7h")));
  EXPECT_EQ(program.end_by(SIGTERM), 0);
}

TEST_F(StatusVerbs, WatchSeesFerrysFolderAppear) {
  build("laptop");
  machine_.kernel.directory("run");
  const fs::path out = scratch_.path() / "out";
  test::RunningProgram program("ferry", {"--host-root", root(), "status", "--watch", "-o", "json"}, {}, out);
  ASSERT_TRUE(program.until([&] { return content(out).find("0000:01:00.0") != std::string::npos; }));
  ASSERT_TRUE(machine_.kernel.write_file(
      "run/ferry/status.json",
      R"({"version":2,"generation":1,"pid":1,"boot_id":"b","desired":null,"phase":"idle",)"
      R"("accelerators":[],"unavailable":[],"error":null})"));
  EXPECT_TRUE(program.until([&] { return content(out).find("idle") != std::string::npos; }));
  EXPECT_EQ(program.end_by(SIGTERM), 0);
}

TEST_F(StatusVerbs, SaysHowOldAFailureIsThatHostdDoesNotLookAtAgain) {
  build("laptop");
  ASSERT_TRUE(machine_.kernel.write_file(
      "run/ferry/status.json",
      R"({"version":2,"generation":1,"pid":1,"boot_id":"b","desired":null,"phase":"failed","accelerators":[],)"
      R"("unavailable":[],"error":{"message":"the file was wrong","hint":""}})"));
  EXPECT_THAT(
      on(machine_.kernel.root(), {"status"}).out,
      HasSubstr("policy: failed, the file was wrong\n"
                "ferry hostd does not run, so nothing has looked again; `ferry hostd --once` does\n"));
  const auto file = machine_.kernel.root() / "run/ferry/status.json";
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::minutes{190});
  EXPECT_THAT(on(machine_.kernel.root(), {"status"}).out,
              HasSubstr("that was 3 hours ago: ferry hostd does not run"));
}

}  // namespace
}  // namespace ferry::cli
