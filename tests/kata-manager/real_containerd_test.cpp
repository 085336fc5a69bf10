// SPDX-License-Identifier: Apache-2.0
// What is planned, shown to real releases of containerd: they take it, know our runtimes by it, and
// everything else they say is as before. FERRY_CONTAINERDS names them, "VERSION PATH" a line
// (scripts/lib/containerd-releases).
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "common/spawn.h"
#include "common/unique_fd.h"
#include "kata-manager/containerd_plan.h"
#include "kata-manager/toml_difference.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

const std::filesystem::path kCases = FERRY_SOURCE_DIR "/tests/fixtures/containerd";

std::vector<std::filesystem::path> all_cases() {
  std::vector<std::filesystem::path> out;
  for (const char* kind : {"corpus", "real"}) {
    for (const auto& entry : std::filesystem::directory_iterator(kCases / kind)) out.push_back(entry.path());
  }
  return out;
}

/// The main file of a copy of a case; one that imports itself does so where it lies now.
std::filesystem::path main_of(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "config.toml") || !std::filesystem::exists(folder / "etc"))
    return folder / "config.toml";
  constexpr std::string_view kUsual = "/etc/containerd/config.toml";
  const std::filesystem::path main = folder / "etc/containerd/config.toml";
  std::ifstream in(main, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  for (auto at = text.find(kUsual); at != std::string::npos;
       at = text.find(kUsual, at + main.native().size()))
    text.replace(at, kUsual.size(), main.native());
  std::ofstream(main, std::ios::binary) << text;
  return main;
}

struct Program {
  ContainerdRelease release;
  std::filesystem::path path;
};

std::vector<Program> programs() {
  std::vector<Program> out;
  const char* list = std::getenv("FERRY_CONTAINERDS");
  std::istringstream lines(list == nullptr ? "" : list);
  for (std::string version, path; lines >> version >> path;)
    out.push_back({.release = test::must(ContainerdRelease::parse(version)), .path = path});
  return out;
}

class RealContainerd : public testing::Test {
 protected:
  void SetUp() override {
    if (programs().empty()) GTEST_SKIP() << "no containerd is named by FERRY_CONTAINERDS";
  }

  /// `config dump` of a main file; empty: the program does not take it.
  TomlTable dump(const Program& program, const std::filesystem::path& main) const {
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

  static TomlTable plugins_of(const TomlTable& dump) { return *find(dump, {"plugins"})->table(); }

  test::ScratchDirectory scratch;
};

void forget(TomlTable& plugins, const ContainerdRelease& release, const RuntimeHandler& handler) {
  table_at(plugins, {release.merges_sections() ? kCriRuntime : kCriOfVersion2, "containerd", "runtimes"})
      .erase(handler.name);
  if (release.merges_sections()) table_at(plugins, {kCriImages, "runtime_platforms"}).erase(handler.name);
}

TEST_F(RealContainerd, KnowsOurRuntimesAndNothingElseIsChanged) {
  std::vector<RuntimeHandler> ours = {{.name = "kata-nvidia-gpu",
                                       .shim = "/opt/kata/bin/containerd-shim-kata-v2",
                                       .configuration = "/opt/kata/a.toml"},
                                      {.name = "kata-nvidia-gpu-snp",
                                       .shim = R"(/opt/kata/"odd"\shim)",
                                       .configuration = "/opt/kata/snp.toml",
                                       .snapshotter = {}}};
  std::size_t shown = 0;
  for (const Program& program : programs()) {
    ours[1].snapshotter.reset();
    if (program.release.has_runtime_snapshotters()) ours[1].snapshotter = "nydus";
    for (const auto& path : all_cases()) {
      SCOPED_TRACE(program.release.text() + " " + path.filename().string());
      const auto folder = scratch.path() / path.filename();
      std::filesystem::remove_all(folder);
      std::filesystem::copy(path, folder, std::filesystem::copy_options::recursive);
      const auto main = main_of(folder);
      if (!std::filesystem::exists(main)) continue;
      const HostFs host("/");
      const ContainerdSetup setup{.release = program.release, .main = main};
      const auto plan = plan_containerd(setup, ConfigFiles(host), ours);
      if (!plan) continue;  // containerd_plan_test.cpp says which
      const auto before = dump(program, main);
      ASSERT_FALSE(before.empty());
      for (const FileChange& change : plan->changes) {
        std::filesystem::create_directories(change.path.parent_path());
        std::ofstream out(change.path, std::ios::binary);
        out << change.after.value_or("");
      }
      const auto after = dump(program, main);
      ASSERT_FALSE(after.empty()) << "it does not take what was planned:\n"
                                  << plan->changes.at(0).after.value_or("");
      TomlTable plugins = plugins_of(after);
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

}  // namespace
}  // namespace ferry
