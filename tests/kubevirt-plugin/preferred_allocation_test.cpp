// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/preferred_allocation.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace ferry {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using Ids = std::vector<std::string>;

// p, q, r on node 2; s, t on node 3; u and v on none.
const std::vector<Candidate>& machine() {
  static const std::vector<Candidate> kMachine = {{"p", 2, 1}, {"q", 2, 2},  {"r", 2, 3}, {"s", 3, 4},
                                                  {"t", 3, 5}, {"u", {}, 6}, {"v", {}, 7}};
  return kMachine;
}

struct Wish {
  std::string row;
  Ids available;
  Ids must_include;
  int size = 0;
  Ids chosen;
};
class PreferredAllocation : public testing::TestWithParam<Wish> {};

TEST_P(PreferredAllocation, Chooses) {
  const auto& wish = GetParam();
  const auto chosen = preferred_allocation(machine(), wish.available, wish.must_include, wish.size);
  ASSERT_TRUE(chosen);
  EXPECT_THAT(*chosen, ElementsAreArray(wish.chosen));
}

INSTANTIATE_TEST_SUITE_P(
    Table, PreferredAllocation,
    testing::Values(Wish{"NodeThatHoldsAll", {"s", "p", "q", "t", "r"}, {}, 3, {"p", "q", "r"}},
                    Wish{"WholeOnAnotherNodeThanTheIncluded", {"s", "p", "t"}, {"p"}, 2, {"p", "s"}},
                    Wish{"NoNodeHoldsAll", {"t", "q"}, {}, 2, {"t", "q"}},
                    Wish{"IncludedTwice", {"s", "t"}, {"s", "s", "t"}, 2, {"s", "t"}},
                    Wish{"IncludedNodeFirst", {"p", "q", "r", "s", "t"}, {"t"}, 2, {"t", "s"}},
                    Wish{"OneFromTheFirst", {"t", "p"}, {}, 1, {"t"}},
                    Wish{"AvailableTwice", {"p", "p", "s"}, {}, 2, {"p", "s"}},
                    Wish{"UnknownNodesTogether", {"p", "u", "v"}, {}, 2, {"u", "v"}},
                    Wish{"StrangersCountAsUnknown", {"p", "x", "u"}, {}, 2, {"x", "u"}},
                    Wish{"MoreThanThereIs", {"p", "s"}, {}, 5, {"p", "s"}},
                    Wish{"NothingAsked", {"p"}, {}, 0, {}}, Wish{"NothingThere", {}, {}, 2, {}}),
    [](const auto& row) { return row.param.row; });

TEST(PreferredAllocationErrors, MoreIncludedThanFit) {
  const auto chosen = preferred_allocation(machine(), Ids{}, Ids{"p", "q"}, 1);
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().code, Errc::usage);
  EXPECT_THAT(chosen.error().message, HasSubstr("2 devices must be included in an allocation of 1"));
}

TEST(PreferredAllocationErrors, NegativeSize) {
  EXPECT_FALSE(preferred_allocation(machine(), Ids{"p"}, Ids{}, -1));
}

}  // namespace
}  // namespace ferry
