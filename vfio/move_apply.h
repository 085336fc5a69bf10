// SPDX-License-Identifier: Apache-2.0
// Applies plans: scan, record, write, verify, and roll back if a step fails.
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
  back,     ///< unbind: to the driver that each function had before
};

/// The means to change drivers. A caller of apply_moves() holds the node's lock (common/node_lock.h).
struct MoveContext {
  HostFs* host = nullptr;
  HostWriter* writer = nullptr;
  UseProbe* probe = nullptr;
  AcceleratorRules rules;
  /// Reports progress before each write, from one thread at a time; may be empty.
  std::function<void(const Step&)> on_step;
  DriverLock* driver_lock = nullptr;         ///< nullptr: no driver of this host has a lock against unbinding
  Releaser* releaser = nullptr;              ///< nullptr: no service is stopped, despite MoveRequest::release
  PersistenceSwitch* persistence = nullptr;  ///< nullptr: nvidia-persistenced gives up all GPUs or none
  /// Called behind the fence of a bind: returns the devices that must stay, like MoveRequest::untouchable.
  /// That list may be outdated by then, since no lock of Ferry keeps vGPUs from being created. Empty: only
  /// that list counts.
  std::function<Result<std::map<PciAddress, std::string>>(const Inventory&)> must_stay = {};
};

struct MovePreview {
  MovePlan plan;
  std::vector<std::string> notes;  ///< questions without an answer, void records
};

/// The result for one unit.
struct MoveResult {
  enum class Status {
    done,     ///< applied and verified
    already,  ///< nothing to do
    refused,  ///< nothing was written: see `refusal`
    failed,   ///< see `error`, which also says how far the writes were rolled back
  };
  Status status = Status::failed;
  std::vector<PciAddress> devices;  ///< the accelerators of the request
  Move move;                        ///< as planned; empty when refused
  Refusal refusal;
  std::optional<Error> error;
};

struct MoveOutcome {
  std::vector<MoveResult> results;
  std::vector<std::string> notes;
  std::vector<Error> errors = {};  ///< of no unit: a service that does not start again
  /// Time of the units, from the first record to the last verification. All scans come before.
  std::chrono::nanoseconds applied{};
};

/// Plans and writes nothing. Errors: the host cannot be scanned; a bind finds no IOMMU (Errc::unsupported);
/// an accelerator of `by_name` is gone (Errc::not_found); the records cannot be listed; no probe for device
/// users works.
Result<MovePreview> preview_moves(const MoveContext& context, const MoveRequest& request,
                                  Direction direction);

/// Applies the plan: quiesces services and modules, loads drivers' modules, closes fences, looks for device
/// users again, then changes the units side by side. A failed unit does not stop the others. A write that
/// does not return ends its own unit only, as `failed` with Errc::stuck: nothing more is written there, not
/// even a roll back. Everything quiesced resumes in any case, also that of a killed run. Errors as
/// preview_moves().
Result<MoveOutcome> apply_moves(const MoveContext& context, const MoveRequest& request, Direction direction);

/// Cleans up after a killed run when no driver is to change: starts stopped services and releases drivers'
/// locks. `results` is empty. Errors as read_service_record().
Result<MoveOutcome> start_what_was_stopped(const MoveContext& context);

}  // namespace ferry
