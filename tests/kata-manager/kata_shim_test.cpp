// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/configuration/kata_shim.h"

#include <map>
#include <string>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kGo = "opt/kata/bin/containerd-shim-kata-v2";
constexpr const char* kRust = "opt/kata/runtime-rs/bin/containerd-shim-kata-v2";

std::string answer_of(const std::string& language, const std::string& release) {
  return "Kata Containers containerd shim (" + language +
         "): id: \"io.containerd.kata.v2\", version: " + release + ", commit: 0123\n";
}

class ChosenShim : public testing::Test {
 protected:
  std::string found(std::optional<ShimRuntime> desired = {}) const {
    const VersionOf version_of = [&](const std::filesystem::path& program) -> Result<std::string> {
      const auto said = answers.find(program.relative_path());
      if (said == answers.end()) return fail(Errc::failed, "run " + program.string() + ": no");
      return said->second;
    };
    const auto shim = find_kata_shim(host, kata, version_of, desired);
    return shim ? shim->text() : shim.error().message;
  }
  void shim(const std::string& path, const std::string& answer = {}) {
    scratch.file(path, "");
    if (!answer.empty()) answers[path] = answer;
  }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  KataClass kata;
  std::map<std::string, std::string> answers;
};

TEST_F(ChosenShim, IsWhereKatasInstallersPutIt) {
  kata.name = "a";
  EXPECT_THAT(found(), StartsWith("class a: no shim of Kata's is there: not /opt/kata/bin/"));
  shim("usr/bin/containerd-shim-kata-v2");
  EXPECT_EQ(found(), "/usr/bin/containerd-shim-kata-v2");
  shim(kGo);
  EXPECT_EQ(found(), "/opt/kata/bin/containerd-shim-kata-v2");
}

TEST_F(ChosenShim, IsTheOneThatTheClassNamesAndNoOther) {
  shim("usr/bin/containerd-shim-kata-v2");
  kata.name = "a";
  kata.place = "k.yaml:3";
  kata.shim = "/srv/shim";
  EXPECT_EQ(found(), "k.yaml:3: class a: there is no /srv/shim");
  shim("srv/shim", answer_of("Rust", "4.1.0"));
  EXPECT_EQ(found(), "/srv/shim (Kata's runtime-rs 4.1.0)");
  EXPECT_EQ(found(ShimRuntime::go),
            "k.yaml:3: class a: its artifact's configuration is for Kata's Go runtime, and the shim here is "
            "/srv/shim (Kata's runtime-rs 4.1.0)");
}

TEST_F(ChosenShim, IsOfTheRuntimeThatAConfigurationIsFor) {
  shim(kGo, answer_of("Golang", "4.1.0"));
  shim(kRust, answer_of("Rust", "4.1.0"));
  EXPECT_THAT(found(), HasSubstr("/opt/kata/bin/"));
  EXPECT_EQ(found(ShimRuntime::go), "/opt/kata/bin/containerd-shim-kata-v2 (Kata's Go runtime 4.1.0)");
  EXPECT_EQ(found(ShimRuntime::rust),
            "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2 (Kata's runtime-rs 4.1.0)");
  // They may not be started, as in a container: the folder and the file VERSION tell.
  answers.clear();
  scratch.file("opt/kata/VERSION", "3.31.0\n");
  EXPECT_EQ(found(ShimRuntime::rust),
            "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2 (Kata's runtime-rs 3.31.0)");
  EXPECT_EQ(found(ShimRuntime::go), "/opt/kata/bin/containerd-shim-kata-v2 (Kata 3.31.0)");
  scratch.remove(kGo);
  EXPECT_THAT(found(ShimRuntime::go),
              HasSubstr("is for Kata's Go runtime, and the shim here is /opt/kata/runtime-rs/"));
}

TEST_F(ChosenShim, AnswersItself) {
  const auto path = scratch.path() / "containerd-shim-kata-v2";
  scratch.file(path.filename(),
               "#!/bin/sh\n[ \"$1\" = --version ] && echo '" + answer_of("Golang", "3.20.0-rc1") + "'\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  HostFs whole("/");
  SpawningWriter writer(whole);
  const KataShim shim = kata_shim_at(whole, path, version_by(writer));
  EXPECT_EQ(shim.runtime, ShimRuntime::go);
  EXPECT_EQ(shim.release, (KataRelease{3, 20, 0}));
  EXPECT_EQ(shim.unknown, "");
  scratch.file(path.filename(), "shim");
  const KataShim silent = kata_shim_at(whole, path, version_by(writer));
  EXPECT_EQ(silent.release, std::nullopt);
  EXPECT_THAT(silent.unknown, HasSubstr("--version"));
  EXPECT_TRUE(silent.asks_kubelet()) << "nothing is known against it";
}

TEST(KataRelease, SaysWhetherAShimAsksTheKubelet) {
  struct Row {
    ShimRuntime runtime;
    KataRelease release;
    bool asks;
  };
  for (const Row& row :
       {Row{ShimRuntime::go, {3, 20, 0}, false}, Row{ShimRuntime::go, {3, 23, 9}, false},
        Row{ShimRuntime::go, {3, 24, 0}, true}, Row{ShimRuntime::go, {4, 1, 0}, true},
        Row{ShimRuntime::rust, {3, 24, 0}, false}, Row{ShimRuntime::rust, {3, 25, 0}, true},
        Row{ShimRuntime::rust, {3, 28, 1}, true}, Row{ShimRuntime::rust, {3, 29, 0}, false},
        Row{ShimRuntime::rust, {3, 30, 0}, false}, Row{ShimRuntime::rust, {3, 31, 0}, true}}) {
    const KataShim shim{.runtime = row.runtime, .release = row.release};
    EXPECT_EQ(shim.asks_kubelet(), row.asks) << shim.text();
  }
}

TEST(KataRelease, IsReadFromItsText) {
  EXPECT_EQ(KataRelease::parse("3.24.0"), (KataRelease{3, 24, 0}));
  EXPECT_EQ(KataRelease::parse("4.1.0-rc0\n"), (KataRelease{4, 1, 0}));
  for (const char* text : {"", "3", "3.24", "3.24.x", "v3.24.0", "3.24.0a"})
    EXPECT_EQ(KataRelease::parse(text), std::nullopt) << text;
}

TEST(KataConfigurations, AreForOneOfTheRuntimes) {
  const auto runtime = [](const char* text) {
    return runtime_of_configuration(test::must(parse_toml(text, "configuration.toml")));
  };
  EXPECT_EQ(runtime("[agent.kata]\ndial_timeout = 1200\n"), ShimRuntime::go);
  EXPECT_EQ(runtime("[runtime]\ncreate_container_timeout = 1200\n"), ShimRuntime::go);
  EXPECT_EQ(runtime("[runtime]\nname = \"virt_container\"\n[agent.kata]\ndial_timeout = 1\n"),
            ShimRuntime::rust);
  EXPECT_EQ(runtime("[agent.kata]\nreconnect_timeout_ms = 3000\n"), ShimRuntime::rust);
  EXPECT_EQ(runtime("[agent.kata]\n[runtime]\n"), std::nullopt);
}

}  // namespace
}  // namespace ferry::kata
