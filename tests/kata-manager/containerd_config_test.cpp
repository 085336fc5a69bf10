// SPDX-License-Identifier: Apache-2.0
// The prediction against what real releases did, case by case (tests/fixtures/containerd).
#include "kata-manager/containerd/containerd_config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/kata-manager/containerd_summary.h"
#include "tests/support/must.h"

namespace ferry::kata {
namespace {

using nlohmann::json;

const std::filesystem::path& fixtures() {
  static const std::filesystem::path folder = FERRY_SOURCE_DIR "/tests/fixtures/containerd";
  return folder;
}

const json& measured() {
  static const json results = json::parse(std::ifstream(fixtures() / "results.json"));
  return results;
}

std::vector<std::string> all_cases() {
  std::vector<std::string> out;
  for (const auto& [name, about] : measured().items()) out.push_back(name);
  return out;
}

class OfRealReleases : public testing::TestWithParam<std::string> {
 protected:
  static void compare(const json& outcome, const std::string& release) {
    SCOPED_TRACE(release);
    const HostFs host(fixtures() / "corpus");
    const ConfigFiles files(host);
    const auto predicted =
        predict_containerd(test::must(ContainerdRelease::parse(release == "main" ? "2.4.0" : release)), files,
                           "/" + GetParam() + "/config.toml");
    ASSERT_EQ(!predicted.no_start, outcome.at("starts"))
        << (predicted.no_start ? predicted.no_start->message : "it would start");
    if (predicted.no_start) return;
    EXPECT_EQ(!predicted.no_cri, outcome.at("cri")) << (predicted.no_cri ? predicted.no_cri->message : "");
    auto disabled = predicted.disabled_plugins;
    std::ranges::sort(disabled);
    EXPECT_EQ(json(disabled), outcome.value("disabled_plugins", json::array()));
    for (const auto& [id, section] : outcome.at("sections").items()) {
      ASSERT_TRUE(predicted.plugins.contains(id));
      const json desired = test::as_upstream(section, release);
      EXPECT_EQ(test::without_later_keys(test::summary(*predicted.plugins.at(id).table()), release), desired)
          << id;
    }
  }
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

}  // namespace
}  // namespace ferry::kata
