// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "cli/output/kata_report.h"

namespace ferry::cli {
namespace {

using std::chrono::milliseconds;

TEST(CheckProgressLines, AreSaidEveryTwoSecondsFromTheThirdSecondOn) {
  CheckProgressLines::Clock::time_point now{};
  CheckProgressLines lines("kata-gpu", [&] { return now; });
  constexpr std::uint64_t kMib = 1ULL << 20U;
  const auto at = [&](int milliseconds_since, std::uint64_t done) {
    now = CheckProgressLines::Clock::time_point() + milliseconds(milliseconds_since);
    return lines.line({.done = done, .total = 340 * kMib}).value_or("");
  };
  EXPECT_EQ(at(0, 0), "");
  EXPECT_EQ(at(1999, kMib), "") << "what is soon over is not worth a line";
  EXPECT_EQ(at(2000, 12 * kMib), "kata-gpu: 12 of 340 MiB\n");
  EXPECT_EQ(at(2200, 13 * kMib), "");
  EXPECT_EQ(at(3999, 50 * kMib), "");
  EXPECT_EQ(at(4100, 340 * kMib), "kata-gpu: 340 of 340 MiB\n");
  EXPECT_EQ(at(6099, 340 * kMib), "") << "from the last one on";
}

}  // namespace
}  // namespace ferry::cli
