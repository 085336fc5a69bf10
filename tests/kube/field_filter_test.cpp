// SPDX-License-Identifier: Apache-2.0
#include "kube/field_filter.h"

#include <chrono>
#include <functional>
#include <malloc.h>
#include <new>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kube/object_watch.h"
#include "tests/support/sanitizer.h"
#include "tests/support/virtual_clock.h"

namespace ferry::kube {
namespace {

using nlohmann::json;

constexpr std::size_t kPlenty = 1'000'000;

const FieldChoice kSome{
    .mode = FieldChoice::Mode::only,
    .fields = {{"metadata", {{"name"}, {"resourceVersion"}, {"owners", {{"kind"}}}}},
               {"status", {{"phase"}, {.name = "running", .inner = {}, .presence = true}}}}};

std::string kept_of(const FieldChoice& choice, std::string_view text, std::size_t piece = kPlenty) {
  FieldFilter filter(choice, kPlenty);
  for (std::size_t at = 0; at < text.size(); at += piece) EXPECT_TRUE(filter.take(text.substr(at, piece)));
  return filter.finish();
}

TEST(FieldFilter, KeepsTheFieldsThatAreNamed) {
  const std::string text = R"( {"kind":"Pod","metadata":{"name":"a\"}","labels":{"name":"x"},
    "owners":[{"uid":"u","kind":"K"},{"kind":"L"},{}] , "uid":7},"spec":{"args":["","[{"],"n":[[1],{"a":[]}]},
    "status":{"running":{"since":[1,2]},"phase":"Running"},"metadataX":{"name":"no"}} )";
  const std::string kept = R"({"metadata":{"name":"a\"}","owners":[{"kind":"K"},{"kind":"L"},{}]},)"
                           R"("status":{"running":true,"phase":"Running"}})";
  for (std::size_t piece = 1; piece < text.size(); ++piece)
    ASSERT_EQ(kept_of(kSome, text, piece), kept) << piece;
}

TEST(FieldFilter, KeepsAllButTheFieldsThatAreNamed) {
  EXPECT_EQ(kept_of(whole_object(), R"({"a":[1,{"metadata":{"managedFields":1}}],"metadata":)"
                                    R"({"managedFields":[{"x":{}}],"name":"n"},"b":null,"c":-1.5e3})"),
            R"({"a":[1,{"metadata":{"managedFields":1}}],"metadata":{"name":"n"},"b":null,"c":-1.5e3})");
}

TEST(FieldFilter, KeepsOfAListItsContinueToken) {
  const std::string token(3'000, 'x');
  EXPECT_EQ(kept_of(in_a_list(kSome), R"({"kind":"PodList","metadata":{"continue":")" + token +
                                          R"("},"items":[{"metadata":{"name":"a"},"spec":{}},{"spec":1}]})"),
            R"({"metadata":{"continue":")" + token + R"("},"items":[{"metadata":{"name":"a"}},{}]})");
  std::string many = R"({"items":[)";
  for (int i = 0; i < 100; ++i) many += R"({"metadata":{"name":"a"}},)";
  many.back() = ']';
  EXPECT_EQ(kept_of(in_a_list(kSome), many + "}"), many + "}");
}

TEST(FieldFilter, KeepsOfAWatchWhatAnErrorSays) {
  const std::string error =
      R"({"type":"ERROR","object":{"status":"Failure","message":"m","reason":"Expired","code":410}})";
  EXPECT_EQ(kept_of(in_a_watch(kSome), error), error);
}

// A name is no longer than 253 bytes, and a pod has one owner. A tenant may write more.
TEST(FieldFilter, IsBoundedWhereTenantsWrite) {
  const std::string longest(256, 'x');
  const auto named = [](const std::string& name) {
    return R"({"items":[{"metadata":{"name":")" + name + R"("}}]})";
  };
  EXPECT_EQ(kept_of(in_a_list(kSome), named(longest)), named(longest));
  EXPECT_EQ(kept_of(in_a_list(kSome), named(longest + "x")), R"({"items":[{"metadata":{"name":null}}]})");
  EXPECT_EQ(kept_of(in_a_list(kSome), named(longest + R"(\"x)")),
            R"({"items":[{"metadata":{"name":null}}]})");
  std::string owners = R"({"items":[{"metadata":{"owners":[)";
  for (int i = 0; i < 1'000; ++i) owners += R"({"kind":"a"},)";
  owners.back() = ']';
  const json kept = json::parse(kept_of(in_a_list(kSome), owners + "}}]}"));
  EXPECT_EQ(kept.at("items").at(0).at("metadata").at("owners").size(), 8U);
}

TEST(FieldFilter, SaysWhereTheKeptPartIsTooLarge) {
  FieldFilter filter(whole_object(), 10);
  EXPECT_TRUE(filter.take(R"({"a":1234})"));
  EXPECT_FALSE(filter.take("x")) << "and what is behind the text counts";
  FieldFilter keys(whole_object(), 10);
  EXPECT_FALSE(keys.take(R"({"12345678901)"));
  FieldFilter skipped(kSome, 10);
  EXPECT_TRUE(skipped.take(R"({"a":"12345678901","b":["123456789012",1234]})"));
  EXPECT_EQ(skipped.finish(), "{}");
}

// A text that was cut off must never pass for one that says less.
TEST(FieldFilter, OfWhatIsNoJsonKeepsNone) {
  for (const char* text :
       {"", "<html>", "{", "[", R"({"metadata":{"name":"a"})", R"({"metadata":{"name":"a"}},"x":[})",
        R"({"spec":[1,2)", R"({"spec":[1,2})", R"({"spec":"x)", R"({"spec":{"a":1 "b":2}})", R"({,})", "}",
        "{}{}", R"({"spec":[1,2]})]", R"({1:2})"}) {
    EXPECT_TRUE(json::parse(kept_of(kSome, text), nullptr, false).is_discarded()) << text;
  }
  std::string deep = R"({"spec":)";
  for (int i = 0; i < 200; ++i) deep += '[';
  EXPECT_EQ(kept_of(kSome, deep), "");
}

TEST(FieldFilter, BeginsAnewBehindEachText) {
  FieldFilter filter(kSome, kPlenty);
  EXPECT_TRUE(filter.is_fresh());
  EXPECT_TRUE(filter.take(R"({"spec":["x)"));
  EXPECT_FALSE(filter.is_fresh());
  EXPECT_TRUE(json::parse(filter.finish(), nullptr, false).is_discarded());
  EXPECT_TRUE(filter.is_fresh());
  EXPECT_TRUE(filter.take(R"({"status":{"phase":"p"}})"));
  EXPECT_EQ(filter.finish(), R"({"status":{"phase":"p"}})");
}

/// A server that has one list of pods, and makes its text while it is sent.
class HostilePods final : public ApiTransport {
 public:
  explicit HostilePods(test::VirtualClock& clock) : clock_(clock) {}
  Call send(ApiRequest request, ApiListener listener) override {
    if (request.path.find("watch=1") != std::string::npos) return 0;
    clock_.at(clock_.now(), [listener = std::move(listener)] {
      if (!listener.received) throw std::bad_alloc();  // the whole text would have to be held
      listener.received(R"({"metadata":{"resourceVersion":"7"},"items":[)");
      constexpr int kLarge = 14;
      for (int i = 0; i < kLarge; ++i) pod(listener, i, 13'000, std::string(96, 'x'));
      for (int i = 0; i < 3; ++i) pod(listener, kLarge + i, 300'000, "");
      listener.received(R"({"metadata":{"name":"last"}}]})");
      listener.ended(ApiReply{.status = 200, .body = {}});
    });
    return 0;
  }
  void cancel(Call /*call*/) override {}

 private:
  static void pod(const ApiListener& listener, int number, int args, const std::string& arg) {
    listener.received(R"({"metadata":{"name":"p)" + std::to_string(number) +
                      R"("},"spec":{"containers":[{"args":[)");
    for (int i = 0; i < args; ++i) listener.received((i == 0 ? "\"" : ",\"") + arg + "\"");
    listener.received(R"(]}]},"status":{"phase":"Running"}},)");
  }
  test::VirtualClock& clock_;
};

// The chart gives the agent 64 MiB, and any tenant may have such pods on a node.
TEST(FieldFilter, OfHostilePodsTakesLittleMemory) {
  if (test::kAddressSanitizer) GTEST_SKIP() << "the sanitizer takes memory of its own";
  constexpr rlim_t kMost = rlim_t{4} << 20U;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const struct mallinfo2 now = ::mallinfo2();
    const rlimit limit{now.arena + now.hblkhd + kMost, now.arena + now.hblkhd + kMost};
    ::setrlimit(RLIMIT_DATA, &limit);
    try {
      test::VirtualClock clock;
      HostilePods server(clock);
      ObjectWatch watch(
          server, clock, [] { return 0.5; }, {.kind = kPods},
          {.changed = [] {}, .trouble = [](const Error&) {}, .well = [] {}}, kSome);
      if (!watch.begin()) ::_exit(2);
      clock.run_for(std::chrono::seconds(1));
      ::_exit(watch.objects().size() == 18 ? 0 : 3);
    } catch (const std::bad_alloc&) {
      ::_exit(1);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace ferry::kube
