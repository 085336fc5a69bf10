// SPDX-License-Identifier: Apache-2.0
#include "kube/watched_lists.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kube/api_error.h"
#include "tests/kube/kube_fixture.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using namespace std::chrono_literals;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const kube::Selection kAllNodes{.kind = kube::kNodes};
const kube::Selection kAllPods{.kind = kube::kPods};

/// The name of a pod on a node that begins with "gpu"; null for others.
json pod_of_a_gpu_node(const json& object) {
  if (!object["spec"]["nodeName"].get<std::string>().starts_with("gpu")) return {};
  const json& metadata = object["metadata"];
  return {{"metadata", {{"name", metadata["name"]}, {"namespace", metadata["namespace"]}}}};
}

class WatchedListsTest : public testing::Test, public KubeFixture {
 protected:
  WatchedListsTest() {
    server.put(node("gpu-1"));
    server.put(pod("a", "one", "gpu-1"));
    server.put(pod("a", "two", "cpu-1"));
  }
  void begin() { ASSERT_TRUE(lists.begin()); }
  void refuse_watches_of_pods(int status, const char* reason) {
    server.script = [status, reason](const kube::ApiRequest& request) -> std::optional<ApiFault> {
      if (request.path.find("/pods?") == std::string::npos ||
          request.path.find("watch=1") == std::string::npos)
        return std::nullopt;
      return ApiFault::status_of(status, reason);
    };
  }
  std::vector<std::string> names(const kube::Selection& selection) const {
    std::vector<std::string> out;
    const auto list = lists.list(selection);
    if (!list) return {list.error().code.message()};
    for (const json& item : (*list)["items"]) out.push_back(item["metadata"]["name"].get<std::string>());
    return out;
  }

  int changes = 0;
  kube::WatchedLists lists{
      server,
      clock,
      [this] { return server.draw(); },
      {{.selection = kAllNodes}, {.selection = kAllPods, .kept = {.take = pod_of_a_gpu_node}}},
      [this] { ++changes; }};
};

TEST_F(WatchedListsTest, AreThereTogether) {
  begin();
  EXPECT_EQ(code_of(lists.list(kAllNodes)), Errc::not_found);
  clock.run_for(1s);
  EXPECT_EQ(changes, 1);
  EXPECT_THAT(names(kAllNodes), ElementsAre("gpu-1"));
  EXPECT_THAT(names(kAllPods), ElementsAre("one"));
  EXPECT_EQ(code_of(lists.list({.kind = kube::kConfigMaps})), Errc::not_found);
  EXPECT_FALSE(lists.unwatchable());
}

TEST_F(WatchedListsTest, ReportWhatMattersAlone) {
  begin();
  clock.run_for(1s);
  server.put(pod("a", "three", "cpu-1"));
  server.edit("/api/v1/namespaces/a/pods/one", labels("seen", "yes"));
  clock.run_for(1min);
  EXPECT_EQ(changes, 1) << "no part that is kept has changed";
  server.put(pod("b", "four", "gpu-2"));
  server.put(node("gpu-2"));
  clock.run_for(1min);
  EXPECT_EQ(changes, 2) << "both came together";
  EXPECT_THAT(names(kAllPods), ElementsAre("one", "four"));
  server.erase("/api/v1/namespaces/a/pods/one");
  clock.run_for(1min);
  EXPECT_EQ(changes, 3);
  EXPECT_THAT(names(kAllPods), ElementsAre("four"));
}

TEST_F(WatchedListsTest, AskForNothingWhileNothingHappens) {
  begin();
  clock.run_for(10s);
  const std::size_t lists_before = server.count("GET", "limit=");
  clock.run_for(1h);
  EXPECT_EQ(server.count("GET", "limit="), lists_before);
  EXPECT_EQ(server.watches(), 2U);
  EXPECT_EQ(changes, 1);
}

TEST_F(WatchedListsTest, HaveTheErrorUntilTheServerAnswers) {
  begin();
  clock.run_for(1s);
  server.set_down(true);
  clock.run_for(1min);
  EXPECT_GE(changes, 2);
  EXPECT_EQ(code_of(lists.list(kAllNodes)), Errc::unreachable);
  EXPECT_FALSE(lists.unwatchable()) << "they cannot be read, either";
  server.set_down(false);
  server.put(node("gpu-2"));
  clock.run_for(3min);
  EXPECT_THAT(names(kAllNodes), ElementsAre("gpu-1", "gpu-2"));
  EXPECT_THAT(names(kAllPods), ElementsAre("one"));
}

TEST_F(WatchedListsTest, NameWhatTheRoleForbids) {
  refuse_watches_of_pods(403, "Forbidden");
  begin();
  clock.run_for(5s);
  ASSERT_TRUE(lists.unwatchable());
  EXPECT_EQ(lists.unwatchable()->code, kube::ApiErrc::forbidden);
  EXPECT_THAT(lists.unwatchable()->hint, HasSubstr("the verb watch on pods"));
  EXPECT_GE(changes, 1);
}

TEST_F(WatchedListsTest, NameAWatchThatAProxyRefuses) {
  refuse_watches_of_pods(405, "MethodNotAllowed");
  begin();
  clock.run_for(5s);
  ASSERT_TRUE(lists.unwatchable());
  EXPECT_EQ(lists.unwatchable()->code, kube::ApiErrc::unexpected);
  EXPECT_GE(changes, 1);
}

TEST_F(WatchedListsTest, NameAWatchThatIsCutBeforeItBringsAnything) {
  begin();
  for (int cuts = 0; cuts < 4; ++cuts) {
    EXPECT_EQ(lists.unwatchable().has_value(), cuts >= 2) << cuts;
    clock.run_for(20s);
    server.cut_streams();
  }
  ASSERT_TRUE(lists.unwatchable());
  EXPECT_EQ(lists.unwatchable()->code, Errc::unreachable);
}

TEST_F(WatchedListsTest, NameAWatchThatEndsBeforeItBringsAnything) {
  begin();
  for (int ends = 0; ends < 4; ++ends) {
    EXPECT_EQ(lists.unwatchable().has_value(), ends >= 2) << ends;
    clock.run_for(20s);
    server.end_streams();
  }
  ASSERT_TRUE(lists.unwatchable());
  EXPECT_THAT(lists.unwatchable()->message, HasSubstr("it ended too soon, without an event"));
}

TEST_F(WatchedListsTest, SayNothingOnceTheyAreGone) {
  int said = 0;
  {
    kube::WatchedLists gone(
        server, clock, [] { return 0.5; }, {{.selection = kAllNodes}}, [&] { ++said; });
    ASSERT_TRUE(gone.begin());
  }
  clock.run_for(1min);
  EXPECT_EQ(said, 0);
  kube::WatchedLists wrong(
      server, clock, [] { return 0.5; }, {{.selection = {.kind = kube::kConfigMaps, .space = ".."}}}, [] {});
  EXPECT_EQ(code_of(wrong.begin()), Errc::usage);
}

}  // namespace
