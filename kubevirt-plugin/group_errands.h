// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>

namespace ferry {

/// What is asked of the host about IOMMU groups. The kernel answers some of it only once it has reset what a
/// VM has let go of, or a driver is done, and is deaf to signals until then; yet nobody is to wait for longer
/// than a deadline. To have another thread ask takes longer than all that is asked: so who asks does it
/// itself, and when the kernel holds it up, a thread that watches says so in its place. Safe for several
/// threads.
class GroupErrands {
 public:
  /// To be called before each step, with the group that it is about. False: it is late, nobody waits for the
  /// rest, and the other groups are others' already.
  using Turn = std::function<bool(std::uint32_t group)>;
  /// Must own all that it works with, since it may outlive this and who began it; and not throw.
  using Job = std::function<void(const Turn& turn)>;
  struct End {
    bool done = false;                    ///< the job is; false: it is late, or never began
    std::optional<std::uint32_t> behind;  ///< never began: another one, late, is at this group
  };
  /// Called once: by the caller's thread when the job is done, or never began; by that which watches when it
  /// is late.
  using Then = std::function<void(const End&)>;

  static constexpr std::chrono::milliseconds kDeadline{500};

  explicit GroupErrands(std::chrono::milliseconds deadline = kDeadline);
  GroupErrands(const GroupErrands&) = delete;
  GroupErrands& operator=(const GroupErrands&) = delete;
  GroupErrands(GroupErrands&&) = delete;
  GroupErrands& operator=(GroupErrands&&) = delete;
  /// What is not done by now is late. Waits for nobody whom the kernel holds: such a thread is on its own.
  ~GroupErrands();

  /// Does `job` on this thread. From its beginning the deadline runs, for each group one, but four at most in
  /// all. A group has one job at a time, so that two do not find each other holding it: another one begins
  /// once that is done, and never behind one that is late at it. Where `then` has been called by another
  /// thread, this may come back when all else is gone.
  void run(const std::set<std::uint32_t>& groups, const Job& job, Then then) const;
  /// The same on a thread of its own. Where there is none to be had, it is late.
  void begin(std::set<std::uint32_t> groups, Job job, Then then) const;

 private:
  struct State;

  static void run(const std::shared_ptr<State>& state, const std::set<std::uint32_t>& groups, const Job& job,
                  Then then);
  static void watch(State& state);

  const std::shared_ptr<State> state_;  // outlives this where an errand does
  std::thread watcher_;
};

}  // namespace ferry
