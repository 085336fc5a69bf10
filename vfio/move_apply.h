// SPDX-License-Identifier: Apache-2.0
// Carries move plans out: look, record, write, read back, and the way back when something fails.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "vfio/fence.h"
#include "vfio/move_plan.h"
#include "vfio/release.h"
#include "vfio/use_probe.h"

namespace ferry {

enum class Direction {
  to_vfio,  ///< bind: to the vfio driver that fits
  back,     ///< unbind: to what each function had before
};

/// What moving needs. The caller holds the node's lock (common/node_lock.h) for apply_moves().
struct MoveContext {
  HostFs* host = nullptr;
  HostWriter* writer = nullptr;
  UseProbe* probe = nullptr;
  AcceleratorRules rules;
  /// Called before each write, for progress, by one thread at a time; may be empty.
  std::function<void(const Step&)> on_step;
  DriverLock* driver_lock = nullptr;  ///< nullptr: no driver of this host has a lock against unbinding
  Releaser* releaser = nullptr;       ///< nullptr: no service is stopped, whatever MoveRequest::release says
  PersistenceSwitch* persistence = nullptr;  ///< nullptr: nvidia-persistenced lets go of all GPUs or none
  /// Behind the fence, before anything goes to vfio: what must stay, as MoveRequest::untouchable, which may
  /// be long out of date by then: no lock of ours keeps vGPUs from being made. Empty: nothing but that.
  std::function<Result<std::map<PciAddress, std::string>>(const Inventory&)> must_stay = {};
};

struct MovePreview {
  MovePlan plan;
  std::vector<std::string> notes;  ///< what could not be asked, void records
};

/// What became of one unit.
struct MoveResult {
  enum class Status {
    done,     ///< moved and read back
    already,  ///< nothing was to do
    refused,  ///< nothing was written: see `refusal`
    failed,   ///< something failed: see `error`; what had been written was taken back as far as `error` says
  };
  Status status = Status::failed;
  std::vector<PciAddress> devices;  ///< the accelerators asked for
  Move move;                        ///< as planned; empty when refused
  Refusal refusal;
  std::optional<Error> error;
};

struct MoveOutcome {
  std::vector<MoveResult> results;
  std::vector<std::string> notes;
  std::vector<Error> errors = {};  ///< of no unit: a service that does not start again
  /// How long the units took, from the first record to the last one read back. All looks come before.
  std::chrono::nanoseconds applied{};
};

/// The plan as it stands now; writes nothing. Errors: the host cannot be scanned or has no IOMMU
/// (Errc::unsupported), an accelerator that is asked for by name is gone (Errc::not_found), the records
/// cannot be listed, nobody could be asked who uses the devices.
Result<MovePreview> preview_moves(const MoveContext& context, const MoveRequest& request,
                                  Direction direction);

/// Does it: holders on the release list let go, modules, fences, one more look at the users, then the units
/// side by side. One unit's failure never stops another's, and a write that the kernel keeps ends its own
/// unit alone, as `failed` with Errc::stuck: nothing more is written there, not even the way back. Who has
/// let go takes hold again in any case, also after a run that was killed. Errors as for preview_moves().
Result<MoveOutcome> apply_moves(const MoveContext& context, const MoveRequest& request, Direction direction);

/// Only what a killed run has left, where nothing is to move: what was stopped is started, drivers' locks are
/// given back. `results` is empty.
/// Errors as read_service_record().
Result<MoveOutcome> start_what_was_stopped(const MoveContext& context);

}  // namespace ferry
