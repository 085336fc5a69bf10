// SPDX-License-Identifier: Apache-2.0
// What is planned, shown to real releases of containerd: they take it, know our runtimes by it, start and
// load CRI with it, and everything else they say is as before. FERRY_CONTAINERDS names them, "VERSION PATH" a
// line (scripts/lib/containerd-releases).
//
// Each is started with what it has written itself, and with FERRY_EVERY_START, as in the soak, with every
// case.
#include <array>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "common/process/spawn.h"
#include "common/unique_fd.h"
#include "kata-manager/runtimes/containerd_place.h"
#include "kata-manager/runtimes/containerd_plan.h"
#include "kata-manager/toml/toml.h"
#include "tests/kata-manager/containerd_cases.h"
#include "tests/kata-manager/containerd_daemon.h"
#include "tests/kata-manager/containerd_summary.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

std::vector<std::string> all_cases() {
  auto out = test::containerd_cases();
  // Settings that CRI refuses when it loads.
  for (const char* report : {"k16-mirrors-and-config-path", "k17-systemd-cgroup"})
    out.push_back(std::string("kata/") + report);
  return out;
}

RuntimePlace place_of(const std::filesystem::path& main) {
  RuntimePlace out;
  out.configuration = main;
  return out;
}

class RealContainerd : public testing::Test {
 protected:
  void SetUp() override {
    if (test::containerd_binaries().empty()) GTEST_SKIP() << "no containerd is named by FERRY_CONTAINERDS";
  }

  /// `config dump` of a main file; empty: the program does not take it.
  TomlTable dump(const test::ContainerdBinary& program, const std::filesystem::path& main) const {
    const auto into = scratch.path() / "dump";
    {
      const UniqueFd file(::open(into.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
      const auto pid = test::must(spawn(
          program.path, {"containerd", "--config", main.string(), "config", "dump"}, {.out = file.get()}));
      if (reap(pid) != 0) return {};
    }
    std::ifstream text(into);
    return test::must(parse_toml(std::string(std::istreambuf_iterator<char>(text), {}), "dump"));
  }

  /// Whether the daemon itself, with nothing of this machine's but its kernel, starts and loads CRI.
  static bool serves(const test::ContainerdBinary& program, const std::filesystem::path& main) {
    constexpr const char* kAlone =
        "for folder in /opt /run /var/lib; do mount -t tmpfs ferry-test $folder || exit 9; done\n"
        "cd / && exec \"$0\" --config \"$1\" 2>&1";
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    const UniqueFd output(ends[0]);
    UniqueFd writer(ends[1]);
    const int pid = test::must(
        spawn("unshare", {"unshare", "--mount", "sh", "-c", kAlone, program.path.string(), main.string()},
              {.out = writer.get(), .err = writer.get()}));
    writer.reset();
    std::string log;
    const bool booted = test::reads_that_it_has_booted(output.get(), log);
    ::kill(pid, SIGKILL);
    reap(pid);
    if (!booted) return false;
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);) {
      const bool is_cri = line.find("io.containerd.grpc.v1.cri") != std::string::npos ||
                          line.find("io.containerd.cri.v1.") != std::string::npos;
      if (is_cri && line.find("failed to load plugin") != std::string::npos) return false;
    }
    return true;
  }

  /// The main file of a case, where it may be changed; one that imports itself does so where it lies now.
  std::filesystem::path copy_of(const std::string& name) const {
    const auto folder = scratch.path() / name;
    std::filesystem::remove_all(folder);
    std::filesystem::path main = folder / "config.toml";
    if (name.starts_with("kata/")) {
      std::filesystem::create_directories(folder);
      std::filesystem::copy(test::containerd_fixtures().parent_path() / name / "etc/containerd/config.toml",
                            main);
    } else {
      test::write_containerd_case(name, folder);
    }
    if (!name.starts_with("real/")) return main;
    constexpr std::string_view kUsual = "/etc/containerd/config.toml";
    std::ifstream in(main, std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(in), {});
    for (auto at = text.find(kUsual); at != std::string::npos;
         at = text.find(kUsual, at + main.native().size()))
      text.replace(at, kUsual.size(), main.native());
    std::ofstream(main, std::ios::binary) << text;
    return main;
  }

  static void write(const RuntimePlan& plan) {
    for (const FileChange& change : plan.changes) {
      std::filesystem::create_directories(change.path.parent_path());
      std::ofstream(change.path, std::ios::binary) << change.after.value_or("");
    }
  }

  static TomlTable plugins_of(const TomlTable& dump) { return *find(dump, {"plugins"})->table(); }

  test::ScratchDirectory scratch;
};

void forget(TomlTable& plugins, const ContainerdRelease& release, const RuntimeHandler& handler) {
  table_at(plugins, {release.merges_sections() ? kCriRuntime : kCriOfVersion2, "containerd", "runtimes"})
      .erase(handler.name);
  if (release.merges_sections()) table_at(plugins, {kCriImages, "runtime_platforms"}).erase(handler.name);
}

std::vector<RuntimeHandler> ours_for(const ContainerdRelease& release) {
  return {{.name = "kata-nvidia-gpu",
           .shim = "/opt/kata/bin/containerd-shim-kata-v2",
           .configuration = "/opt/kata/a.toml"},
          {.name = "kata-nvidia-gpu-snp",
           .shim = R"(/opt/kata/"odd"\shim)",
           .configuration = "/opt/kata/snp.toml",
           .snapshotter =
               release.has_runtime_snapshotters() ? std::optional<std::string>("nydus") : std::nullopt}};
}

/// The model's CRI, against what the program says, and says without any file.
void expect_as_predicted(const ContainerdOutcome& predicted, const TomlTable& said, const TomlTable& built_in,
                         const std::string& release) {
  const std::string& id = predicted.runtime_section;
  const TomlValue* section = find(said, {id});
  const TomlValue* without_files = find(built_in, {id});
  ASSERT_NE(section, nullptr) << id;
  ASSERT_NE(without_files, nullptr) << id;
  const auto found = test::summary(*predicted.plugins.at(id).table(), test::summary(*without_files->table()));
  EXPECT_EQ(test::as_modelled(found, release), test::as_modelled(test::summary(*section->table()), release))
      << id;
}

TEST_F(RealContainerd, KnowsOurRuntimesAndNothingElseIsChanged) {
  std::size_t shown = 0;
  for (const test::ContainerdBinary& program : test::containerd_binaries()) {
    const std::vector<RuntimeHandler> ours = ours_for(program.release);
    scratch.file("empty.toml", "");
    const TomlTable built_in = plugins_of(dump(program, scratch.path() / "empty.toml"));
    for (const std::string& name : all_cases()) {
      SCOPED_TRACE(program.release.text() + " " + name);
      const auto main = copy_of(name);
      if (!std::filesystem::exists(main)) continue;
      const HostFs host("/");
      const auto plan = plan_containerd(program.release, place_of(main), ConfigFiles(host), ours);
      if (!plan) continue;  // containerd_plan_test.cpp says which
      const auto before = dump(program, main);
      if (before.empty()) continue;  // it does not take what is there, and a trial start says so
      write(*plan);
      const auto after = dump(program, main);
      ASSERT_FALSE(after.empty()) << "it does not take what was planned:\n"
                                  << plan->changes.at(0).after.value_or("");
      TomlTable plugins = plugins_of(after);
      expect_as_predicted(plan->after, plugins, built_in, program.release.text());
      for (const RuntimeHandler& handler : ours) {
        const TomlValue* said =
            find(plugins, {plan->after.runtime_section, "containerd", "runtimes", handler.name});
        ASSERT_NE(said, nullptr) << handler.name;
        EXPECT_EQ(
            first_difference(*plan->after.runtimes().at(handler.name).table(), *said->table(), handler.name),
            std::nullopt);
        if (handler.snapshotter && program.release.merges_sections()) {
          const TomlValue* pulled =
              find(plugins, {kCriImages, "runtime_platforms", handler.name, "snapshotter"});
          ASSERT_NE(pulled, nullptr) << "images for it would be unpacked by another snapshotter";
          EXPECT_EQ(*pulled, TomlValue{*handler.snapshotter});
        }
        forget(plugins, program.release, handler);
      }
      EXPECT_EQ(first_difference(plugins_of(before), plugins, "plugins"), std::nullopt);
      ++shown;
    }
  }
  EXPECT_GT(shown, 40U) << "so few could be tried?";
}

// A dump is no full check of that: the daemon itself is started.
TEST_F(RealContainerd, RunsWithWhatIsPlanned) {
  const char* const desired_state =
      std::getenv("FERRY_EVERY_START");  // NOLINT(concurrency-mt-unsafe): one thread
  std::size_t served = 0;
  for (const test::ContainerdBinary& program : test::containerd_binaries()) {
    scratch.file("empty.toml", "");
    if (!serves(program, scratch.path() / "empty.toml")) continue;  // here, whatever its files say
    ++served;
    std::size_t started = 0;
    for (const std::string& name : all_cases()) {
      if (desired_state == nullptr && !name.starts_with("real/" + program.release.text() + "-")) continue;
      SCOPED_TRACE(program.release.text() + " " + name);
      const auto main = copy_of(name);
      if (!std::filesystem::exists(main)) continue;
      const HostFs host("/");
      const auto plan =
          plan_containerd(program.release, place_of(main), ConfigFiles(host), ours_for(program.release));
      if (!plan) continue;
      write(*plan);
      if (serves(program, main)) {
        ++started;
        continue;
      }
      // As where a plugin that is not CRI's cannot do what the file asks of it, and CRI needs that one.
      EXPECT_FALSE(serves(program, copy_of(name))) << plan->changes.at(0).after.value_or("");
    }
    EXPECT_GT(started, desired_state == nullptr ? 8U : 50U)
        << program.release.text() << ": so few could be tried?";
  }
  if (served == 0) GTEST_SKIP() << "no release of containerd serves CRI here whatever its files say";
}

// Real containerd does not run with the files that Ferry's model refuses. Faults that the model leaves to a
// trial start are in real_change_test.cpp.
TEST_F(RealContainerd, DoesNotRunWithWhatIsRefused) {
  const std::vector<RuntimeHandler> ours = {{.name = "kata-nvidia-gpu",
                                             .shim = "/opt/kata/bin/containerd-shim-kata-v2",
                                             .configuration = "/opt/kata/a.toml"}};
  std::size_t served = 0;
  std::size_t ended = 0;
  std::size_t by_daemon = 0;
  for (const test::ContainerdBinary& program : test::containerd_binaries()) {
    scratch.file("empty.toml", "");
    if (!serves(program, scratch.path() / "empty.toml")) continue;  // here, whatever its files say
    ++served;
    for (const std::string& name : all_cases()) {
      SCOPED_TRACE(program.release.text() + " " + name);
      const auto main = copy_of(name);
      if (!std::filesystem::exists(main)) continue;
      const HostFs host("/");
      const auto plan = plan_containerd(program.release, place_of(main), ConfigFiles(host), ours);
      if (plan) continue;
      EXPECT_THAT(plan.error().message, testing::HasSubstr("would not run with the configuration"));
      // A dump is no full check: what passes there the daemon itself may refuse.
      ++ended;
      if (dump(program, main).empty()) continue;
      ++by_daemon;
      EXPECT_FALSE(serves(program, main)) << plan.error().message;
    }
  }
  if (served == 0) GTEST_SKIP() << "no release of containerd serves CRI here whatever its files say";
  EXPECT_GT(ended, 20U) << "so few could be tried?";
  EXPECT_GT(by_daemon, 5U);
}

// What is refused for the sake of an inline table would have been no TOML to it.
TEST_F(RealContainerd, TakesNoAdditionToAnInlineTable) {
  const std::vector<RuntimeHandler> ours = {{.name = "kata-a", .shim = "/s", .configuration = "/a.toml"}};
  const auto main = scratch.path() / "config.toml";
  const std::string text =
      "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n"
      "runtimes = {runc = {runtime_type = \"io.containerd.runc.v2\"}}\n";
  for (const test::ContainerdBinary& program : test::containerd_binaries()) {
    SCOPED_TRACE(program.release.text());
    scratch.file("config.toml", text);
    const HostFs host("/");
    const auto plan = plan_containerd(program.release, place_of(main), ConfigFiles(host), ours);
    // The newer section of 2.x is a table of its own, where ours find a place.
    EXPECT_EQ(plan.has_value(), program.release.merges_sections());
    if (!plan) {
      EXPECT_THAT(plan.error().message, testing::HasSubstr("config.toml:3: "));
    }
    ASSERT_FALSE(dump(program, main).empty());
    scratch.file("config.toml",
                 text + body_of({.file = main, .section = kCriOfVersion2}, ours, false, program.release));
    EXPECT_TRUE(dump(program, main).empty());
  }
}

}  // namespace
}  // namespace ferry::kata
