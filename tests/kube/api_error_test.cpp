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

const Asked kAsked{.verb = "patch", .kind = kNodes, .subresource = {}, .object = "Node n1"};

ApiReply status(int code, const std::string& reason, const std::string& message) {
  return {.status = code,
          .body = json{{"kind", "Status"}, {"reason", reason}, {"message", message}, {"code", code}}.dump()};
}

struct Documented {
  const char* what;
  int code;
  const char* reason;
  ApiErrc meaning;
  bool mends;
};

class ErrorOfTheApi : public testing::TestWithParam<Documented> {};

TEST_P(ErrorOfTheApi, IsOneToBranchOn) {
  const auto error = error_of(status(GetParam().code, GetParam().reason, "because"), kAsked);
  EXPECT_EQ(error.code, GetParam().meaning);
  EXPECT_EQ(error.message, "patch Node n1: the API server answers " + std::to_string(GetParam().code) + " " +
                               GetParam().reason + ": because");
  EXPECT_EQ(may_mend(error), GetParam().mends);
}

INSTANTIATE_TEST_SUITE_P(
    Table, ErrorOfTheApi,
    testing::Values(Documented{"BadRequest", 400, "BadRequest", ApiErrc::invalid, false},
                    Documented{"Unauthorized", 401, "Unauthorized", ApiErrc::unauthorized, false},
                    Documented{"Forbidden", 403, "Forbidden", ApiErrc::forbidden, false},
                    Documented{"NotFound", 404, "NotFound", ApiErrc::not_found, false},
                    Documented{"MethodNotAllowed", 405, "MethodNotAllowed", ApiErrc::unexpected, false},
                    Documented{"NotAcceptable", 406, "NotAcceptable", ApiErrc::unexpected, false},
                    Documented{"AlreadyExists", 409, "AlreadyExists", ApiErrc::already_exists, false},
                    Documented{"Conflict", 409, "Conflict", ApiErrc::conflict, false},
                    Documented{"Gone", 410, "Gone", ApiErrc::expired, false},
                    Documented{"Expired", 410, "Expired", ApiErrc::expired, false},
                    Documented{"TooLarge", 413, "RequestEntityTooLarge", ApiErrc::invalid, false},
                    Documented{"UnsupportedMediaType", 415, "UnsupportedMediaType", ApiErrc::invalid, false},
                    Documented{"Invalid", 422, "Invalid", ApiErrc::invalid, false},
                    Documented{"TooManyRequests", 429, "TooManyRequests", ApiErrc::too_many_requests, true},
                    Documented{"InternalError", 500, "InternalError", ApiErrc::server_fault, true},
                    Documented{"BadGateway", 502, "BadGateway", ApiErrc::server_fault, true},
                    Documented{"Unavailable", 503, "ServiceUnavailable", ApiErrc::server_fault, true},
                    Documented{"Timeout", 504, "Timeout", ApiErrc::server_fault, true},
                    Documented{"Redirect", 302, "Found", ApiErrc::unexpected, false}),
    [](const auto& row) { return row.param.what; });

TEST(ApiError, NamesTheRightThatTheRoleLacks) {
  EXPECT_EQ(error_of(status(403, "Forbidden", "no"), kAsked).hint,
            "the role bound to our account lacks the verb patch on nodes in the API group \"\"");
  const Asked eviction{.verb = "create", .kind = kPods, .subresource = "eviction", .object = "Pod a/b"};
  EXPECT_THAT(error_of(status(403, "Forbidden", "no"), eviction).hint,
              HasSubstr("create on pods/eviction in the API group \"\""));
  const Asked lease{.verb = "get", .kind = kLeases, .subresource = {}, .object = "Lease a/b"};
  EXPECT_THAT(error_of(status(403, "Forbidden", "no"), lease).hint,
              HasSubstr("get on leases in the API group \"coordination.k8s.io\""));
}

TEST(ApiError, TakesAnythingForAnAnswer) {
  for (const auto* body :
       {"", "<html>\n<b>Bad gateway</b>", "[]", "null", R"({"message":1,"reason":[]})", "{\"a"}) {
    const auto error = error_of(ApiReply{.status = 503, .body = body}, kAsked);
    EXPECT_EQ(error.code, ApiErrc::server_fault) << body;
    EXPECT_THAT(error.message, HasSubstr("patch Node n1: the API server answers 503"));
    EXPECT_THAT(error.message, Not(HasSubstr("\n")));
  }
  const auto long_one = error_of(ApiReply{.status = 500, .body = std::string(100'000, 'x')}, kAsked);
  EXPECT_LT(long_one.message.size(), 1'000U);
}

TEST(ApiError, OfAStreamIsReadFromItsStatus) {
  EXPECT_EQ(error_of(json{{"code", 410}, {"reason", "Expired"}}, kAsked).code, ApiErrc::expired);
  EXPECT_EQ(error_of(json{{"reason", "Gone"}}, kAsked).code, ApiErrc::expired);
  EXPECT_EQ(error_of(json{{"code", 500}}, kAsked).code, ApiErrc::server_fault);
  EXPECT_EQ(error_of(json{{"code", -9'000'000'000}}, kAsked).code, ApiErrc::unexpected);
  EXPECT_EQ(error_of(json(), kAsked).code, ApiErrc::unexpected);
}

TEST(ApiError, AnswerThatIsNoObjectIsAnError) {
  EXPECT_TRUE(object_of("{}", kAsked).has_value());
  for (const auto* body : {"", "[]", "{", "null", "1", "{}{}"})
    EXPECT_EQ(code_of(object_of(body, kAsked)), Errc::malformed_host) << body;
}

}  // namespace
