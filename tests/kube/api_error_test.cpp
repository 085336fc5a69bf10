// SPDX-License-Identifier: Apache-2.0
#include "kube/api_error.h"

#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/kube/kube_fixture.h"

namespace {

using namespace ferry;
using nlohmann::json;
using test::code_of;
using testing::HasSubstr;
using testing::Not;

const kube::Asked kAsked{.verb = "patch", .kind = kube::kNodes, .subresource = {}, .object = "Node n1"};

kube::ApiReply status(int code, const std::string& reason, const std::string& message) {
  return {.status = code,
          .body = json{{"kind", "Status"}, {"reason", reason}, {"message", message}, {"code", code}}.dump()};
}

struct Documented {
  const char* what;
  int code;
  const char* reason;
  kube::ApiErrc meaning;
  bool mends;
};

class ErrorOfTheApi : public testing::TestWithParam<Documented> {};

TEST_P(ErrorOfTheApi, IsOneToBranchOn) {
  const auto error = kube::error_of(status(GetParam().code, GetParam().reason, "because"), kAsked);
  EXPECT_EQ(error.code, GetParam().meaning);
  EXPECT_EQ(error.message, "patch Node n1: the API server answers " + std::to_string(GetParam().code) + " " +
                               GetParam().reason + ": because");
  EXPECT_EQ(kube::may_mend(error), GetParam().mends);
}

INSTANTIATE_TEST_SUITE_P(
    Table, ErrorOfTheApi,
    testing::Values(
        Documented{"BadRequest", 400, "BadRequest", kube::ApiErrc::invalid, false},
        Documented{"Unauthorized", 401, "Unauthorized", kube::ApiErrc::unauthorized, false},
        Documented{"Forbidden", 403, "Forbidden", kube::ApiErrc::forbidden, false},
        Documented{"NotFound", 404, "NotFound", kube::ApiErrc::not_found, false},
        Documented{"MethodNotAllowed", 405, "MethodNotAllowed", kube::ApiErrc::unexpected, false},
        Documented{"NotAcceptable", 406, "NotAcceptable", kube::ApiErrc::unexpected, false},
        Documented{"AlreadyExists", 409, "AlreadyExists", kube::ApiErrc::already_exists, false},
        Documented{"Conflict", 409, "Conflict", kube::ApiErrc::conflict, false},
        Documented{"Gone", 410, "Gone", kube::ApiErrc::expired, false},
        Documented{"Expired", 410, "Expired", kube::ApiErrc::expired, false},
        Documented{"TooLarge", 413, "RequestEntityTooLarge", kube::ApiErrc::invalid, false},
        Documented{"UnsupportedMediaType", 415, "UnsupportedMediaType", kube::ApiErrc::invalid, false},
        Documented{"Invalid", 422, "Invalid", kube::ApiErrc::invalid, false},
        Documented{"TooManyRequests", 429, "TooManyRequests", kube::ApiErrc::too_many_requests, true},
        Documented{"InternalError", 500, "InternalError", kube::ApiErrc::server_fault, true},
        Documented{"BadGateway", 502, "BadGateway", kube::ApiErrc::server_fault, true},
        Documented{"Unavailable", 503, "ServiceUnavailable", kube::ApiErrc::server_fault, true},
        Documented{"Timeout", 504, "Timeout", kube::ApiErrc::server_fault, true},
        Documented{"Redirect", 302, "Found", kube::ApiErrc::unexpected, false}),
    [](const auto& row) { return row.param.what; });

TEST(ApiError, NamesTheRightThatTheRoleLacks) {
  EXPECT_EQ(kube::error_of(status(403, "Forbidden", "no"), kAsked).hint,
            "the role bound to our account lacks the verb patch on nodes in the API group \"\"");
  const kube::Asked eviction{
      .verb = "create", .kind = kube::kPods, .subresource = "eviction", .object = "Pod a/b"};
  EXPECT_THAT(kube::error_of(status(403, "Forbidden", "no"), eviction).hint,
              HasSubstr("create on pods/eviction in the API group \"\""));
  const kube::Asked lease{.verb = "get", .kind = kube::kLeases, .subresource = {}, .object = "Lease a/b"};
  EXPECT_THAT(kube::error_of(status(403, "Forbidden", "no"), lease).hint,
              HasSubstr("get on leases in the API group \"coordination.k8s.io\""));
}

TEST(ApiError, TakesAnythingForAnAnswer) {
  for (const auto* body :
       {"", "<html>\n<b>Bad gateway</b>", "[]", "null", R"({"message":1,"reason":[]})", "{\"a"}) {
    const auto error = kube::error_of(kube::ApiReply{.status = 503, .body = body}, kAsked);
    EXPECT_EQ(error.code, kube::ApiErrc::server_fault) << body;
    EXPECT_THAT(error.message, HasSubstr("patch Node n1: the API server answers 503"));
    EXPECT_THAT(error.message, Not(HasSubstr("\n")));
  }
  const auto long_one =
      kube::error_of(kube::ApiReply{.status = 500, .body = std::string(100'000, 'x')}, kAsked);
  EXPECT_LT(long_one.message.size(), 1'000U);
}

// JSON takes no other text.
TEST(ApiError, IsAlwaysUtf8) {
  std::string many = "x";
  for (int i = 0; i < 300; ++i) many += "é";
  const auto cut = kube::error_of(status(403, "Forbidden", many), kAsked);
  EXPECT_NO_THROW(static_cast<void>(json(cut.message).dump()));
  EXPECT_THAT(cut.message, testing::EndsWith("é"));
  const auto latin1 =
      kube::error_of(kube::ApiReply{.status = 502, .body = "<p>Zugriff verweigert f\xfcr"}, kAsked);
  EXPECT_NO_THROW(static_cast<void>(json(latin1.message).dump()));
  EXPECT_THAT(latin1.message, HasSubstr("verweigert f\\xfcr"));
}

TEST(ApiError, OfAStreamIsReadFromItsStatus) {
  EXPECT_EQ(kube::error_of(json{{"code", 410}, {"reason", "Expired"}}, kAsked).code, kube::ApiErrc::expired);
  EXPECT_EQ(kube::error_of(json{{"reason", "Gone"}}, kAsked).code, kube::ApiErrc::expired);
  EXPECT_EQ(kube::error_of(json{{"code", 500}}, kAsked).code, kube::ApiErrc::server_fault);
  EXPECT_EQ(kube::error_of(json{{"code", -9'000'000'000}}, kAsked).code, kube::ApiErrc::unexpected);
  EXPECT_EQ(kube::error_of(json(), kAsked).code, kube::ApiErrc::unexpected);
}

TEST(ApiError, AnswerThatIsNoObjectIsAnError) {
  EXPECT_TRUE(kube::object_of("{}", kAsked).has_value());
  for (const auto* body : {"", "[]", "{", "null", "1", "{}{}"})
    EXPECT_EQ(code_of(kube::object_of(body, kAsked)), Errc::malformed_host) << body;
}

}  // namespace
