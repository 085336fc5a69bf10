// SPDX-License-Identifier: Apache-2.0
#include "api/serving.h"

#include <gmock/gmock.h>

#include "tests/support/must.h"

namespace ferry::api {
namespace {

using test::must;

TEST(ServingFile, SaysWhyThePluginIsOnStandby) {
  const std::string text = serving_file_text("another serves");
  EXPECT_TRUE(is_of_the_agent(text));
  for (const char* const persons :
       {R"({"version": 1, "serve": false})", R"({"by": "me"})", R"({"by": 1})", "[]", ""})
    EXPECT_FALSE(is_of_the_agent(persons)) << persons;
  EXPECT_EQ(text,
            "{\n  \"version\": 1,\n  \"serve\": false,\n  \"reason\": \"another serves\",\n  \"by\": "
            "\"agent\"\n}\n");
  EXPECT_EQ(must(read_serving_file(text)), "another serves");
}

TEST(ServingFile, MayBeAPersons) {
  EXPECT_EQ(must(read_serving_file(R"({"version": 1, "serve": true, "reason": "none", "newer": 1})")), "");
  EXPECT_EQ(must(read_serving_file(R"({"version": 1, "serve": false})")), "serving.json says so")
      << "an empty reason would have it serve";
}

TEST(ServingFile, IsNamedByErrorsWhereverItIs) {
  const auto read = read_serving_file("[]", "tmp/serving.json");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "/tmp/serving.json: expected an object");
  EXPECT_EQ(read.error().hint,
            "remove /tmp/serving.json to have the device plugin serve; the agent writes it anew where it is "
            "needed");
}

TEST(ServingFile, OfAnotherFormIsRefusedWithTheKey) {
  for (const auto& [text, message] :
       {std::pair{"", "not JSON"},
        {"[]", "expected an object"},
        {R"({"serve": false})", "version: the key is missing"},
        {R"({"version": 2, "serve": false})", "version: expected 1, found 2"},
        {R"({"version": 1})", "serve: the key is missing"},
        {R"({"version": 1, "serve": "no"})", "serve: expected true or false"},
        {R"({"version": 1, "serve": false, "reason": 7})", "reason: expected a text"}}) {
    const auto read = read_serving_file(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, Errc::malformed_host);
    EXPECT_EQ(read.error().message, std::string("/var/lib/ferry/serving.json: ") + message);
    EXPECT_FALSE(read.error().hint.empty());
  }
}

}  // namespace
}  // namespace ferry::api
