// SPDX-License-Identifier: Apache-2.0
// The bounds of each text that one process of Ferry hands over to another one. A tree takes up to 160
// bytes for each value, so a text is refused before its tree is made.
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "api/advertised_resources.h"
#include "api/claim_request.h"
#include "api/claimable_gpus.h"
#include "api/desired_state.h"
#include "api/files.h"
#include "api/host_status.h"
#include "api/serving.h"
#include "common/text/json.h"
#include "dra/checkpoint.h"
#include "host/claims/claim_record.h"
#include "kata-manager/classes/desired_classes.h"
#include "kata-manager/controller/ready_handlers.h"

namespace ferry {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kLevels = 32;

struct Reader {
  const char* name;
  std::function<Error(const std::string& text)> fault;  ///< empty message: none
  const char* place;                                    ///< of the text, in errors
  std::size_t most = std::size_t{2} * 1024 * 1024;
  const char* limit = "larger than 2 MiB";
};

template <typename Read>
std::function<Error(const std::string&)> fault_of(Read read) {
  return [read](const std::string& text) {
    const auto result = read(text);
    return result ? Error() : Error(result.error());
  };
}

std::vector<Reader> readers() {
  constexpr std::size_t kSmall = std::size_t{64} * 1024;
  const auto desired = [](const std::string& text) {
    return api::read_desired_file({.file = "/var/lib/ferry/desired.json", .text = text});
  };
  const auto classes = [](const std::string& text) {
    return kata::read_desired_classes(ConfigText{.file = "/var/lib/ferry/kata-classes.json", .text = text});
  };
  const auto serving = [](const std::string& text) { return api::read_serving_file(text); };
  return {
      {"desired", fault_of(desired), "/var/lib/ferry/desired.json: "},
      {"classes", fault_of(classes), "/var/lib/ferry/kata-classes.json: "},
      {"serving", fault_of(serving), "/var/lib/ferry/serving.json: ", kSmall, "larger than 64 KiB"},
      {"status", fault_of(api::read_host_status), "/run/ferry/status.json: "},
      {"orders", fault_of(api::read_plugin_orders), "/run/ferry/status.json: "},
      {"advertised", fault_of(api::read_advertised_resources), "/run/ferry/plugin/advertised.json: "},
      {"allocations", fault_of(api::read_allocations), "/run/ferry/plugin/advertised.json: "},
      {"gpus", fault_of(api::read_claimable_gpus), "/run/ferry/claims/gpus.json: "},
      {"request", fault_of(api::read_claim_request), "the request: ", kSmall, "larger than 64 KiB"},
      {"answer", fault_of(api::read_claim_answer), "the answer of hostd: ", kSmall, "larger than 64 KiB"},
      {"checkpoint", fault_of(dra::read_checkpoint), "/run/ferry/dra/claims.json: "},
      {"record", fault_of(host::read_claim_record), "/run/ferry/hostd/claims.json: "},
      {"handlers", fault_of(kata::read_handlers_file), "/run/ferry/kata.json: "},
      {"ready", fault_of(kata::read_ready_handlers), "/run/ferry/kata.json: "},
  };
}

std::string times(std::size_t count, std::string_view part) {
  std::string out;
  out.reserve(count * part.size());
  for (std::size_t i = 0; i < count; ++i) out += part;
  return out;
}

/// An object of this depth whose innermost value is `inside`.
std::string nested(std::size_t levels, std::string_view opening, std::string_view closing,
                   const std::string& inside) {
  const std::size_t pairs = (levels - 1) / (opening.size() > 5 ? 2 : 1);
  return "{\"x\":" + times(pairs, opening) + inside + times(pairs, closing) + "}";
}

TEST(HandedOver, ATextThatIsNestedTooDeeplyIsRefusedBeforeItsTreeIsMade) {
  for (const Reader& reader : readers())
    for (const std::string& text :
         {times(kLevels + 1, "["), times(kLevels + 1, "{\"x\":"), nested(kLevels + 1, "[", "]", "0"),
          nested(kLevels + 1, "{\"x\":", "}", "0"), nested(kLevels + 1, "[{\"x\":", "}]", "0"),
          "{\"a\":\"]]\",\"x\":" + times(kLevels, "[") + times(kLevels, "]") + "}", times(reader.most, "["),
          times(reader.most / 5, "{\"x\":"), times(reader.most / 6, "[{\"x\":")}) {
      const Error error = reader.fault(text);
      EXPECT_EQ(error.message, std::string(reader.place) + "nested deeper than 32 levels")
          << reader.name << ": " << text.substr(0, 60);
      EXPECT_NE(error.hint, "") << reader.name;
    }
}

TEST(HandedOver, AtTheLimitOfDepthATextIsRead) {
  const std::string brackets = times(500, "[{") + R"(\"[[\\)";
  for (const Reader& reader : readers())
    for (const std::string& text :
         {nested(kLevels, "[", "]", "0"), nested(kLevels, "{\"x\":", "}", "0"),
          nested(kLevels - 1, "[{\"x\":", "}]", "0"), "{\"x\":\"" + brackets + "\"}",
          nested(kLevels, "[", "]", "\"" + brackets + "\""), "{\"" + brackets + "\":1}",
          "[" + times(1000, "[],{\"x\":[]},") + "0]"})
      EXPECT_THAT(reader.fault(text).message,
                  AllOf(Not(HasSubstr("levels")), Not(HasSubstr("larger")), Not(HasSubstr("not JSON"))))
          << reader.name << ": " << text.substr(0, 60);
}

TEST(HandedOver, ATextThatIsTooLargeIsRefusedBeforeItsTreeIsMade) {
  for (const Reader& reader : readers()) {
    const auto text = [&](std::size_t bytes) { return "{}" + std::string(bytes - 2, ' '); };
    EXPECT_THAT(reader.fault(text(reader.most)).message, Not(HasSubstr("larger"))) << reader.name;
    for (const std::string& large :
         {text(reader.most + 1), times(reader.most + 1, "["), times(reader.most / 3, "{\"x\":"),
          "\"" + times(reader.most, "[") + "\""}) {
      const Error error = reader.fault(large);
      EXPECT_EQ(error.message, std::string(reader.place) + reader.limit) << reader.name;
      EXPECT_NE(error.hint, "") << reader.name;
    }
  }
}

TEST(HandedOver, ATextOfTooManyValuesIsRefusedBeforeItsTreeIsMade) {
  constexpr std::size_t kMost = 100'000;
  for (const Reader& reader : readers()) {
    if (reader.most < kMost) continue;
    EXPECT_THAT(reader.fault("[" + times(kMost - 2, "0,") + "0]").message,
                Not(HasSubstr("more than 100000 values")))
        << reader.name;
    for (const std::string& text :
         {"[" + times(kMost - 1, "0,") + "0]", "[" + times(kMost, "[],") + "0]",
          "[" + times(kMost, "{\"\":0},") + "0]", "{" + times(kMost, "\"\":0,") + "\"a\":0}"})
      EXPECT_EQ(reader.fault(text).message, std::string(reader.place) + "more than 100000 values")
          << reader.name;
  }
}

TEST(HandedOver, AServingFileBeyondTheBoundsIsNotTheAgents) {
  const auto with = [](const std::string& more) { return "{\"by\":\"agent\",\"x\":" + more + "}"; };
  EXPECT_TRUE(api::is_of_the_agent(with("[]")));
  EXPECT_FALSE(api::is_of_the_agent(with(nested(kLevels, "[", "]", "0"))));
  EXPECT_FALSE(api::is_of_the_agent(with("\"" + std::string(64 * 1024, 'a') + "\"")));
}

}  // namespace
}  // namespace ferry
