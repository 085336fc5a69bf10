// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "agent/programs/programs.h"
#include "tests/kube/kube_fixture.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::ApiFault;
using test::code_of;
using testing::HasSubstr;

constexpr const char* kPath = "/apis/apps/v1/namespaces/ferry/daemonsets/ferry";

class RetirementTest : public testing::Test, public test::KubeFixture {
 protected:
  void put() {
    server.put({{"apiVersion", "apps/v1"},
                {"kind", "DaemonSet"},
                {"metadata", {{"name", "ferry"}, {"namespace", "ferry"}, {"annotations", annotations_}}}});
  }
  Result<> retire(const std::string& name = "ferry") {
    test::Answer<bool> answer;
    Retirement retirement(
        server, client, clock, [] { return 0.5; },
        {.kind = kube::kDaemonSets, .space = "ferry", .name = name}, 240s,
        [on_end = answer.here()](const Result<>& how) {
          on_end(how ? Result<bool>(true) : Result<bool>(fail(how.error())));
        });
    if (auto begun = retirement.begin(); !begun) return begun;
    clock.run_until([&] { return answer.is_there(); }, 1h);
    const auto how = answer.get();
    return how ? Result<>() : Result<>(fail(how.error()));
  }
  json annotations_ = {{"meta.helm.sh/release-name", "ferry"}};
};

TEST_F(RetirementTest, EndsWhenTheLastPodHas) {
  put();
  server.grace = 100s;
  const auto began = clock.now();
  EXPECT_EQ(code_of(retire()), std::error_code());
  EXPECT_GE(clock.now() - began, 100s);
  EXPECT_TRUE(server.object(kPath).is_null());
  EXPECT_EQ(server.count("DELETE"), 1U) << "once";
}

TEST_F(RetirementTest, IsOverWhereThereIsNone) {
  EXPECT_EQ(code_of(retire()), std::error_code());
  EXPECT_EQ(server.count("DELETE"), 0U);
}

TEST_F(RetirementTest, DoesNotWaitForEverForAPodThatDoesNotEnd) {
  put();
  server.grace = 10min;
  const auto how = retire();
  EXPECT_EQ(code_of(how), Errc::stuck);
  EXPECT_EQ(how.error().message,
            "DaemonSet ferry/ferry is still there after 240 s: a pod of it has not ended");
  EXPECT_THAT(how.error().hint, HasSubstr("kubectl get pods -n ferry -o wide"));
}

TEST_F(RetirementTest, SaysThatTheServerIsAway) {
  put();
  server.script = [](const kube::ApiRequest&) { return std::optional(ApiFault::lost_before()); };
  EXPECT_THAT(retire().error().message, HasSubstr("the API server does not show it"));
}

// Its role is as young as it is, and not every API server has read it yet.
TEST_F(RetirementTest, IsForbiddenOnlyAtTheEnd) {
  put();
  const auto began = clock.now();
  server.script = [&](const kube::ApiRequest& request) {
    return request.method == "DELETE" && clock.now() < began + 20s
               ? std::optional(ApiFault::status_of(403, "Forbidden"))
               : std::nullopt;
  };
  EXPECT_EQ(code_of(retire()), std::error_code());
  put();
  server.script = [](const kube::ApiRequest& request) {
    return request.method == "DELETE" ? std::optional(ApiFault::status_of(403, "Forbidden")) : std::nullopt;
  };
  EXPECT_EQ(code_of(retire()), kube::ApiErrc::forbidden);
  EXPECT_EQ(code_of(retire("..")), Errc::usage);
}

TEST_F(RetirementTest, GoesOnOnceItsTokenIsKnown) {
  put();
  const auto began = clock.now();
  server.script = [&](const kube::ApiRequest& request) {
    return request.method == "DELETE" && clock.now() < began + 20s
               ? std::optional(ApiFault::status_of(401, "Unauthorized"))
               : std::nullopt;
  };
  EXPECT_EQ(code_of(retire()), std::error_code());
}

// As by `helm template` and `kubectl apply`.
TEST_F(RetirementTest, IsForWhatHelmHasInstalled) {
  annotations_ = json::object();
  put();
  EXPECT_EQ(code_of(retire()), std::error_code());
  EXPECT_FALSE(server.object(kPath).is_null());
  EXPECT_EQ(server.count("DELETE"), 0U);
}

// By whoever keeps a cluster as a repository has it, say.
TEST_F(RetirementTest, RemovesWhatIsPutBack) {
  put();
  clock.at(clock.now() + 1s, [this] {
    server.erase(kPath);
    put();
  });
  EXPECT_EQ(code_of(retire()), std::error_code());
  EXPECT_EQ(server.count("DELETE"), 2U);
}

}  // namespace
}  // namespace ferry::agent
