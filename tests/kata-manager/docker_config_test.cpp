// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <gmock/gmock.h>

#include "kata-manager/artifacts/skopeo.h"
#include "tests/support/must.h"

namespace ferry::kata {
namespace {

using test::must;
using testing::HasSubstr;
using testing::Not;

std::string user_for(const std::string& config, std::string_view registry, std::string_view repository) {
  return must(DockerConfig::parse(config)).credentials(registry, repository).username;
}

TEST(DockerConfig, HasCredentialsInEveryForm) {
  // "user:pass:word", with and without padding and as old clients pad it.
  struct Row {
    std::string entry;
    RegistryCredentials desired;
  };
  const std::vector<Row> rows = {
      {R"({"auth":"dXNlcjpwYXNzOndvcmQ="})", {.username = "user", .password = "pass:word"}},
      {R"({"auth":"dXNlcjpwYXNzOndvcmQ"})", {.username = "user", .password = "pass:word"}},
      {R"({"auth":"dXNlcjpwYXNzOndvcmQAAAA="})", {.username = "user", .password = "pass:word"}},
      {R"({"username":"u","password":"p"})", {.username = "u", .password = "p"}},
      {R"({"username":"u","password":"p","auth":"dXNlcjpwYXNzOndvcmQ=","email":"e"})",
       {.username = "u", .password = "p"}},
      {R"({"auth":"dTo=","identitytoken":"refresh"})", {.username = "u", .identity_token = "refresh"}},
      {R"({"registrytoken":"bearer"})", {.registry_token = "bearer"}},
  };
  for (const auto& row : rows) {
    const auto newer = must(DockerConfig::parse(R"({"auths":{"r.example":)" + row.entry + "}}"));
    EXPECT_EQ(newer.credentials("r.example", "a/b"), row.desired) << row.entry;
    const auto older = must(DockerConfig::parse(R"({"r.example":)" + row.entry + "}"));
    EXPECT_EQ(older.credentials("r.example", "a/b"), row.desired) << row.entry;
  }
}

TEST(DockerConfig, KnowsARegistryByEachOfItsNames) {
  for (const char* key : {"r.example", "https://r.example", "http://r.example/", "https://r.example/v1/",
                          "https://r.example/v2/", "r.example/v2", "R.Example"}) {
    const std::string config = std::string(R"({"auths":{")") + key + R"(":{"username":"u"}}})";
    EXPECT_EQ(user_for(config, "r.example", "a"), "u") << key;
    EXPECT_EQ(user_for(config, "s.example", "a"), "") << key;
    EXPECT_EQ(user_for(config, "r.example:5000", "a"), "") << key;
  }
  for (const char* key :
       {"https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io"}) {
    const std::string config = std::string(R"({"auths":{")") + key + R"(":{"username":"u"}}})";
    EXPECT_EQ(user_for(config, "docker.io", "library/alpine"), "u") << key;
    EXPECT_EQ(user_for(config, "registry-1.docker.io", "library/alpine"), "u") << key;
  }
  EXPECT_EQ(user_for(R"({"auths":{"r.example:5000":{"username":"u"}}})", "r.example:5000", "a"), "u");
  EXPECT_EQ(user_for(R"({"auths":{"r.example:5000":{"username":"u"}}})", "r.example", "a"), "");
}

TEST(DockerConfig, GivesThoseOfTheLongestKeyThatFits) {
  const std::string config = R"({"auths":{
    "*.example":{"username":"any"}, "r.example":{"username":"host"}, "r.example/team":{"username":"team"},
    "r.example/team/gpu":{"username":"gpu"}, "https://r.example/v1/":{"username":"v1"}}})";
  EXPECT_EQ(user_for(config, "r.example", "team/gpu/kata"), "gpu");
  EXPECT_EQ(user_for(config, "r.example", "team/gpu"), "gpu");
  EXPECT_EQ(user_for(config, "r.example", "team/gpus"), "team");
  EXPECT_EQ(user_for(config, "r.example", "teams/x"), "host");
  EXPECT_EQ(user_for(config, "q.example", "team/gpu"), "any");
  EXPECT_EQ(user_for(config, "evil.q.example", "a"), "") << "a star is within one label";
  EXPECT_EQ(user_for(config, "example", "a"), "");
  EXPECT_EQ(user_for(config, "r.example.evil", "team/gpu"), "");
}

TEST(DockerConfig, SaysWhatItDoesNotHave) {
  EXPECT_TRUE(must(DockerConfig::parse("")).credentials("r.example", "a").empty());
  EXPECT_TRUE(must(DockerConfig::parse(" \n")).credentials("r.example", "a").empty());
  EXPECT_TRUE(must(DockerConfig::parse("{}")).credentials("r.example", "a").empty());
  const auto helpers = must(DockerConfig::parse(R"({"auths":{"r.example":{}},"credsStore":"pass"})"));
  EXPECT_TRUE(helpers.names_helpers());
  EXPECT_TRUE(helpers.credentials("r.example", "a").empty());
  EXPECT_TRUE(must(DockerConfig::parse(R"({"credHelpers":{"r.example":"gcr"}})")).names_helpers());
}

TEST(DockerConfig, IsRefusedWithTheKeyButNeverASecret) {
  struct Row {
    std::string text, why;
  };
  const std::vector<Row> rows = {
      {"[", "parse error"},
      {R"({"auths":{"r.example":{"password":"hunter2)", "parse error at byte "},
      {R"({"auths":{"r.example":{"password":"hunter2"x)", "parse error at byte "},
      {R"({"auths":{"r.example":{"password":hunter2}}})", "parse error at byte "},
      {"[]", "no JSON object"},
      {"1", "no JSON object"},
      {R"({"auths":[]})", "'auths': it is no map"},
      {R"({"auths":{"r.example":"hunter2"}})", "'r.example': it is no JSON object"},
      {R"({"auths":{"r.example":{"auth":"hunter2!"}}})", "'r.example': auth is no base64"},
      {R"({"auths":{"r.example":{"auth":"a"}}})", "auth is no base64"},
      {R"({"auths":{"r.example":{"auth":"aHVudGVyMg=="}}})", "auth is not USER:PASSWORD"},
      {R"({"auths":{"r.example":{"auth":5}}})", "'r.example': auth is no text"},
      {R"({"auths":{"r.example":{"username":"u","password":["hunter2"]}}})", "password is no text"},
      {R"({"auths":{"r.example":{"username":"a"},"r.example":{"username":"b"}}})",
       "'r.example' is there twice"},
      {R"({"auth":{"username":"u"}})", "'auth': it names no registry"},
      {std::string(1000, '[') + std::string(1000, ']'), "nested too deeply"},
  };
  for (const auto& row : rows) {
    const auto got = DockerConfig::parse(row.text);
    EXPECT_FALSE(got.has_value()) << row.text;
    if (got) continue;
    EXPECT_EQ(got.error().code, Errc::invalid_config) << row.text;
    EXPECT_THAT(got.error().message, HasSubstr(row.why)) << row.text;
    EXPECT_THAT(got.error().message, Not(HasSubstr("hunter2"))) << row.text;
  }
}

}  // namespace
}  // namespace ferry::kata
