// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kubevirt-plugin/discovery/device_check.h"
#include "kubevirt-plugin/discovery/resource_rules.h"
#include "kubevirt-plugin/discovery/scanned_device.h"

namespace ferry::plugin {

/// Runs questions to the host about IOMMU groups with a deadline. The kernel answers some only after it has
/// reset a device that a VM closed, or after a driver has finished, and ignores signals until then. Passing
/// each question to another thread would take longer than the question. Therefore the caller's thread asks,
/// and if the kernel delays it, a watching thread reports that in its place. Safe for several threads.
class GroupErrands : Pinned {
 public:
  /// The job calls this before each step, with the step's group. False: the job is late, its remaining result
  /// is not needed, and its other groups may be in use by other jobs.
  using MayGoOn = std::function<bool(std::uint32_t group)>;
  /// The job must own all that it uses, since it may outlive this object and its caller. It must not throw.
  using Job = std::function<void(const MayGoOn& may_go_on)>;
  struct End {
    bool done = false;                    ///< the job is done; false: it is late, or never began
    std::optional<std::uint32_t> behind;  ///< if it never began: the group at which another job is late
  };
  /// Called once. The caller's thread calls it when the job is done or never began, the watching thread when
  /// the job is late.
  using Then = std::function<void(const End&)>;

  static constexpr std::chrono::milliseconds kDeadline{500};

  explicit GroupErrands(std::chrono::milliseconds deadline = kDeadline);
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

/// Asks sysfs and dev/vfio, with a few reads for each device. Safe for several threads.
class SysfsCheck final : public DeviceCheck {
 public:
  /// The most devices whose directories stay open, with at most three descriptors each.
  static constexpr std::size_t kMostKept = 64;

  /// Opens a group's node and closes it again: the kernel allows one opener. Returns 0 or an errno.
  using Opener = std::function<int(const HostFs& host, std::uint32_t group)>;
  static int open_and_close(const HostFs& host, std::uint32_t group);

  /// A question takes at most `deadline`; its work continues in the background if the host needs longer.
  SysfsCheck(const HostFs& host, const ResourceRules& rules,
             std::chrono::milliseconds deadline = GroupErrands::kDeadline, Opener opener = open_and_close);

  /// Opens each group's node for a moment, so ask only about groups that no VM is about to open. A missing
  /// permission to open it is logged once. The shared node is /dev/egmN, the extended GPU memory of a Grace
  /// host. A container gets it if it has all GPUs that the node serves and the node exists. Kata gets none,
  /// since its CDI specifications have none. ABI: NVIDIA's nvgrace-egm driver,
  /// sys/class/egm/egmN/gpu_devices.
  void ask(HandOut what, Answered answered) const override;
  std::set<std::uint32_t> open_groups(const std::set<std::uint32_t>& groups) const override;
  std::optional<std::uint32_t> group_of(std::string_view id) const override;
  std::optional<std::uint32_t> group_numbered(std::string_view id) const override;

 private:
  struct Source;
  class Inquiry;

  const std::shared_ptr<const Source> source_;
  const GroupErrands errands_;
};

}  // namespace ferry::plugin
