// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "common/text/text.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Words, AreBetweenSeparators) {
  using namespace std::string_view_literals;
  EXPECT_THAT(words_between("", ','), IsEmpty());
  EXPECT_THAT(words_between("a", ','), ElementsAre("a"));
  EXPECT_THAT(words_between("a,b c", ','), ElementsAre("a", "b c"));
  EXPECT_THAT(words_between("kubelet\0--config\0/a b\0"sv, '\0'), ElementsAre("kubelet", "--config", "/a b"));
  EXPECT_THAT(words_between("a\0\0b\0"sv, '\0'), ElementsAre("a", "", "b")) << "an empty argument is one";
  EXPECT_THAT(words_between(",", ','), ElementsAre(""));
}

}  // namespace
}  // namespace ferry
