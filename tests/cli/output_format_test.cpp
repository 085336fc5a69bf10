// SPDX-License-Identifier: Apache-2.0
#include "cli/options/output_format.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "cli/output/text_output.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

// Whatever it is that others have named: every program's output comes through here.
TEST(OutputFormat, GivesATerminalNoOrders) {
  const TextOutput output{.colour = true};
  const std::string name = "a\033[2J\xc2\x9b\x7f";
  const json document = {{"name", name}};
  EXPECT_EQ(printed(OutputFormat::table, document, tinted(output, Tint::bad, name) + "\n", Colours::kept),
            "\033[31ma\\x1b[2J\\xc2\\x9b\\x7f\033[0m\n");
  const std::string as_json = printed(OutputFormat::json, document, "");
  EXPECT_EQ(json::parse(as_json), document) << "programs read it as it is";
  for (const OutputFormat format : {OutputFormat::json, OutputFormat::yaml}) {
    const std::string out = printed(format, document, "");
    for (const char* order : {"\033", "\xc2\x9b", "\x7f"})
      EXPECT_THAT(out, testing::Not(testing::HasSubstr(order)));
  }
}

// A name from a registry or a host has no colour, wherever it is printed.
TEST(OutputFormat, TellsTheColoursOfOthers) {
  const std::string name = "\033[32mverified\033[0m";
  const std::string reported = "\\x1b[32mverified\\x1b[0m";
  EXPECT_EQ(printed(OutputFormat::table, {}, name), reported);
  for (const Tint tint : {Tint::plain, Tint::bad})
    EXPECT_THAT(tinted({.colour = true}, tint, name), testing::HasSubstr(reported));
}

TEST(OutputFormat, LeavesEveryColourOfOurs) {
  const TextOutput output{.colour = true};
  for (const Tint tint : {Tint::plain, Tint::heading, Tint::dim, Tint::good, Tint::attention, Tint::bad}) {
    const std::string text = tinted(output, tint, "a") + "\n";
    EXPECT_EQ(printed(OutputFormat::table, {}, text, Colours::kept), text);
  }
}

}  // namespace
}  // namespace ferry::cli
