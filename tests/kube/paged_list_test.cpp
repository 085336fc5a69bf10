// SPDX-License-Identifier: Apache-2.0
#include "kube/paged_list.h"

#include <deque>
#include <string>

#include <gmock/gmock.h>

#include "tests/kube/kube_fixture.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class PagedList : public testing::Test, public KubeFixture {
 protected:
  Result<json> ask(const kube::Selection& selection, const kube::ListRange& range) {
    return outcome<json>([&](auto done) { client.list(selection, range, std::move(done)); });
  }
  kube::AskForPart asks() {
    return [this](const kube::Selection& selection, const kube::ListRange& range) {
      return ask(selection, range);
    };
  }
  void put_nodes(unsigned count) {
    for (unsigned i = 0; i < count; ++i) server.put(node("n" + std::to_string(10'000 + i)));
  }
};

std::vector<std::string> names_in(const Result<std::vector<json>>& objects) {
  std::vector<std::string> out;
  for (const json& object : objects.value_or(std::vector<json>())) out.push_back(object["metadata"]["name"]);
  return out;
}

TEST_F(PagedList, IsTheWholeByBoundedParts) {
  put_nodes(2 * kube::kListPart + 1);
  const auto all = kube::list_by_parts(asks(), {.kind = kube::kNodes});
  const auto names = names_in(all);
  ASSERT_THAT(names, SizeIs(2 * kube::kListPart + 1));
  EXPECT_EQ(names.front(), "n10000");
  EXPECT_EQ(names.back(), "n10400");
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(server.count("GET", "&limit=200"), 3U);
  EXPECT_EQ(server.count("GET", "&continue="), 2U);
}

TEST_F(PagedList, KeepsWhatMattersAlone) {
  put_nodes(kube::kListPart + 2);
  const auto late = [](const json& object) -> json {
    if (object["metadata"]["name"] < "n10199") return {};
    return {{"metadata", {{"name", object["metadata"]["name"]}}}};
  };
  const auto taken = kube::list_by_parts(asks(), {.kind = kube::kNodes}, late);
  EXPECT_THAT(names_in(taken), ElementsAre("n10199", "n10200", "n10201"));
  EXPECT_EQ(taken->front().size(), 1U) << "and nothing else of it";
}

TEST_F(PagedList, OfAFewIsOneRequest) {
  put_nodes(kube::kListPart);
  EXPECT_THAT(names_in(kube::list_by_parts(asks(), {.kind = kube::kNodes})), SizeIs(kube::kListPart));
  EXPECT_EQ(server.count("GET"), 1U);
}

TEST_F(PagedList, BeginsAnewWhenItsMomentIsForgotten) {
  put_nodes(kube::kListPart + 1);
  unsigned asked = 0;
  const kube::AskForPart forgetful = [&](const kube::Selection& selection, const kube::ListRange& range) {
    if (++asked == 2) {
      server.put(node("z"));
      server.compact();
    }
    return ask(selection, range);
  };
  EXPECT_THAT(names_in(kube::list_by_parts(forgetful, {.kind = kube::kNodes})), SizeIs(kube::kListPart + 2));
}

TEST_F(PagedList, EndsWhenThatHappensAgainAndAgain) {
  unsigned asked = 0;
  const kube::AskForPart never = [&](const kube::Selection&, const kube::ListRange& range) -> Result<json> {
    ++asked;
    if (range.after.empty())
      return json{{"metadata", {{"continue", "x"}}}, {"items", {{{"metadata", {{"name", "a"}}}}}}};
    return fail(Error{.code = make_error_code(kube::ApiErrc::expired), .message = "too old", .hint = {}});
  };
  EXPECT_EQ(code_of(kube::list_by_parts(never, {.kind = kube::kNodes})), kube::ApiErrc::expired);
  EXPECT_EQ(asked, 2 * kube::kMostListRounds);
}

/// Where so many at most fit into an answer.
kube::AskForPart with_room_for(unsigned most, const kube::AskForPart& ask) {
  return [most, ask](const kube::Selection& selection, const kube::ListRange& range) -> Result<json> {
    if (range.most <= most) return ask(selection, range);
    return fail(Error{.code = make_error_code(kube::ApiErrc::too_large), .message = "too large", .hint = {}});
  };
}

TEST_F(PagedList, OfHugeObjectsComesBySmallerParts) {
  put_nodes(kube::kListPart + 1);
  EXPECT_THAT(names_in(kube::list_by_parts(with_room_for(60, asks()), {.kind = kube::kNodes})),
              SizeIs(kube::kListPart + 1));
  EXPECT_EQ(server.count("GET", "&limit=50"), 5U);
  const auto one_by_one = names_in(kube::list_by_parts(with_room_for(1, asks()), {.kind = kube::kNodes}));
  ASSERT_THAT(one_by_one, SizeIs(kube::kListPart + 1));
  EXPECT_EQ(one_by_one.back(), "n10200");
}

TEST_F(PagedList, GoesOnBySmallerPartsInItsMiddle) {
  put_nodes(2 * kube::kListPart);
  unsigned asked = 0;
  const kube::AskForPart shrinking = [&](const kube::Selection& selection, const kube::ListRange& range) {
    return with_room_for(++asked == 1 ? kube::kListPart : kube::kListPart / 2, asks())(selection, range);
  };
  const auto names = names_in(kube::list_by_parts(shrinking, {.kind = kube::kNodes}));
  ASSERT_THAT(names, SizeIs(2 * kube::kListPart));
  EXPECT_EQ(names.back(), "n10399");
}

TEST_F(PagedList, EndsAtAnObjectThatIsTooLargeItself) {
  put_nodes(2);
  EXPECT_EQ(code_of(kube::list_by_parts(with_room_for(0, asks()), {.kind = kube::kNodes})),
            kube::ApiErrc::too_large);
}

TEST_F(PagedList, ReportsOtherErrorsAtOnce) {
  server.next = {ApiFault::status_of(403, "Forbidden", "no")};
  const auto all = kube::list_by_parts(asks(), {.kind = kube::kPods});
  EXPECT_EQ(code_of(all), kube::ApiErrc::forbidden);
  EXPECT_EQ(server.count("GET"), 1U);
}

TEST(PagedListAnswer, HasToBeAList) {
  const auto of = [](json answer) {
    return kube::list_by_parts(
        [&](const kube::Selection&, const kube::ListRange&) -> Result<json> { return answer; },
        {.kind = kube::kNodes});
  };
  EXPECT_EQ(code_of(of(json::object())), Errc::malformed_host);
  EXPECT_EQ(code_of(of({{"items", 7}})), Errc::malformed_host);
  EXPECT_EQ(code_of(of(json::array())), Errc::malformed_host);
  EXPECT_THAT(names_in(of({{"items", nullptr}})), ElementsAre()) << "as older servers write an empty one";
  const auto endless = of({{"items", json::array()}, {"metadata", {{"continue", "x"}}}});
  EXPECT_EQ(code_of(endless), Errc::malformed_host);
  EXPECT_THAT(message_of(endless), HasSubstr("continues with itself"));
  const auto in_turn = kube::list_by_parts(
      [](const kube::Selection&, const kube::ListRange& range) -> Result<json> {
        return json{{"items", json::array()}, {"metadata", {{"continue", range.after == "x" ? "y" : "x"}}}};
      },
      {.kind = kube::kNodes});
  EXPECT_EQ(code_of(in_turn), Errc::malformed_host);
}

}  // namespace
