// SPDX-License-Identifier: Apache-2.0
// Every single change of the host for a claim fails, hangs, or is the last one before hostd's death. A claim
// that was not prepared then leaves the node as it was, and the same request finishes it; unprepare undoes it
// from any state.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "host/claims/claim_functions.h"
#include "tests/host/claim_node.h"
#include "tests/support/must.h"
#include "tests/vfio/rebinds.h"

namespace ferry::host {
namespace {

using test::FakeKernel;
using test::must;
using testing::AnyOf;
using testing::IsEmpty;

std::size_t stride() {
  const char* const status = std::getenv("FERRY_FAULTS");  // NOLINT(concurrency-mt-unsafe): one thread
  return status == nullptr ? 1 : std::max<std::size_t>(1, std::stoul(status));
}

struct Case {
  const char* name;
  std::vector<api::RequestedDevice> devices;
};

std::vector<Case> cases() {
  using Node = ClaimNode;
  return {{"Whole", {Node::whole(Node::kWhole)}},
          {"WholeWithFunctions", {Node::whole(Node::kVendor)}},
          {"Mediated", {Node::vgpu(Node::kMdev, Node::kMdevType)}},
          {"Vendor", {Node::vgpu(Node::kVendor, Node::kVendorType)}},
          {"Several",
           {Node::whole(Node::kWhole), Node::vgpu(Node::kMdev, Node::kMdevType),
            Node::vgpu(Node::kVendor, Node::kVendorType)}}};
}

/// A file of hostd's own does not hang.
std::size_t hanging_writes(const ClaimNode& node) {
  return node.kernel.list("run/ferry/stuck-writes").value_or(std::vector<std::string>()).size();
}

class EveryChangeForAClaim : public testing::TestWithParam<Case> {
 protected:
  EveryChangeForAClaim() {
    ClaimNode model;
    before_ = model.state();
    model.kernel.forget_changes();
    must(model.prepare("a", devices()));
    after_ = model.state();
    changes_ = model.kernel.changes().size();
    model.kernel.forget_changes();
    must(model.unprepare("a"));
    EXPECT_EQ(model.state(), before_);
    changes_back_ = model.kernel.changes().size();
  }
  static const std::vector<api::RequestedDevice>& devices() { return GetParam().devices; }

  /// The claim can be finished and undone, whatever has happened.
  void ends_well(ClaimNode& node) const {
    must(node.prepare("a", devices()));
    EXPECT_EQ(node.state(), after_);
    node.kernel.forget_changes();
    must(node.prepare("a", devices()));
    EXPECT_THAT(node.kernel.changes(), IsEmpty());
    is_undone(node);
  }
  void is_undone(ClaimNode& node) const {
    must(node.unprepare("a"));
    EXPECT_EQ(node.state(), before_);
    EXPECT_THAT(node.record().claims, IsEmpty());
    EXPECT_THAT(node.undo_journals(), IsEmpty());
    EXPECT_THAT(node.files(), IsEmpty());
  }

  std::string before_;
  std::string after_;
  std::size_t changes_ = 0;
  std::size_t changes_back_ = 0;
};

TEST_P(EveryChangeForAClaim, ThatFailsLeavesTheNodeAsItWas) {
  for (std::size_t n = 1; n <= changes_; n += stride()) {
    SCOPED_TRACE(n);
    ClaimNode node;
    node.kernel.fail_change(n, EIO);
    const auto answer = node.prepare("a", devices());
    // Only the last write, that of the record, comes after all others.
    EXPECT_THAT(node.state(), AnyOf(before_, after_));
    if (node.state() == before_ && !answer) {
      EXPECT_THAT(node.record().claims, IsEmpty());
    }
    ends_well(node);
  }
}

TEST_P(EveryChangeForAClaim, ThatIsTheLastBeforeDeathIsFinishedOrUndoneByTheNextHostd) {
  for (std::size_t n = 1; n <= changes_; n += stride()) {
    for (const bool finishes : {true, false}) {
      SCOPED_TRACE(testing::Message() << "change " << n << (finishes ? ", prepared again" : ", undone"));
      ClaimNode node;
      ASSERT_TRUE(test::dies([&] {
        node.kernel.die_at_change(n);
        (void)node.prepare("a", devices());
      }));
      node.kernel.adopt_vfs(ClaimNode::kVendor);
      if (finishes)
        ends_well(node);
      else
        is_undone(node);
    }
  }
}

TEST_P(EveryChangeForAClaim, ThatHangsIsFinishedOnceItReturns) {
  for (const auto ending : {FakeKernel::Ending::without_effect, FakeKernel::Ending::with_effect}) {
    for (std::size_t n = 1; n <= changes_; n += stride()) {
      SCOPED_TRACE(n);
      ClaimNode node;
      node.kernel.hang_change(n);
      const auto answer = node.prepare("a", devices());
      const std::size_t hanging = hanging_writes(node);
      EXPECT_EQ(answer.has_value(), hanging == 0);
      if (!answer) {
        EXPECT_EQ(answer.error().code, Errc::stuck) << answer.error().message;
      }
      EXPECT_EQ(node.prepare("a", devices()).has_value(), hanging == 0);
      // `ferry dra` has a refused claim undone.
      if (hanging != 0) (void)node.unprepare("a");
      EXPECT_EQ(hanging_writes(node), hanging) << "written again to what hangs";
      node.kernel.release_stuck(ending);
      ends_well(node);
    }
  }
}

TEST_P(EveryChangeForAClaim, ThatFailsInTheRollBackIsRepeated) {
  for (std::size_t n = 1; n <= changes_back_; n += stride()) {
    SCOPED_TRACE(n);
    ClaimNode node;
    must(node.prepare("a", devices()));
    node.kernel.forget_changes();
    node.kernel.fail_change(n, EIO);
    (void)node.unprepare("a");
    if (!node.record().claims.empty()) {
      is_undone(node);
    } else {
      // Virtual functions that are not enabled again keep no claim from its end.
      EXPECT_EQ(node.kernel.driver_of(ClaimNode::kVendor), "nvidia");
      EXPECT_THAT(node.undo_journals(), IsEmpty());
    }
  }
}

TEST_P(EveryChangeForAClaim, ThatIsTheLastBeforeDeathInTheRollBackIsRepeatedByTheNextHostd) {
  for (std::size_t n = 1; n <= changes_back_; n += stride()) {
    SCOPED_TRACE(n);
    ClaimNode node;
    must(node.prepare("a", devices()));
    ASSERT_TRUE(test::dies([&] {
      node.kernel.die_at_change(n);
      (void)node.unprepare("a");
    }));
    node.kernel.adopt_vfs(ClaimNode::kVendor);
    is_undone(node);
  }
}

/// hostd enables the virtual functions of a GPU that enters DRA, and takes them away when it leaves. Every
/// round asks for the same change until the GPU has them, or has none.
class EveryChangeOfFunctions : public testing::TestWithParam<bool> {
 protected:
  static constexpr std::uint32_t kNumber = 4;
  static bool enters() { return GetParam(); }

  static Result<> change(ClaimNode& node, std::uint32_t number) {
    const NodeProbes uses{.for_rebinds = node.users, .for_vgpus = node.users, .open_nodes = node.users};
    return change_functions(node.context(uses),
                            {.gpu = ClaimNode::at(ClaimNode::kVendor), .number = number, .why = "a test"},
                            {});
  }
  static Result<> change(ClaimNode& node) { return change(node, enters() ? kNumber : 0); }
  static void begin(ClaimNode& node) {
    node.kernel.enable_vfs(ClaimNode::kVendor, 0);
    if (!enters()) must(change(node, kNumber));
    node.kernel.forget_changes();
  }
  static std::size_t changes() {
    ClaimNode model;
    begin(model);
    must(change(model));
    is_done(model);
    return model.kernel.changes().size();
  }
  static void is_done(const ClaimNode& node) {
    EXPECT_EQ(node.kernel.vfs_of(ClaimNode::kVendor).size(), enters() ? kNumber : 0);
    EXPECT_EQ(node.record().made_functions.size(), enters() ? 1U : 0U);
  }
};

TEST_P(EveryChangeOfFunctions, ThatFailsIsRepeated) {
  for (std::size_t n = 1; n <= changes(); n += stride()) {
    SCOPED_TRACE(n);
    ClaimNode node;
    begin(node);
    node.kernel.fail_change(n, EIO);
    (void)change(node);
    must(change(node));
    is_done(node);
  }
}

TEST_P(EveryChangeOfFunctions, ThatIsTheLastBeforeDeathIsRepeatedByTheNextHostd) {
  for (std::size_t n = 1; n <= changes(); n += stride()) {
    SCOPED_TRACE(n);
    ClaimNode node;
    begin(node);
    ASSERT_TRUE(test::dies([&] {
      node.kernel.die_at_change(n);
      (void)change(node);
    }));
    node.kernel.adopt_vfs(ClaimNode::kVendor);
    if (!node.kernel.vfs_of(ClaimNode::kVendor).empty()) {
      EXPECT_THAT(node.record().made_functions, testing::ElementsAre(ClaimNode::kVendor));
    }
    must(change(node));
    is_done(node);
  }
}

TEST_P(EveryChangeOfFunctions, ThatHangsIsLeftAloneUntilItReturns) {
  for (const auto ending : {FakeKernel::Ending::without_effect, FakeKernel::Ending::with_effect}) {
    for (std::size_t n = 1; n <= changes(); n += stride()) {
      SCOPED_TRACE(n);
      ClaimNode node;
      begin(node);
      node.kernel.hang_change(n);
      (void)change(node);
      const std::size_t hanging = hanging_writes(node);
      (void)change(node);
      EXPECT_EQ(hanging_writes(node), hanging) << "written again to what hangs";
      node.kernel.release_stuck(ending);
      must(change(node));
      is_done(node);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Claims, EveryChangeOfFunctions, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& enters) {
                           return std::string(enters.param ? "Made" : "TakenAway");
                         });

INSTANTIATE_TEST_SUITE_P(Claims, EveryChangeForAClaim, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& param) {
                           return std::string(param.param.name);
                         });

}  // namespace
}  // namespace ferry::host
