// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kube/object_watch.h"
#include "tests/kube/kube_fixture.h"
#include "tests/support/must.h"

namespace {

using namespace ferry;
using test::code_of;
using test::message_of;
using testing::ElementsAre;

const kube::Asked kAsked{.verb = "watch", .kind = kube::kNodes, .subresource = {}, .object = "Node n1"};

TEST(WatchEvent, IsRead) {
  const auto added = test::must(kube::parse_watch_event(
      R"({"type":"ADDED","object":{"metadata":{"name":"b","namespace":"a","resourceVersion":"7"}}})",
      kAsked));
  EXPECT_EQ(added.kind, kube::WatchEvent::Kind::added);
  EXPECT_EQ(added.key, "a/b");
  EXPECT_EQ(added.version, "7");

  const auto bookmark = test::must(kube::parse_watch_event(
      R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}})", kAsked));
  EXPECT_EQ(bookmark.kind, kube::WatchEvent::Kind::bookmark);
  EXPECT_EQ(bookmark.version, "9");

  const auto error = test::must(kube::parse_watch_event(R"({"type":"ERROR","object":{"code":410}})", kAsked));
  EXPECT_EQ(error.kind, kube::WatchEvent::Kind::error);
  EXPECT_EQ(error.object.value("code", 0), 410);
}

struct Malformed {
  const char* what;
  std::string line;
  const char* says;
};

class MalformedEvent : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedEvent, IsAnError) {
  const auto event = kube::parse_watch_event(GetParam().line, kAsked);
  EXPECT_EQ(code_of(event), Errc::malformed_host);
  EXPECT_EQ(message_of(event), std::string("watch Node n1: a line of the stream ") + GetParam().says);
}

INSTANTIATE_TEST_SUITE_P(
    Table, MalformedEvent,
    testing::Values(
        Malformed{"Empty", "", "is no JSON object"}, Malformed{"Html", "<html>", "is no JSON object"},
        Malformed{"CutOff", R"({"type":"ADDED","obj)", "is no JSON object"},
        Malformed{"NestedDeeply",
                  R"({"type":"ADDED","object":{"a":)" + std::string(300'000, '[') +
                      std::string(300'000, ']') + "}}",
                  "is no JSON object"},
        Malformed{"TwoObjects", "{}{}", "is no JSON object"}, Malformed{"List", "[]", "is no JSON object"},
        Malformed{"WrongBytes", "{\"type\":\"\xFF\"}", "is no JSON object"},
        Malformed{"NoType", R"({"object":{}})", "has no type"},
        Malformed{"TypeIsANumber", R"({"type":1,"object":{}})", "has no type"},
        Malformed{"NoObject", R"({"type":"ADDED"})", "has no object"},
        Malformed{"ObjectIsNull", R"({"type":"ADDED","object":null})", "has no object"},
        Malformed{"UnknownType", R"({"type":"MOVED","object":{}})",
                  "is of a type that this program does not know"},
        Malformed{"LowerCase", R"({"type":"added","object":{}})",
                  "is of a type that this program does not know"},
        Malformed{"NoMetadata", R"({"type":"ADDED","object":{}})", "has an object without a resourceVersion"},
        Malformed{"MetadataIsAList", R"({"type":"ADDED","object":{"metadata":[]}})",
                  "has an object without a resourceVersion"},
        Malformed{"VersionIsANumber",
                  R"({"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":7}}})",
                  "has an object without a resourceVersion"},
        Malformed{"NoName", R"({"type":"DELETED","object":{"metadata":{"resourceVersion":"7"}}})",
                  "has an object without a name"},
        Malformed{"BookmarkWithoutVersion", R"({"type":"BOOKMARK","object":{"metadata":{}}})",
                  "has an object without a resourceVersion"}),
    [](const auto& row) { return row.param.what; });

TEST(WatchEvent, OrdersVersionsAsNumbers) {
  EXPECT_TRUE(kube::is_later("10", "9"));
  EXPECT_FALSE(kube::is_later("9", "10"));
  EXPECT_FALSE(kube::is_later("10", "10"));
  EXPECT_TRUE(kube::is_later("123456789012345678901234567890", "99999999999999999999999999999"));
}

// Other servers than etcd's may have other ones: then the order in which they come is all there is.
TEST(WatchEvent, TakesAVersionThatIsNoNumberForLaterUnlessItIsTheSame) {
  EXPECT_TRUE(kube::is_later("abc", "abd"));
  EXPECT_TRUE(kube::is_later("7", "abc"));
  EXPECT_TRUE(kube::is_later("007", "8"));
  EXPECT_FALSE(kube::is_later("abc", "abc"));
}

}  // namespace
