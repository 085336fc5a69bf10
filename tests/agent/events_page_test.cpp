// SPDX-License-Identifier: Apache-2.0
// The events of docs/agent.md, held against what says them.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include <gmock/gmock.h>

namespace ferry::agent {
namespace {

using testing::Contains;
using testing::SizeIs;

std::string text_of(const char* file) {
  std::ifstream in(std::filesystem::path(FERRY_SOURCE) / file);
  EXPECT_TRUE(in) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::set<std::string> reasons() {
  static const std::regex kReason("= \"([A-Za-z]+)\";");
  std::set<std::string> out;
  const std::string text = text_of("api/events.h");
  for (std::sregex_iterator at(text.begin(), text.end(), kReason), end; at != end; ++at)
    out.insert((*at)[1].str());
  return out;
}

TEST(EventsPage, HasEachReason) {
  const auto all = reasons();
  ASSERT_THAT(all, SizeIs(testing::Gt(15U)));
  ASSERT_THAT(all, Contains("Ready"));
  const std::string page = text_of("docs/agent.md");
  const auto begin = page.find("| event | when |");
  ASSERT_NE(begin, std::string::npos);
  const std::string tables = page.substr(begin, page.find("\n## ", begin) - begin);
  for (const std::string& reason : all)
    EXPECT_NE(tables.find("`" + reason + "`"), std::string::npos) << reason;
}

}  // namespace
}  // namespace ferry::agent
