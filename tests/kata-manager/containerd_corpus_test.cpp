// SPDX-License-Identifier: Apache-2.0
// Our runtimes put into every configuration that containerd was measured with, changed there, and removed.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "common/text/text.h"
#include "kata-manager/runtime/runtime_place.h"
#include "kata-manager/toml/toml.h"
#include "tests/kata-manager/containerd_host.h"
#include "tests/support/must.h"

namespace ferry::kata {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// corpus/ is what containerd was measured with, real/ what its releases themselves write.
const std::filesystem::path kCases = FERRY_SOURCE_DIR "/tests/fixtures/containerd";

const std::vector<std::string>& releases() {
  static const std::vector<std::string> all = {"1.6.20", "1.6.39",       "1.7.24", "1.7.34",
                                               "2.0.11", "2.1.9",        "2.2.7",  "2.3.0",
                                               "2.3.4",  "2.4.0-beta.0", "2.4.0"};
  return all;
}

std::vector<std::string> all_cases() {
  std::vector<std::string> out;
  for (const char* kind : {"corpus", "real"}) {
    for (const auto& entry : std::filesystem::directory_iterator(kCases / kind))
      out.push_back(std::string(kind) + "/" + entry.path().filename().string());
  }
  std::ranges::sort(out);
  return out;
}

/// A case's files on a host: those that were measured lie side by side on one.
struct CaseHost {
  explicit CaseHost(const std::filesystem::path& name)
      : host(name.parent_path() == "real" ? kCases / name : kCases / name.parent_path()),
        folder(name.parent_path() == "real" ? "/etc/containerd" : "/" / name.filename()) {}
  ContainerdSetup setup(const std::string& release) const {
    return {.release = test::must(ContainerdRelease::parse(release)), .main = folder / "config.toml"};
  }
  HostFs host;
  std::filesystem::path folder;
};

class Corpus : public testing::TestWithParam<std::string> {
 protected:
  ContainerdSetup setup(const std::string& release) const { return at.setup(release); }
  /// Every file of the case that can be read.
  std::map<std::filesystem::path, std::string> contents(const ConfigFiles& files) const {
    std::map<std::filesystem::path, std::string> out;
    for (const char* pattern : {"*", "conf.d/*"}) {
      for (const auto& path : test::must(files.glob(at.folder / pattern))) {
        if (auto text = files.read(path)) out.emplace(path, *text);
      }
    }
    return out;
  }
  const CaseHost at{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(All, Corpus, testing::ValuesIn(all_cases()), [](const auto& row) {
  std::string name = row.param;
  for (const char odd : {'-', '/', '.'}) std::ranges::replace(name, odd, '_');
  return name;
});

TEST_P(Corpus, TakesOurRuntimesAndGivesThemBack) {
  for (const std::string& release : releases()) {
    SCOPED_TRACE(release);
    ConfigFiles files(at.host);
    const auto before = contents(files);
    const auto was = predict_containerd(setup(release).release, files, setup(release).main);
    const auto plan = plan_containerd(setup(release), files, ours_for(release));
    if (!plan) {
      EXPECT_THAT(plan.error().message, HasSubstr("would not run with the configuration"));
      EXPECT_TRUE(was.no_start || was.no_cri) << plan.error().message;
      continue;
    }
    ASSERT_THAT(plan->changes, SizeIs(1));
    apply_to(*plan, files);
    const auto after = predict_containerd(setup(release).release, files, setup(release).main);
    EXPECT_EQ(said(after.no_start), "");
    EXPECT_EQ(said(after.no_cri), "");
    EXPECT_TRUE(after.runtimes().contains("kata-nvidia-gpu"));

    const auto again = plan_containerd(setup(release), files, ours_for(release));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_THAT(again->changes, IsEmpty()) << "twice writes nothing";

    const auto upgrade =
        plan_containerd(setup(release), files, ours_for(release, "/etc/ferry/kata/b/configuration.toml"));
    ASSERT_TRUE(upgrade) << upgrade.error().message;
    ASSERT_THAT(upgrade->changes, SizeIs(1));
    EXPECT_EQ(upgrade->changes[0].path, plan->changes[0].path) << "it stays where it is";
    apply_to(*upgrade, files);

    const auto gone = plan_containerd(setup(release), files, {});
    ASSERT_TRUE(gone) << gone.error().message;
    apply_to(*gone, files);
    EXPECT_EQ(contents(files), before) << "byte for byte";
    EXPECT_THAT(test::must(plan_containerd(setup(release), files, {})).changes, IsEmpty());
  }
}

/// FERRY_GOLDEN=write writes the file anew.
void expect_as_in(const std::string& name, const std::string& differences) {
  const auto golden = kCases / name;
  const char* const desired_state = std::getenv("FERRY_GOLDEN");  // NOLINT(concurrency-mt-unsafe): one thread
  if (desired_state != nullptr && std::string_view(desired_state) == "write")
    std::ofstream(golden, std::ios::binary) << differences;
  std::ifstream in(golden, std::ios::binary);
  EXPECT_EQ(differences, std::string(std::istreambuf_iterator<char>(in), {}));
}

// Every line that is written into what releases write by themselves: when our runtimes come, and when they
// become others: one upgraded, one gone, one new.
TEST(RealFiles, GetTheseLines) {
  std::string installed;
  std::string upgraded;
  for (const std::string& name : all_cases()) {
    if (!name.starts_with("real/")) continue;
    const std::string release = name.substr(5, name.find('-') - 5);
    const CaseHost at(name);
    ConfigFiles files(at.host);
    const auto add = [&](const std::vector<RuntimeHandler>& handlers, std::string& differences) {
      const auto plan = plan_containerd(at.setup(release), files, handlers);
      if (!plan) {
        differences += name + ": " + plan.error().message + "\n";
        return false;
      }
      for (const FileChange& change : plan->changes)
        differences += unified_diff("/" + name + change.path.string(), change.before, change.after);
      apply_to(*plan, files);
      return true;
    };
    if (!add(ours_for(release), installed)) continue;
    auto others = ours_for(release, "/etc/ferry/kata/b/configuration.toml");
    for (RuntimeHandler& handler : others) handler.shim = "/opt/kata/new/containerd-shim-kata-v2";
    others[0].pod_annotations = {"io.katacontainers.*"};
    others[1].name = "kata-nvidia-gpu-tdx";  // in place of the one for SNP
    add(others, upgraded);
  }
  expect_as_in("real-installed.diff", installed);
  expect_as_in("real-upgraded.diff", upgraded);
}

// And into each case of the corpus, by a release of each family; those that are given the same stand
// together.
TEST(CorpusFiles, GetTheseLines) {
  const std::vector<RuntimeHandler> alone = {ours()[1]};
  std::string installed;
  for (const std::string& name : all_cases()) {
    if (!name.starts_with("corpus/")) continue;
    std::vector<std::pair<std::string, std::string>> outcomes;  // of which releases, and what it is
    for (const std::string release : {"1.7.24", "2.1.9", "2.3.4"}) {
      const CaseHost at(name);
      const ConfigFiles files(at.host);
      const auto plan = plan_containerd(at.setup(release), files, alone);
      std::string outcome = plan ? "" : plan.error().message + "\n";
      const std::string word = " " + release;  // so that refusals are the same
      for (auto found = outcome.find(word); found != std::string::npos; found = outcome.find(word))
        outcome.erase(found, word.size());
      if (plan) {
        for (const FileChange& change : plan->changes)
          outcome += unified_diff(change.path.string(), change.before, change.after);
        for (const std::string& note : plan->notes) outcome += "note: " + note + "\n";
      }
      const auto same = std::ranges::find(outcomes, outcome, &std::pair<std::string, std::string>::second);
      if (same != outcomes.end()) {
        same->first += ", " + release;
      } else {
        outcomes.emplace_back(release, outcome);
      }
    }
    for (const auto& [by, outcome] : outcomes) installed += "== " + name + ", " + by + "\n" + outcome;
  }
  expect_as_in("corpus-installed.diff", installed);
}

TEST(OriginsOfCases, AreSaidOfEachFile) {
  std::set<std::string> there;
  for (const char* kind : {"corpus", "real"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kCases / kind))
      if (entry.is_regular_file()) there.insert(entry.path().lexically_relative(kCases).string());
  std::set<std::string> said;
  std::ifstream in(kCases / "ORIGINS.md");
  for (std::string line; std::getline(in, line);) {
    const std::size_t bar = line.find(" | ");
    if (!line.starts_with("| ") || bar == std::string::npos || bar + 5 >= line.size()) continue;
    said.insert(line.substr(2, bar - 2));
  }
  said.erase("file");
  said.erase("---");
  EXPECT_EQ(said, there);
}

}  // namespace
}  // namespace ferry::kata
