// SPDX-License-Identifier: Apache-2.0
// Makes a host agree: plan from a scan, write, verify by another scan; on any failure back to the state
// before.
//
// GPUs are independent and go side by side: what fails on one is undone there and does not keep the others.
// Killed anywhere, the
// next call starts from what it finds. The caller holds the node's lock (common/node_lock.h).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/exit_status.h"
#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "mdev/gpu_management.h"
#include "vfio/inventory.h"
#include "vfio/move_plan.h"
#include "vfio/release.h"
#include "vfio/use_probe.h"
#include "vgpu-dm/plan.h"
#include "vgpu-dm/profile.h"

namespace ferry {

struct VgpuHost {
  HostFs& host;
  HostWriter& writer;
  UseProbe& uses;
  AcceleratorRules rules;
  std::string node;  ///< node_identity(), or a name that is given
  std::chrono::milliseconds deadline = kWriteDeadline;
  /// Between looks for what a driver has answered and not yet done, and between tries of its tool. For
  /// several threads.
  std::function<void(std::chrono::milliseconds)> pause = [](auto time) { std::this_thread::sleep_for(time); };
  GpuManagement* management = nullptr;  ///< nullptr: MIG and mixed sizes are as they are
  std::set<std::string> release = {};   ///< who may be asked to let go of GPUs (release_list())
  Releaser* releaser = nullptr;         ///< as in MoveContext, and the next one
  PersistenceSwitch* persistence = nullptr;
  std::function<void(const Step&)> on_release = {};  ///< before each order to let go or take hold; or empty
  /// Who has let go stays so, recorded, for moves that follow: theirs is to start them, or
  /// start_what_was_stopped().
  bool more_follows = false;
  /// What a profile does not ask for stays where the UUID shows that Ferry has not made it, and the GPU is
  /// refused; otherwise it goes too, and a note says so. vGPUs of vendor-specific VFIO have no UUID, and go.
  bool spares_foreign = false;
};

/// Scans, and asks who uses the vGPUs there are. Reads only.
Result<VgpuView> look(const VgpuHost& on);
/// Asks the driver's library too, about GPUs that one of these profiles cannot be planned for without.
Result<VgpuView> look(const VgpuHost& on, std::span<const Profile> profiles);

/// What a GPU was before the first write to it.
struct GpuBefore {
  VgpuGpu gpu;
  std::optional<ManagedGpu> managed;  ///< what the library said of it; absent: it was not asked
  bool prepared = false;              ///< something but vGPUs was changed since
  bool functions_are_ours = false;    ///< its virtual functions have been switched on since
};

struct GpuOutcome {
  enum class Kind {
    left_alone,  ///< no item matches it
    already_so,
    changed,
    refused,  ///< nothing was written, or all of it was taken back (put_back())
    failed,   ///< something was written; back to the state before unless undo_errors says otherwise
  };
  unsigned index = 0;
  PciAddress gpu;
  Kind kind = Kind::left_alone;
  std::set<Releasable> released;     ///< who let go of it
  std::vector<VgpuStep> done;        ///< writes that succeeded, in order; without those of the undo
  std::optional<Error> error;        ///< of refused and failed
  std::vector<std::string> reasons;  ///< of refused, as GpuPlan::reasons
  std::vector<Error> undo_errors;    ///< what could not be put back
  std::vector<std::string> notes;
  std::optional<GpuBefore> before;  ///< of changed: for put_back()
};
std::string_view text(GpuOutcome::Kind kind);

struct VgpuOutcome {
  std::vector<GpuOutcome> gpus;
  std::vector<std::string> notes;
  std::vector<Error> errors = {};  ///< of no GPU: a service that does not start again
  /// How long the GPUs took, side by side, from the first write to the last one read back. The looks come
  /// before.
  std::chrono::nanoseconds applied{};
  bool wrote() const;         ///< whether any write succeeded
  ExitStatus status() const;  ///< the worst of all; `refused` for whatever reason a GPU is
};

/// Called after each write with its result, in the order of each GPU's own, by one thread at a time: for logs
/// and progress.
using StepObserver = std::function<void(const VgpuStep&, const Result<>&)>;

/// Who has let go of GPUs takes hold again in any case, also after a run that was killed. Errors: the scan or
/// the probe failed, and nothing was written; those of read_service_record().
Result<VgpuOutcome> apply_profile(const VgpuHost& on, const Profile& profile,
                                  const StepObserver& observe = {});
Result<VgpuOutcome> remove_vgpus(const VgpuHost& on, const Removal& removal,
                                 const StepObserver& observe = {});

/// Takes back what `changed` says that apply_profile(profile) has changed on a GPU, whatever it is now: the
/// undo of a failure, for one that comes later. The vGPUs that it had come again under their UUIDs; none goes
/// that a VM has. What could not be put back; empty: all is as it was.
std::vector<Error> put_back(const VgpuHost& on, const Profile& profile, const GpuOutcome& changed,
                            const StepObserver& observe = {});

}  // namespace ferry
