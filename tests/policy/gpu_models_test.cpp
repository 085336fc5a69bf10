// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "policy/accelerators.h"

namespace ferry::policy {
namespace {

using testing::MatchesRegex;

/// "A16, ? MiB, ampere"
std::string known(std::string_view ids, std::string_view subsystem = {}) {
  const GpuModel model = gpu_model(ids, subsystem);
  return std::string(model.product) + ", " +
         (model.memory_mib ? std::to_string(*model.memory_mib) : std::string("?")) + " MiB, " +
         std::string(model.family);
}

TEST(GpuModels, TellMemoryAndFamilyByIds) {
  EXPECT_EQ(known("10de:2330"), ", 81920 MiB, hopper");
  EXPECT_EQ(known("10de:20b7"), ", 24576 MiB, ampere");
  EXPECT_EQ(known("10de:1db6"), ", 32768 MiB, volta");
  EXPECT_EQ(known("10de:26b9"), ", ? MiB, ada-lovelace") << "its vGPUs' sizes are not its own";
  EXPECT_EQ(known("10de:1eb8"), ", ? MiB, turing");
}

TEST(GpuModels, AreUnknownWhereNobodySays) {
  for (const char* ids :
       {"", "10de", "10de:", "10de:0008", "10de:ffff", "1002:2330", "10de:2330\t", "boards"})
    EXPECT_EQ(known(ids), ", ? MiB, ") << ids;
}

TEST(GpuModels, TellBoardsOfOneDeviceIdApartBySubsystem) {
  EXPECT_EQ(known("10de:25b6", "10de:14a9"), "A16, ? MiB, ampere");
  EXPECT_EQ(known("10de:25b6", "10de:157e"), "A2, ? MiB, ampere");
  EXPECT_EQ(known("10de:25b6", "10de:0000"), ", ? MiB, ampere") << "it may be any of them";
  EXPECT_EQ(known("10de:25b6", ""), ", ? MiB, ampere");
  EXPECT_EQ(known("10de:1e30", "103c:129e"), "Quadro RTX 8000, ? MiB, turing");
  EXPECT_EQ(known("10de:1e30", "103c:129"), ", ? MiB, turing");
}

// What gpu_model() takes for granted of the table, and what whoever reads its words may.
TEST(GpuModels, TableHasTheFormThatIsRead) {
  constexpr std::array<std::string_view, 9> kFamilies = {
      "kepler", "maxwell", "pascal", "volta", "turing", "ampere", "hopper", "ada-lovelace", "blackwell"};
  std::istringstream lines{std::string(gpu_models_text())};
  std::set<std::string> done;
  std::string last;
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    ++count;
    std::vector<std::string> parts;
    for (std::istringstream rest(line + "\t"); std::getline(rest, line, '\t');) parts.push_back(line);
    ASSERT_EQ(parts.size(), 5U) << parts.front();
    EXPECT_THAT(parts[0], MatchesRegex("10de:[0-9a-f]{4}"));
    if (parts[0] != last) {
      EXPECT_TRUE(done.insert(parts[0]).second) << parts[0] << " stands in two places";
    }
    last = parts[0];
    EXPECT_EQ(parts[1].empty(), parts[2].empty()) << parts[0] << ": a product is one of named boards";
    EXPECT_THAT(parts[3], MatchesRegex("([1-9][0-9]{3,6})?"));
    EXPECT_TRUE(parts[4].empty() || std::ranges::find(kFamilies, parts[4]) != kFamilies.end()) << parts[4];
  }
  EXPECT_GT(count, 700);
}

}  // namespace
}  // namespace ferry::policy
