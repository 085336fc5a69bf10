// SPDX-License-Identifier: Apache-2.0
// Makes a host agree with a profile: plan from a scan, write, verify with another scan, roll back on failure.
//
// GPUs are independent and change in parallel: a failure on one is rolled back there and does not stop the
// others. After a kill at any point, the next call starts from a new scan. The caller holds the node's file
// lock (hostfs/locks.h).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/exit_status.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "mdev/gpu_management.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/pci/inventory.h"
#include "vfio/quiesce/release.h"
#include "vfio/use_probe.h"
#include "vgpu-dm/plan/addition.h"
#include "vgpu-dm/plan/plan.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::vgpu {

struct VgpuHost {
  HostFs& host;
  HostWriter& writer;
  vfio::UseProbe& uses;
  vfio::AcceleratorRules rules;
  std::string node;  ///< node_identity(), or a name from the caller
  std::chrono::milliseconds deadline = kWriteDeadline;
  /// Waits before it looks again for an effect that a driver has not shown yet, and between tries of the
  /// driver's tool. Called by several threads.
  std::function<void(std::chrono::milliseconds)> pause = [](auto time) { std::this_thread::sleep_for(time); };
  mdev::GpuManagement* management = nullptr;        ///< nullptr: MIG mode and mixed sizes stay as they are
  std::set<std::string> release = {};               ///< device users that may be quiesced (release_list())
  vfio::ServiceManager* service_manager = nullptr;  ///< see RebindContext, also for `persistence`
  vfio::PersistenceSwitch* persistence = nullptr;
  std::function<void(const vfio::Step&)> on_release =
      {};  ///< called before each quiesce and resume; may be empty
  /// Quiesced device users stay quiesced and recorded for binds that follow. These binds resume them, or
  /// start_what_was_stopped() does.
  bool more_follows = false;
  /// If true, a vGPU that the profile does not ask for stays if its UUID, or the undo journal for a whole
  /// virtual function, shows that Ferry did not make it, and the GPU is refused. If false, it is removed with
  /// a note. vGPUs of vendor-specific VFIO show no maker and are removed.
  bool spares_foreign = false;
};

/// The functions of these GPUs that the undo journal has, and that are gone: a run was killed after it had
/// disabled them. apply_profile() and remove_vgpus() forget them. Errors as vfio::read_undo_journal().
Result<std::vector<vfio::PciAddress>> recorded_functions_gone(const HostFs& host,
                                                              const mdev::VgpuInventory& vgpus);

/// Scans the host and probes the users of its vGPUs. Reads only. The driver's library is asked about each GPU
/// that a plan for one of these profiles needs it for. `scanned`: the PCI functions of the present host, if
/// the caller has just scanned them; nullptr: they are scanned here.
Result<VgpuSnapshot> look(const VgpuHost& on, std::span<const Profile> profiles = {},
                          const vfio::Inventory* scanned = nullptr);

/// State of a GPU before the first write to it, and changes since that a rollback must know.
struct GpuBefore {
  mdev::VgpuGpu gpu = {};
  std::optional<mdev::ManagedGpu> managed = {};  ///< the library's answer; absent: none
  bool prepared = false;                         ///< functions or modes were changed, not only vGPUs
  bool functions_are_ours = false;               ///< Ferry was the last to switch its functions on
  /// Parameters of whole virtual functions that were set since. They outlast the vGPU.
  std::map<mdev::VgpuId, std::string> params = {};
};

struct GpuOutcome {
  enum class Kind {
    unmanaged,  ///< no item matches it
    already_so,
    changed,
    refused,  ///< nothing was written, or put_back() has undone all of it
    failed,   ///< a quiesce or a write failed; rolled back but for undo_errors
  };
  unsigned index = 0;
  vfio::PciAddress gpu;
  Kind kind = Kind::unmanaged;
  std::set<vfio::Releasable> released = {};  ///< device users quiesced for it
  std::vector<VgpuStep> done = {};           ///< successful writes in order, without those of the rollback
  std::optional<Error> error = {};           ///< set if refused or failed
  std::vector<std::string> reasons = {};     ///< set if refused, as GpuPlan::reasons
  std::vector<Error> undo_errors = {};       ///< errors of the rollback
  std::vector<std::string> notes = {};
  std::optional<GpuBefore> before = {};  ///< set if changed, for put_back()
};
std::string_view text(GpuOutcome::Kind kind);

struct VgpuOutcome {
  std::vector<GpuOutcome> gpus;
  std::vector<std::string> notes;
  std::vector<Error> errors = {};  ///< tied to no GPU: a service that does not start again
  /// Time in which the GPUs changed in parallel, from the first write to the last verification. The scans
  /// before it are not counted.
  std::chrono::nanoseconds applied{};
  bool wrote() const;         ///< true if any write succeeded
  ExitStatus status() const;  ///< the worst of all GPUs; `refused` for every kind of refusal
};

/// Called after each write with its result, for logs and progress. Calls come from one thread at a time, in
/// the order of each GPU's own steps.
using StepObserver = std::function<void(const VgpuStep&, const Result<>&)>;

/// Resumes quiesced device users in any case, also those of an earlier run that was killed. `scanned` as for
/// look(). vGPUs are read again before a write; PCI facts stay those of `scanned`, except before virtual
/// functions are switched. Errors: the scan or the use probe failed, and
/// nothing was written; or those of read_service_record().
Result<VgpuOutcome> apply_profile(const VgpuHost& on, const Profile& profile,
                                  const StepObserver& observe = {}, const vfio::Inventory* scanned = nullptr);
Result<VgpuOutcome> remove_vgpus(const VgpuHost& on, const Removal& removal,
                                 const StepObserver& observe = {});
/// Makes a single vGPU. `scanned` and errors as for apply_profile().
Result<VgpuOutcome> add_vgpu(const VgpuHost& on, const Addition& addition, const StepObserver& observe = {},
                             const vfio::Inventory* scanned = nullptr);
/// Gives a GPU its virtual functions again, once it is back on its driver. Errors as for apply_profile().
Result<VgpuOutcome> enable_functions_again(const VgpuHost& on, const FunctionsAgain& functions,
                                           const StepObserver& observe = {});

/// Undoes the changes of apply_profile(profile) that `changed` lists, whatever state the GPU is in now: a
/// rollback for a failure that comes later. Previous vGPUs are made again under their UUIDs, and a vGPU in
/// use stays. Returns an error for each part that could not be restored; empty: the GPU is as before.
std::vector<Error> put_back(const VgpuHost& on, const Profile& profile, const GpuOutcome& changed,
                            const StepObserver& observe = {});

}  // namespace ferry::vgpu
