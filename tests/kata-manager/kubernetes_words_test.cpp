// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/kubernetes_words.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace ferry::kata {
namespace {

TEST(KubernetesWords, AreWhatTheApiTakes) {
  const std::string longest(63, 'a');
  for (const auto& name :
       {std::string("a"), std::string("a.b-c.1"), longest, fmt::format("{0}.{0}", longest)})
    EXPECT_TRUE(is_object_name(name)) << name;
  for (const auto& name :
       {std::string(), std::string("A"), std::string("a..b"), std::string(".a"), std::string("a."),
        std::string("-a"), std::string("a_b"), longest + "a", fmt::format("{0}.{0}.{0}.{0}", longest)})
    EXPECT_FALSE(is_object_name(name)) << name;
  for (const auto& key : {std::string("a"), std::string("nvidia.com/gpu"), std::string("A_b.c-D"), longest})
    EXPECT_TRUE(is_label_key(key)) << key;
  for (const auto& key : {std::string(), std::string("/a"), std::string("a/"), std::string("A.com/b"),
                          std::string("a/b/c"), std::string("a b"), longest + "a"})
    EXPECT_FALSE(is_label_key(key)) << key;
  for (const auto& value : {std::string(), std::string("true"), std::string("a_b.C-1"), longest})
    EXPECT_TRUE(is_label_value(value)) << value;
  for (const auto& value : {std::string("-a"), std::string("a-"), std::string("a/b"), longest + "a"})
    EXPECT_FALSE(is_label_value(value)) << value;
}

TEST(Quantity, IsHowMuchItSays) {
  const std::vector<std::pair<const char*, std::uint64_t>> quantities = {{"0", 0},
                                                                         {"1", 1},
                                                                         {"2.5", 3},
                                                                         {"500m", 1},
                                                                         {"0.5Ki", 512},
                                                                         {"10240Mi", 10240ULL << 20U},
                                                                         {"1.5Gi", 3ULL << 29U},
                                                                         {"1k", 1000},
                                                                         {"2M", 2000000},
                                                                         {"1G", 1000000000},
                                                                         {"1e3", 1000},
                                                                         {"1E3", 1000},
                                                                         {"1Ti", 1ULL << 40U},
                                                                         {"1P", 1000000000000000},
                                                                         {"1Pi", 1ULL << 50U}};
  for (const auto& [text, amount] : quantities) EXPECT_EQ(parse_quantity(text), amount) << text;
}

TEST(Quantity, IsNothingElse) {
  for (const char* text : {"", "Mi", ".5", "5.", "1.2.3", "-1", "+1", "1 Mi", "1mi", "1MiB", "010", "0x10",
                           "1e", "1e99", "1e1.5", "99999999999999Ei", "inf", "nan", "1K"})
    EXPECT_FALSE(parse_quantity(text).has_value()) << text;
}

}  // namespace
}  // namespace ferry::kata
