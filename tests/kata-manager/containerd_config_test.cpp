// SPDX-License-Identifier: Apache-2.0
// The model against what real releases did, case by case (tests/fixtures/containerd). The model refuses
// nothing that runs, and merges the files as the release does. Faults that it leaves to the trial start of
// the host's own containerd have names here.
#include "kata-manager/runtimes/containerd_config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/kata-manager/containerd_cases.h"
#include "tests/kata-manager/containerd_summary.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using nlohmann::json;

const json& measured() {
  static const json results = json::parse(std::ifstream(test::containerd_fixtures() / "results.json"));
  return results;
}

std::vector<std::string> all_cases() {
  std::vector<std::string> out;
  for (const auto& [name, about] : measured().items()) out.push_back(name);
  return out;
}

/// Cases with a fault that only containerd itself finds.
const std::set<std::string>& found_by_a_trial_alone() {
  static const std::set<std::string> cases = {
      "cni-bin-dirs",       "err-type-bool",       "err-type-dropin",         "err-type-string",
      "legacy-engine-root", "peer-both-main2-nv3", "peer-nvidia-main2-drop3", "spell-unquoted-plugin-id",
      "unknown-plugin-id"};
  return cases;
}

class OfRealReleases : public testing::TestWithParam<std::string> {
 protected:
  /// CRI's section of a release without any file.
  static json built_in(const std::string& id, const std::string& release) {
    for (const json& outcome : measured().at("empty-file").at("outcomes")) {
      for (const auto& one : outcome.at("releases")) {
        if (one == release)
          return test::as_upstream(outcome.at("sections").value(id, json::object()), release);
      }
    }
    return json::object();
  }

  OfRealReleases() { test::write_containerd_case("corpus/" + GetParam(), scratch_.path() / GetParam()); }

  void compare(const json& outcome, const std::string& release) const {
    SCOPED_TRACE(release);
    const HostFs host(scratch_.path());
    const ConfigFiles files(host);
    const auto predicted =
        predict_containerd(test::must(ContainerdRelease::parse(release == "main" ? "2.4.0" : release)), files,
                           "/" + GetParam() + "/config.toml");
    const bool starts = outcome.at("starts").get<bool>();
    const bool serves = starts && outcome.at("cri").get<bool>();
    if (predicted.no_start) {
      EXPECT_FALSE(starts) << predicted.no_start->message;
      return;
    }
    if (predicted.no_cri) {
      EXPECT_FALSE(serves) << predicted.no_cri->message;
    } else if (!found_by_a_trial_alone().contains(GetParam())) {
      EXPECT_TRUE(serves) << "the model has no objection";
    }
    if (!starts) return;
    std::set<std::string> disabled;
    for (const ContainerdFile& file : predicted.files) {
      for (const std::string& id : texts_at(file.root, {"disabled_plugins"})) disabled.insert(id);
    }
    EXPECT_EQ(json(disabled), outcome.value("disabled_plugins", json::array()));
    for (const auto& [id, section] : outcome.at("sections").items()) {
      const auto found = predicted.plugins.find(id);
      const TomlTable modelled = found == predicted.plugins.end() ? TomlTable() : *found->second.table();
      EXPECT_EQ(test::as_modelled(test::summary(modelled, built_in(id, release)), release),
                test::as_modelled(test::as_upstream(section, release), release))
          << id;
    }
  }

  const test::ScratchDirectory scratch_;
};

INSTANTIATE_TEST_SUITE_P(Corpus, OfRealReleases, testing::ValuesIn(all_cases()), [](const auto& row) {
  std::string name = row.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST_P(OfRealReleases, IsAsTheyDid) {
  std::size_t compared = 0;
  for (const json& outcome : measured().at(GetParam()).at("outcomes")) {
    for (const auto& release : outcome.at("releases")) {
      compare(outcome, release);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 11U);
}

// containerd 2 ignores it; containerd 1 does not start, and says so in a trial start.
TEST(PredictContainerd, HasNoObjectionToAnEntryThatIsNoSection) {
  const test::ScratchDirectory scratch;
  scratch.file("config.toml",
               "version = 2\n[plugins]\nversion = 999\n\"io.containerd.cri.v1.runtime\" = 1\n");
  const HostFs host(scratch.path());
  for (const char* release : {"1.6.20", "1.7.24", "2.1.9", "2.3.4"}) {
    const auto predicted =
        predict_containerd(test::must(ContainerdRelease::parse(release)), ConfigFiles(host), "/config.toml");
    EXPECT_FALSE(predicted.no_start || predicted.no_cri) << release;
    EXPECT_TRUE(predicted.runtimes().contains("runc")) << release;
  }
}

}  // namespace
}  // namespace ferry::kata
