// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "kube/api_error.h"
#include "kubectl/cluster_verbs.h"
#include "tests/cli/composed_clusters.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// What each container has written, by "pod container", with " before" behind it of the one before.
class ClusterLogs : public testing::Test {
 protected:
  kubectl::Gathered gathered(const std::vector<json>& pods) {
    return kubectl::gather_logs(
        [this](const kube::ObjectRef& pod, const kube::LogEnd& end) -> Result<std::string> {
          const std::string which = pod.name + " " + end.container + (end.previous ? " before" : "");
          asked_.push_back(which);
          EXPECT_EQ(end.lines, kubectl::kMostLogLines);
          if (const auto error = errors_.find(pod.name); error != errors_.end())
            return error_of(error->second, "get log of Pod " + pod.name);
          const auto log = logs_.find(which);
          if (log == logs_.end()) return error_of(kube::ApiErrc::not_found, "gone");
          return log->second;
        },
        pods);
  }
  static tl::unexpected<Error> error_of(kube::ApiErrc code, const std::string& message) {
    return fail(Error{.code = make_error_code(code), .message = message, .hint = {}});
  }
  static json agent(const std::string& node, unsigned restarts = 0) {
    json pod = test::agent_pod(node, {});
    pod["status"]["containerStatuses"][0]["restartCount"] = restarts;
    return pod;
  }

  std::map<std::string, std::string> logs_;
  std::map<std::string, kube::ApiErrc> errors_;  // by pod
  std::vector<std::string> asked_;
};

TEST_F(ClusterLogs, AreThoseOfFerrysContainersAlone) {
  json pod = agent("n1");
  pod["spec"]["containers"].push_back({{"name", "sidecar"}, {"command", {"/bin/envoy"}}});
  logs_ = {{"ferry-n1 agent", "a\nb\n"}, {"ferry-n1 sidecar", "c\n"}, {"web main", "d\n"}};
  const auto logs = gathered({pod, test::gpu_pod("shop", "web", "n1", {})});
  ASSERT_THAT(logs.document, SizeIs(1));
  EXPECT_EQ(logs.document[0], json({{"namespace", "gpu-system"},
                                    {"pod", "ferry-n1"},
                                    {"node", "n1"},
                                    {"container", "agent"},
                                    {"previous", false},
                                    {"cut", false},
                                    {"lines", {"a", "b"}}}));
  EXPECT_THAT(logs.notes, IsEmpty());
  EXPECT_THAT(asked_, ElementsAre("ferry-n1 agent"));
}

TEST_F(ClusterLogs, BeginWithThoseInTrouble) {
  logs_ = {{"ferry-n2 agent", "now"}, {"ferry-n2 agent before", "then"}};
  const auto logs = gathered({agent("n1"), agent("n2", 3)});
  EXPECT_THAT(asked_, ElementsAre("ferry-n2 agent", "ferry-n2 agent before", "ferry-n1 agent"));
  ASSERT_THAT(logs.document, SizeIs(2));
  EXPECT_EQ(logs.document[1]["previous"], true);
  EXPECT_EQ(logs.document[1]["lines"], json::array({"then"}));
}

TEST_F(ClusterLogs, AreCutToTheirEndsAndSaySo) {
  std::string long_log;
  for (int i = 0; i < 3'000; ++i) long_log += fmt::format("line {} {}\n", i, std::string(300, '.'));
  logs_["ferry-n1 agent"] = long_log;
  const auto logs = gathered({agent("n1")});
  const json& log = logs.document[0];
  EXPECT_EQ(log["cut"], true);
  EXPECT_THAT(log["lines"].back(), testing::StartsWith("line 2999 "));
  EXPECT_LE(log["lines"].size(), kubectl::kMostLogLines);
  EXPECT_LT(log.dump().size(), kubectl::kMostOfALog + 4'096);
  EXPECT_THAT(logs.notes, ElementsAre("logs: 1 log cut to the last 400 lines or 64 KiB"));
}

TEST_F(ClusterLogs, OfALargeClusterSayWhichAreLeftOut) {
  std::vector<json> pods;
  std::string log;
  for (unsigned i = 0; i < kubectl::kMostLogLines; ++i) log += std::string(160, 'x') + "\n";
  for (int i = 0; i < 100; ++i) {
    pods.push_back(agent(fmt::format("n{}", i)));
    logs_[fmt::format("ferry-n{} agent", i)] = log;
  }
  const auto logs = gathered(pods);
  EXPECT_LT(logs.document.dump().size(), kubectl::kMostOfLogs + (256U << 10U));
  EXPECT_LT(logs.document.size(), 100U);
  EXPECT_EQ(asked_.size(), logs.document.size()) << "nobody is asked for what is left out";
  EXPECT_THAT(logs.notes,
              testing::Contains(HasSubstr(fmt::format("{} logs left out", 100 - logs.document.size()))));
}

TEST_F(ClusterLogs, AreNotAskedForTwiceWhereNobodyMayReadThem) {
  errors_ = {{"ferry-n1", kube::ApiErrc::forbidden}, {"ferry-n2", kube::ApiErrc::forbidden}};
  const auto logs = gathered({agent("n1"), agent("n2")});
  EXPECT_THAT(asked_, SizeIs(1));
  EXPECT_THAT(logs.notes, ElementsAre("logs: get log of Pod ferry-n1"));
  EXPECT_TRUE(logs.whole) << "what the role does not show";
}

TEST_F(ClusterLogs, GoOnBehindANodeThatDoesNotAnswer) {
  json pod = agent("n1");
  pod["spec"]["containers"].push_back({{"name", "hostd"}, {"command", {"/usr/bin/ferry", "hostd"}}});
  errors_ = {{"ferry-n1", kube::ApiErrc::server_fault}};
  logs_["ferry-n2 agent"] = "a";
  const auto logs = gathered({pod, agent("n2")});
  EXPECT_THAT(asked_, SizeIs(2)) << "one of n1's containers, and n2";
  EXPECT_THAT(logs.document, SizeIs(1));
  EXPECT_FALSE(logs.whole);
}

TEST_F(ClusterLogs, OfServicesAreNotToBeHad) {
  const auto logs = gathered({test::gpu_pod("shop", "web", "n1", {})});
  EXPECT_THAT(logs.notes, ElementsAre(HasSubstr("journalctl -u 'ferry-*'")));
  EXPECT_TRUE(logs.whole);
}

}  // namespace
}  // namespace ferry::cli
