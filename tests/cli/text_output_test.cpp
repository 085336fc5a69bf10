// SPDX-License-Identifier: Apache-2.0
#include "cli/output/text_output.h"

#include <map>
#include <memory>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <gmock/gmock.h>

namespace ferry::cli {
namespace {

using testing::ElementsAre;
using testing::Eq;
using testing::Optional;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

/// A terminal of 100 columns and 30 rows.
class OnATerminal : public testing::Test {
 protected:
  OnATerminal() {
    const winsize size{.ws_row = 30, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
    int slave = -1;
    if (::openpty(&master_, &slave, nullptr, nullptr, &size) == 0) out_.reset(::fdopen(slave, "w"));
  }
  ~OnATerminal() override { ::close(master_); }
  int master_ = -1;
  File out_;
};

TEST_F(OnATerminal, IsAsWideAsThatAndHasColours) {
  ASSERT_NE(out_, nullptr);
  const TextOutput output = text_output_of(out_.get(), Environment());
  EXPECT_THAT(output.columns, Optional(100U));
  EXPECT_THAT(output.rows, Optional(30U));
  EXPECT_TRUE(output.colour);
}

TEST_F(OnATerminal, TakesTheUsersWordBeforeIt) {
  ASSERT_NE(out_, nullptr);
  EXPECT_THAT(text_output_of(out_.get(), Environment({{"COLUMNS", "64"}})).columns, Optional(64U));
  for (const char* nonsense : {"", "0", "wide", "80x", "-1"})
    EXPECT_THAT(text_output_of(out_.get(), Environment({{"COLUMNS", nonsense}})).columns, Optional(100U))
        << nonsense;
  EXPECT_FALSE(text_output_of(out_.get(), Environment({{"NO_COLOR", "1"}})).colour);
  EXPECT_TRUE(text_output_of(out_.get(), Environment({{"NO_COLOR", ""}})).colour) << "empty is as unset";
  EXPECT_FALSE(text_output_of(out_.get(), Environment({{"TERM", "dumb"}})).colour);
}

TEST(IntoAFile, IsAsWideAsItTakesAndHasNoColours) {
  const File out(std::fopen("/dev/null", "w"));
  ASSERT_NE(out, nullptr);
  const TextOutput output = text_output_of(out.get(), Environment());
  EXPECT_THAT(output.columns, Eq(std::nullopt));
  EXPECT_FALSE(output.colour);
  EXPECT_THAT(text_output_of(out.get(), Environment({{"COLUMNS", "72"}})).columns, Optional(72U));
}

TEST(Text, IsAsWideAsItHasCharacters) {
  EXPECT_EQ(width_of("├─ äöü"), 6U);
}

TEST(Text, IsBrokenAtBlanks) {
  EXPECT_THAT(wrapped("stop the VM first", 8), ElementsAre("stop the", "VM first"));
  EXPECT_THAT(wrapped("", 5), ElementsAre(""));
}

TEST(Text, IsBrokenInWordsThatAreWiderThanALine) {
  EXPECT_THAT(wrapped("pod team-blue/workstation-7 has it", 12),
              ElementsAre("pod", "team-blue/", "workstation-", "7 has it"));
  EXPECT_THAT(wrapped("0123456789 is", 4), ElementsAre("0123", "4567", "89", "is"));
  EXPECT_THAT(wrapped("äöüßäöüß ä", 3), ElementsAre("äöü", "ßäö", "üß", "ä")) << "by characters";
  EXPECT_THAT(wrapped("ab", 0), ElementsAre("a", "b")) << "it ends";
}

}  // namespace
}  // namespace ferry::cli
