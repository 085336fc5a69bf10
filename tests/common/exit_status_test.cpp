// SPDX-License-Identifier: Apache-2.0
#include "common/exit_status.h"

#include <gmock/gmock.h>

namespace ferry {
namespace {

Error with(std::error_code code) {
  return {.code = code, .message = {}, .hint = {}};
}

TEST(ExitStatus, GivesScriptsTheKindOfError) {
  EXPECT_EQ(exit_status_of(with(Errc::usage)), ExitStatus::usage);
  EXPECT_EQ(exit_status_of(with(Errc::invalid_config)), ExitStatus::usage);
  EXPECT_EQ(exit_status_of(with(Errc::not_found)), ExitStatus::usage);
  EXPECT_EQ(exit_status_of(with(Errc::refused)), ExitStatus::refused);
  EXPECT_EQ(exit_status_of(with(Errc::differs)), ExitStatus::differs);
  for (const Errc code :
       {Errc::stuck, Errc::unreachable, Errc::unsupported, Errc::malformed_host, Errc::failed}) {
    EXPECT_EQ(exit_status_of(with(code)), ExitStatus::failed) << make_error_code(code).message();
  }
  EXPECT_EQ(exit_status_of(error_from_errno(EBUSY, "write /sys/x")), ExitStatus::failed);
}

TEST(ExitStatus, OfSeveralDevicesTheWorstCounts) {
  const std::vector<ExitStatus> worst_first = {ExitStatus::failed, ExitStatus::refused, ExitStatus::differs,
                                               ExitStatus::done};
  for (std::size_t i = 0; i < worst_first.size(); ++i) {
    for (std::size_t j = i; j < worst_first.size(); ++j) {
      EXPECT_EQ(worse(worst_first[i], worst_first[j]), worst_first[i]);
      EXPECT_EQ(worse(worst_first[j], worst_first[i]), worst_first[i]);
    }
  }
}

TEST(ExitStatus, IsUsageOnlyWhereNothingWasWritten) {
  EXPECT_EQ(once_written(ExitStatus::usage), ExitStatus::refused);
  for (const ExitStatus status :
       {ExitStatus::done, ExitStatus::failed, ExitStatus::differs, ExitStatus::refused}) {
    EXPECT_EQ(once_written(status), status);
  }
}

TEST(ExitStatus, HasTheNumbersThatScriptsCompareWith) {
  EXPECT_EQ(static_cast<int>(ExitStatus::done), 0);
  EXPECT_EQ(static_cast<int>(ExitStatus::failed), 1);
  EXPECT_EQ(static_cast<int>(ExitStatus::usage), 2);
  EXPECT_EQ(static_cast<int>(ExitStatus::differs), 3);
  EXPECT_EQ(static_cast<int>(ExitStatus::refused), 4);
}

TEST(Error, KeepsCodeAndHintUnderWhatWasBeingDone) {
  const Error error =
      Error{.code = Errc::refused, .message = "in use", .hint = "stop the VM"}.during("bind group 17");
  EXPECT_EQ(error.code, Errc::refused);
  EXPECT_EQ(error.message, "bind group 17: in use");
  EXPECT_EQ(error.hint, "stop the VM");
}

TEST(Error, KnowsWhatIsGoneFromWhatIsBroken) {
  for (const int number : {ENOENT, ENODEV, ENXIO}) EXPECT_TRUE(is_gone(error_from_errno(number, "read")));
  EXPECT_TRUE(is_gone(with(Errc::not_found)));
  for (const int number : {EIO, EACCES, EBUSY}) EXPECT_FALSE(is_gone(error_from_errno(number, "read")));
  EXPECT_FALSE(is_gone(with(Errc::malformed_host)));
}

}  // namespace
}  // namespace ferry
