// SPDX-License-Identifier: Apache-2.0
// Our runtimes put into every configuration that containerd was measured with, changed there, and removed.
#include <algorithm>
#include <cstddef>
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

#include "kata-manager/runtimes/runtime_place.h"
#include "tests/kata-manager/containerd_cases.h"
#include "tests/kata-manager/containerd_host.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::vector<std::string>& releases() {
  static const std::vector<std::string> all = {"1.6.20", "1.6.39",       "1.7.24", "1.7.34",
                                               "2.0.11", "2.1.9",        "2.2.7",  "2.3.0",
                                               "2.3.4",  "2.4.0-beta.0", "2.4.0"};
  return all;
}

/// A host with the files of a case.
struct CaseHost {
  explicit CaseHost(const std::string& name)
      : folder(name.starts_with("real/") ? "/etc/containerd" : name.substr(name.find('/'))) {
    test::write_containerd_case(name, scratch.path() / folder.relative_path());
  }
  std::filesystem::path main() const { return folder / "config.toml"; }
  Result<RuntimePlan> plan(const std::string& release, const ConfigFiles& files,
                           const std::vector<RuntimeHandler>& handlers) const {
    RuntimePlace place;
    place.configuration = main();
    return plan_containerd(test::must(ContainerdRelease::parse(release)), place, files, handlers);
  }
  const test::ScratchDirectory scratch;
  const HostFs host{scratch.path()};
  const std::filesystem::path folder;
};

class Corpus : public testing::TestWithParam<std::string> {
 protected:
  Result<RuntimePlan> plan(const std::string& release, const ConfigFiles& files,
                           const std::vector<RuntimeHandler>& handlers) const {
    return at.plan(release, files, handlers);
  }
  ContainerdOutcome predict(const std::string& release, const ConfigFiles& files) const {
    return predict_containerd(test::must(ContainerdRelease::parse(release)), files, at.main());
  }
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

INSTANTIATE_TEST_SUITE_P(All, Corpus, testing::ValuesIn(test::containerd_cases()), [](const auto& row) {
  std::string name = row.param;
  for (const char odd : {'-', '/', '.'}) std::ranges::replace(name, odd, '_');
  return name;
});

TEST_P(Corpus, TakesOurRuntimesAndGivesThemBack) {
  for (const std::string& release : releases()) {
    SCOPED_TRACE(release);
    ConfigFiles files(at.host);
    const auto before = contents(files);
    const auto was = predict(release, files);
    const auto first = plan(release, files, ours_for(release));
    if (!first) {
      EXPECT_THAT(first.error().message, HasSubstr("would not run with the configuration"));
      EXPECT_TRUE(was.no_start || was.no_cri) << first.error().message;
      continue;
    }
    ASSERT_THAT(first->changes, SizeIs(1));
    apply_to(*first, files);
    const auto after = predict(release, files);
    EXPECT_EQ(said(after.no_start), "");
    EXPECT_EQ(said(after.no_cri), "");
    EXPECT_TRUE(after.runtimes().contains("kata-nvidia-gpu"));

    const auto again = plan(release, files, ours_for(release));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_THAT(again->changes, IsEmpty()) << "twice writes nothing";

    const auto upgrade = plan(release, files, ours_for(release, "/etc/ferry/kata/b/configuration.toml"));
    ASSERT_TRUE(upgrade) << upgrade.error().message;
    ASSERT_THAT(upgrade->changes, SizeIs(1));
    EXPECT_EQ(upgrade->changes[0].path, first->changes[0].path) << "it stays where it is";
    apply_to(*upgrade, files);

    const auto gone = plan(release, files, {});
    ASSERT_TRUE(gone) << gone.error().message;
    apply_to(*gone, files);
    EXPECT_EQ(contents(files), before) << "byte for byte";
    EXPECT_THAT(test::must(plan(release, files, {})).changes, IsEmpty());
  }
}

/// The lines that a change writes into a file. They stand at its end, and all other bytes are as before.
std::string lines_of(const FileChange& change, const std::filesystem::path& folder) {
  constexpr std::string_view kBegin = "# ferry kata: from here";
  constexpr std::string_view kEnd = "# ferry kata: end";
  const auto without_lines = [&](const std::string& text) {
    const auto end = text.find(kEnd);
    EXPECT_TRUE(end == std::string::npos ||
                text.find_first_not_of("\r\n", end + kEnd.size()) == std::string::npos)
        << "nothing stands behind them";
    return text.substr(0, std::min(text.find(kBegin), text.size()));
  };
  const std::string after = change.after.value_or("");
  const std::string was = without_lines(change.before.value_or(""));
  const std::string is = without_lines(after);
  EXPECT_TRUE(is == was || is == was + "\n" || is == was + "\r\n") << change.path;
  std::string lines = after.substr(is.size());
  const auto returns = static_cast<std::ptrdiff_t>(std::erase(lines, '\r'));
  EXPECT_TRUE(returns == 0 || returns == std::ranges::count(lines, '\n')) << "all line ends are alike";
  return change.path.lexically_relative(folder).string() + (change.before ? "" : ", a new file") +
         (is == was ? "" : ", behind a line end") + (returns == 0 ? "" : ", with CRLF") + "\n" + lines;
}

/// The plan of a case.
std::string outcome_of(const Result<RuntimePlan>& plan, const CaseHost& at, const std::string& release) {
  if (!plan) {
    std::string out = plan.error().message + "\n";
    // So that refusals are the same.
    for (const std::string& word : {at.folder.string() + "/", " " + release})
      for (auto found = out.find(word); found != std::string::npos; found = out.find(word))
        out.erase(found, word.size());
    return out;
  }
  std::string out;
  for (const FileChange& change : plan->changes) out += lines_of(change, at.folder);
  for (std::string note : plan->notes) {
    if (const auto found = note.find(at.folder.string() + "/"); found != std::string::npos)
      note.erase(found, at.folder.string().size() + 1);
    out += "note: " + note + "\n";
  }
  return out;
}

/// Outcomes, each with the cases that have it.
class Outcomes {
 public:
  void add(const std::string& by, const std::string& what) {
    const auto same =
        std::ranges::find(all_, what, &std::pair<std::vector<std::string>, std::string>::second);
    if (same == all_.end()) {
      all_.push_back({{by}, what});
    } else {
      same->first.push_back(by);
    }
  }

  /// FERRY_GOLDEN=write writes the file anew.
  void expect_as_in(const std::string& name) const {
    std::string text;
    std::map<std::string, std::string> first_with;
    for (const auto& [cases, what] : all_) {
      for (const std::string& by : cases) text += "== " + by + "\n";
      text += with_new_tables(what, cases.front(), first_with);
    }
    const auto golden = test::containerd_fixtures() / name;
    const char* const desired_state =
        std::getenv("FERRY_GOLDEN");  // NOLINT(concurrency-mt-unsafe): one thread
    if (desired_state != nullptr && std::string_view(desired_state) == "write")
      std::ofstream(golden, std::ios::binary) << text;
    std::ifstream in(golden, std::ios::binary);
    EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(in), {}));
  }

 private:
  /// The outcome, in which tables that an earlier outcome has too are said by the first case with them.
  static std::string with_new_tables(const std::string& what, const std::string& by,
                                     std::map<std::string, std::string>& first_with) {
    const auto begin = what.find("\n[");
    const auto end = what.find("# ferry kata: end\n", begin);
    if (begin == std::string::npos || end == std::string::npos) return what;
    const auto [first, is_new] = first_with.emplace(what.substr(begin + 1, end - begin - 1), by);
    if (is_new) return what;
    return what.substr(0, begin + 1) + "(the tables of " + first->second + ")\n" + what.substr(end);
  }

  std::vector<std::pair<std::vector<std::string>, std::string>> all_;
};

// Every line that is written into what releases write by themselves: when our runtimes come, and when they
// become others: one upgraded, one gone, one new.
TEST(RealFiles, GetTheseLines) {
  Outcomes installed;
  Outcomes upgraded;
  for (const std::string& name : test::containerd_cases()) {
    if (!name.starts_with("real/")) continue;
    const std::string release = name.substr(5, name.find('-') - 5);
    const CaseHost at(name);
    ConfigFiles files(at.host);
    const auto add = [&](const std::vector<RuntimeHandler>& handlers, Outcomes& outcomes) {
      const auto plan = at.plan(release, files, handlers);
      outcomes.add(name, outcome_of(plan, at, release));
      if (plan) apply_to(*plan, files);
      return plan.has_value();
    };
    if (!add(ours_for(release), installed)) continue;
    auto others = ours_for(release, "/etc/ferry/kata/b/configuration.toml");
    for (RuntimeHandler& handler : others) handler.shim = "/opt/kata/new/containerd-shim-kata-v2";
    others[0].pod_annotations = {"io.katacontainers.*"};
    others[1].name = "kata-nvidia-gpu-tdx";  // in place of the one for SNP
    add(others, upgraded);
  }
  installed.expect_as_in("real-installed.txt");
  upgraded.expect_as_in("real-upgraded.txt");
}

// Each case of the corpus gets it, too, by a release of each family.
TEST(CorpusFiles, GetTheseLines) {
  const std::vector<RuntimeHandler> alone = {ours()[1]};
  Outcomes installed;
  for (const std::string& name : test::containerd_cases()) {
    if (!name.starts_with("corpus/")) continue;
    const CaseHost at(name);
    std::map<std::string, std::string> releases_with;
    for (const std::string release : {"1.7.24", "2.1.9", "2.3.4"}) {
      std::string& all =
          releases_with[outcome_of(at.plan(release, ConfigFiles(at.host), alone), at, release)];
      all += ", " + release;
    }
    for (const auto& [outcome, all] : releases_with) installed.add(name + all, outcome);
  }
  installed.expect_as_in("corpus-installed.txt");
}

TEST(OriginsOfCases, AreSaidOfEachFile) {
  std::set<std::string> there;
  for (const char* kind : {"corpus", "real"})
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(test::containerd_fixtures() / kind))
      if (entry.is_regular_file())
        there.insert(entry.path().lexically_relative(test::containerd_fixtures()).string());
  std::set<std::string> said;
  std::ifstream in(test::containerd_fixtures() / "ORIGINS.md");
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
