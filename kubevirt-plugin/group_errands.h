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

/// Runs questions to the host about IOMMU groups with a deadline. The kernel answers some only after it has
/// reset a device that a VM closed, or after a driver has finished, and ignores signals until then. Passing
/// each question to another thread would take longer than the question. Therefore the caller's thread asks,
/// and if the kernel delays it, a watching thread reports that in its place. Safe for several threads.
class GroupErrands {
 public:
  /// The job calls this before each step, with the step's group. False: the job is late, its remaining result
  /// is not needed, and its other groups may be in use by other jobs.
  using Turn = std::function<bool(std::uint32_t group)>;
  /// The job must own all that it uses, since it may outlive this object and its caller. It must not throw.
  using Job = std::function<void(const Turn& turn)>;
  struct End {
    bool done = false;                    ///< the job is done; false: it is late, or never began
    std::optional<std::uint32_t> behind;  ///< if it never began: the group at which another job is late
  };
  /// Called once. The caller's thread calls it when the job is done or never began, the watching thread when
  /// the job is late.
  using Then = std::function<void(const End&)>;

  static constexpr std::chrono::milliseconds kDeadline{500};

  explicit GroupErrands(std::chrono::milliseconds deadline = kDeadline);
  GroupErrands(const GroupErrands&) = delete;
  GroupErrands& operator=(const GroupErrands&) = delete;
  GroupErrands(GroupErrands&&) = delete;
  GroupErrands& operator=(GroupErrands&&) = delete;
  /// Every unfinished job counts as late. Does not wait for threads that the kernel delays.
  ~GroupErrands();

  /// Runs `job` on this thread. The deadline starts with the job, once for each group, but at most four
  /// times. A group has one job at a time, so that two jobs do not see each other as its user. The next job
  /// begins when that one is done, and never after a job that is late at the group. If another thread has
  /// called `then`, this may return after all other objects are gone.
  void run(const std::set<std::uint32_t>& groups, const Job& job, Then then) const;
  /// The same on a new thread. If none is available, the job counts as late.
  void begin(std::set<std::uint32_t> groups, Job job, Then then) const;

 private:
  struct State;

  static void run(const std::shared_ptr<State>& state, const std::set<std::uint32_t>& groups, const Job& job,
                  Then then);
  static void watch(State& state);

  const std::shared_ptr<State> state_;  // outlives this object during a job
  std::thread watcher_;
};

}  // namespace ferry
