// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>

#include "agent/labels/own_labels.h"

namespace ferry::agent {
namespace {

using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

TEST(KataLabels, SayWhatIsReadyAndNothingElse) {
  EXPECT_THAT(kata_labels({{"gpu-ferry.io/state", "ready"}}, {}), IsEmpty());
  EXPECT_THAT(kata_labels({{"gpu-ferry.io/kata.gone", "ready"}, {"gpu-ferry.io/kata.b", "no"}}, {"a", "b"}),
              UnorderedElementsAre(Pair("gpu-ferry.io/kata.a", "ready"), Pair("gpu-ferry.io/kata.b", "ready"),
                                   Pair("gpu-ferry.io/kata.gone", std::nullopt)));
}

TEST(KataLabels, HaveNoneForANameThatMakesNone) {
  const std::string longest(58, 'a');
  EXPECT_THAT(kata_labels({}, {longest, longest + "a", "", "a/b", "ends-", "a b"}),
              UnorderedElementsAre(Pair("gpu-ferry.io/kata." + longest, "ready")));
}

}  // namespace
}  // namespace ferry::agent
