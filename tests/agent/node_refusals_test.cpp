// SPDX-License-Identifier: Apache-2.0
#include "agent/node_refusals.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "api/labels.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::Le;

const std::string kWaits = std::string(api::kKataPrefix) + "kata";

NodePatchContent with_labels(const std::vector<std::string>& names) {
  NodePatchContent step;
  for (const std::string& name : names) step.labels[name] = "ready";
  return step;
}

NodePatchContent with_note(NodePatchContent step) {
  step.annotations[api::kErrorAnnotation] = "0000:3b:00.0 is in use";
  return step;
}

class NodeRefusalsTest : public testing::Test {
 protected:
  static constexpr auto kSoon = kube::Backoff::kFirst;        // within each pause but the cordon's
  static constexpr auto kLater = 10 * kube::Backoff::kFirst;  // behind each first one

  const kube::Random random_ = [] { return 0.999; };
  NodeRefusals refusals_;
  const Moment now_ = Moment(1h);
};

TEST_F(NodeRefusalsTest, WhatIsWrongIsLeftOutFirstAndForAWhile) {
  NodePatchContent step = with_note(with_labels({api::kStateLabel}));
  refusals_.refuse(step, "no", now_, random_);
  EXPECT_TRUE(refusals_.are_notes_left_out(now_ + kSoon));
  EXPECT_EQ(refusals_.own(now_ + kSoon), "");
  refusals_.leave_out(step, now_ + kSoon);
  EXPECT_THAT(step.annotations, testing::IsEmpty());
  EXPECT_EQ(step.labels.size(), 1U) << "the rest goes on";
  EXPECT_FALSE(refusals_.are_notes_left_out(now_ + kLater));
}

TEST_F(NodeRefusalsTest, WhatIsRefusedWithoutTheWordsTooWasNotTheWords) {
  refusals_.refuse(with_note(with_labels({api::kStateLabel})), "no", now_, random_);
  refusals_.refuse(with_labels({api::kStateLabel}), "no label", now_, random_);
  EXPECT_FALSE(refusals_.are_notes_left_out(now_));
  EXPECT_EQ(refusals_.own(now_), "no label");
  refusals_.refuse(with_note(with_labels({api::kStateLabel})), "no label", now_ + kLater, random_);
  EXPECT_FALSE(refusals_.are_notes_left_out(now_ + kLater)) << "the label is known to be refused";
}

TEST_F(NodeRefusalsTest, LabelsThatCanWaitAreLeftOutBeforeTheOthers) {
  refusals_.refuse(with_labels({kWaits, api::kStateLabel}), "no kata", now_, random_);
  EXPECT_EQ(refusals_.labels(now_ + kSoon), "no kata");
  EXPECT_EQ(refusals_.own(now_ + kSoon), "");
  EXPECT_EQ(refusals_.labels(now_ + kLater), "") << "it is tried again";
  refusals_.refuse(with_labels({api::kStateLabel}), "no state", now_, random_);
  EXPECT_EQ(refusals_.own(now_ + kSoon), "no state");
  EXPECT_FALSE(refusals_.is_all_left_out(now_ + kSoon)) << "annotations go on";
  refusals_.take(with_labels({kWaits}));
  EXPECT_EQ(refusals_.labels(now_), "");
  EXPECT_EQ(refusals_.own(now_), "no state") << "taken was another kind";
}

TEST_F(NodeRefusalsTest, ACordonIsTriedAgainSoon) {
  NodePatchContent cordon;
  cordon.unschedulable = true;
  refusals_.refuse(cordon, "no cordon", now_, random_);
  EXPECT_EQ(refusals_.cordon(now_), "no cordon");
  EXPECT_EQ(refusals_.cordon(now_ + kSoon), "");
  refusals_.take(with_labels({kWaits}));  // whatever is taken, the next pause is short again
  refusals_.refuse(cordon, "no cordon", now_, random_);
  EXPECT_EQ(refusals_.cordon(now_ + kSoon), "");
}

TEST_F(NodeRefusalsTest, WhereAnnotationsAloneAreRefusedNothingIsTaken) {
  NodePatchContent features;
  features.annotations["gpu-ferry.io/other"] = "x";
  refusals_.refuse(features, "nothing", now_, random_);
  EXPECT_TRUE(refusals_.is_all_left_out(now_ + kSoon));
  EXPECT_FALSE(refusals_.remembers(now_ + kLater)) << "until the Node has shown something";
  EXPECT_FALSE(refusals_.may_forget_own(now_ + kSoon));
  EXPECT_TRUE(refusals_.may_forget_own(now_ + kLater));
  refusals_.forget_own();
  EXPECT_FALSE(refusals_.is_all_left_out(now_ + kSoon));
  EXPECT_TRUE(refusals_.remembers(now_));
}

TEST_F(NodeRefusalsTest, PausesGrowUntilItIsTaken) {
  const NodePatchContent step = with_labels({kWaits});
  const auto pause = [&] {
    refusals_.refuse(step, "no", now_, random_);
    const auto moments = refusals_.moments();
    return *std::ranges::max_element(moments) - now_;
  };
  const auto first = pause();
  const auto second = pause();
  EXPECT_GT(second, first);
  refusals_.take(step);
  EXPECT_EQ(pause(), first);
}

TEST_F(NodeRefusalsTest, NothingIsAwaitedAtFirst) {
  EXPECT_THAT(refusals_.moments(), Each(Le(now_)));
  EXPECT_TRUE(refusals_.remembers(now_));
}

}  // namespace
}  // namespace ferry::agent
