// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace ferry {

/// What is asked of the host about IOMMU groups, on threads that nobody waits for longer than a deadline: the
/// kernel answers some of it only once it has reset what a VM has let go of, or a driver is done, and is deaf
/// to signals until then. One such thread stays for the next errand: to make one takes longer than all that
/// is asked for. Safe for several threads.
class GroupErrands {
 public:
  /// Must own all that it works with, since it may outlive this and who began it; and not throw.
  using Job = std::function<void()>;
  /// Whether the job is done: waits for it, at most until the deadline. To be called once, while the errands
  /// live.
  using Done = std::function<bool()>;

  static constexpr std::chrono::milliseconds kDeadline{500};

  explicit GroupErrands(std::chrono::milliseconds deadline = kDeadline);
  GroupErrands(const GroupErrands&) = delete;
  GroupErrands& operator=(const GroupErrands&) = delete;
  GroupErrands(GroupErrands&&) = delete;
  GroupErrands& operator=(GroupErrands&&) = delete;
  /// Waits for nobody: a thread that the kernel holds ends when it is let go.
  ~GroupErrands();

  /// Begins `job`; the deadline runs from here. A group has one job at a time, so that two do not find each
  /// other holding it: another one begins once that is done, and never behind one that is late.
  Done begin(std::uint32_t group, Job job) const;

 private:
  struct Errand;
  struct State;

  static void serve(const std::shared_ptr<State>& state, std::shared_ptr<Errand> errand);
  bool wait_for(const Errand& errand) const;

  const std::chrono::milliseconds deadline_;
  const std::shared_ptr<State> state_;  // outlives this where an errand does
};

}  // namespace ferry
