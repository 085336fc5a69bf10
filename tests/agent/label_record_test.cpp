// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>
#include <random>
#include <string>

#include <gmock/gmock.h>

#include "agent/labels/own_labels.h"

namespace ferry::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(LabelRecord, ReadsBackAsItself) {
  const Labels some = {{"nvidia.com/gpu.count", "2"}, {"a", ""}};
  EXPECT_EQ(label_record_text(some), R"({"a":"","nvidia.com/gpu.count":"2"})");
  EXPECT_EQ(read_label_record(label_record_text(some)), some);
}

TEST(LabelRecord, OfAnotherFormSaysNothing) {
  for (const char* text :
       {"", "{}", "[]", "null", "7", "\"a\"", "{", "{\"a\": 1}", "{\"a\": \"1\", \"b\": null}",
        "{\"a\": {\"b\": \"c\"}}", "a=1", "\xff", "{\"\xff\": \"a\"}"})
    EXPECT_THAT(read_label_record(text), IsEmpty()) << text;
}

const Labels kOne = {{"a", "1"}};

TEST(OwnLabels, AreSetRecordedChangedAndTakenOff) {
  OwnLabels own = own_labels({{"zone", "z"}}, {}, {{"a", "1"}});
  EXPECT_THAT(own.changes, ElementsAre(Pair("a", "1")));
  EXPECT_EQ(own.record, R"({"a":"1"})");
  own = own_labels({{"a", "1"}}, kOne, {{"a", "2"}, {"b", "1"}});
  EXPECT_THAT(own.changes, ElementsAre(Pair("a", "2"), Pair("b", "1")));
  EXPECT_EQ(own.record, R"({"a":"2","b":"1"})");
  own = own_labels({{"a", "1"}, {"b", "1"}}, {{"a", "1"}, {"b", "1"}}, {{"b", "1"}});
  EXPECT_THAT(own.changes, ElementsAre(Pair("a", std::nullopt), Pair("b", "1")));
  own = own_labels({{"a", "1"}}, kOne, {});
  EXPECT_THAT(own.changes, ElementsAre(Pair("a", std::nullopt)));
  EXPECT_EQ(own.record, std::nullopt);
}

TEST(OwnLabels, LeaveWhatAnotherHasSet) {
  for (const char* value : {"1", "2"}) {
    const OwnLabels own = own_labels({{"a", value}}, {}, {{"a", "1"}});
    EXPECT_THAT(own.changes, IsEmpty()) << "it was there before us, with " << value;
    EXPECT_EQ(own.record, std::nullopt);
  }
  for (const Labels& desired : {Labels{{"a", "1"}}, Labels{{"a", "3"}}, Labels()}) {
    const OwnLabels own = own_labels({{"a", "2"}}, kOne, desired);
    EXPECT_THAT(own.changes, IsEmpty()) << "somebody has given it another value";
    EXPECT_EQ(own.record, std::nullopt) << "and has it from then on";
  }
}

TEST(OwnLabels, AreSetAgainWhereSomebodyTookThemOff) {
  const OwnLabels own = own_labels({}, kOne, {{"a", "1"}});
  EXPECT_THAT(own.changes, ElementsAre(Pair("a", "1")));
  EXPECT_THAT(own_labels({}, kOne, {}).changes, IsEmpty());
}

TEST(OwnLabels, AreKnownByNameWhereTheRecordIsLost) {
  const Labels node = {{"a", "1"}, {"b", "1"}, {"theirs", "1"}};
  const OwnLabels own = own_labels(node, {}, {{"a", "2"}}, {{"a", "1"}, {"b", "1"}});
  EXPECT_THAT(own.changes, ElementsAre(Pair("a", "2"), Pair("b", std::nullopt)));
  EXPECT_EQ(own.record, R"({"a":"2"})");
  EXPECT_THAT(own_labels({{"a", "2"}}, kOne, {{"a", "3"}}, {{"a", "2"}}).changes, IsEmpty())
      << "somebody has given it another value than is recorded";
}

TEST(OwnLabels, WithoutARecordThatCanBeReadAreAnothers) {
  const OwnLabels own = own_labels({{"a", "1"}}, read_label_record("{"), {{"b", "1"}});
  EXPECT_THAT(own.changes, ElementsAre(Pair("b", "1")));
  EXPECT_EQ(own.record, R"({"b":"1"})");
}

// Whatever others do between our looks: what they have set is never touched, and nothing of ours is left.
TEST(OwnLabels, NeverTouchAnothersInAnyHistory) {
  constexpr std::array kKeys = {"a", "b", "c"};
  constexpr unsigned kHistories = 300;
  constexpr unsigned kEvents = 40;
  for (unsigned seed = 0; seed < kHistories; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);  // NOLINT(cert-msc51-cpp): a history that can be repeated
    const auto below = [&](unsigned n) { return static_cast<unsigned>(random()) % n; };
    Labels node;
    Labels others;  // what they have set, and not taken off
    std::string record;
    for (unsigned event = 0; event < kEvents; ++event) {
      const std::string key = kKeys.at(below(kKeys.size()));
      if (below(3) == 0) {
        const std::string value = "theirs-" + std::to_string(below(2));
        node[key] = value;
        others[key] = value;
      } else if (below(4) == 0) {
        node.erase(key);
        others.erase(key);
      } else {
        Labels desired;
        const bool last = below(5) == 0;
        for (const char* one : kKeys)
          if (!last && below(3) != 0) desired[one] = "ours-" + std::to_string(below(2));
        const OwnLabels own = own_labels(node, read_label_record(record), desired);
        node = with_changes(node, own.changes);
        record = own.record.value_or("");
        for (const auto& [one, value] : others) ASSERT_EQ(node[one], value) << one;
        for (const auto& [one, value] : node) {
          if (others.contains(one)) continue;
          ASSERT_EQ(desired[one], value) << one;
        }
        for (const auto& [one, value] : desired) ASSERT_TRUE(node.contains(one)) << one;
      }
    }
  }
}

}  // namespace
}  // namespace ferry::agent
