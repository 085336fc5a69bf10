// SPDX-License-Identifier: Apache-2.0
// Applies plans: scan, record, write, verify, and roll back if a step fails.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/bind/fence.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/pci/inventory.h"

namespace ferry::vfio {

enum class Direction {
  to_vfio,  ///< bind: to the vfio driver that fits
  back,     ///< unbind: to the driver that each function had before
};

struct RebindPreview {
  RebindPlan plan;
  std::vector<std::string> notes;  ///< questions without an answer, void records
};

struct RebindResult {
  enum class Status {
    done,     ///< applied and verified
    already,  ///< nothing to do
    refused,  ///< nothing was written: see `refusal`
    failed,   ///< see `error`, which also says how far the writes were rolled back
  };
  Status status = Status::failed;
  std::vector<PciAddress> devices = {};  ///< the accelerators of the request
  Rebind rebind = {};                    ///< as planned; empty when refused
  Refusal refusal = {};
  std::optional<Error> error = {};

  /// Errors: Errc::refused with all reasons; `error`.
  Result<> check() const;
};

struct RebindOutcome {
  std::vector<RebindResult> results;
  std::vector<std::string> notes;
  std::vector<Error> errors = {};  ///< of no unit: a service that does not start again
  /// Time of the units, from the first record to the last verification. All scans come before.
  std::chrono::nanoseconds applied{};

  /// The result of the accelerator's unit; nullptr: there is none.
  const RebindResult* find(const PciAddress& accelerator) const;
};

/// Plans and writes nothing. `scanned`: the present host, if the caller has just scanned it; nullptr: it is
/// scanned here. Errors: the host cannot be scanned; an accelerator of `by_name` is gone (Errc::not_found);
/// the records cannot be listed; no probe for device users works.
Result<RebindPreview> preview_rebinds(const RebindContext& context, const RebindRequest& request,
                                      Direction direction, const Inventory* scanned = nullptr);

/// Applies the plan: quiesces services and modules, loads drivers' modules, closes fences, looks for device
/// users again, then changes the units side by side. A failed unit does not stop the others. A write that
/// does not return ends its own unit only, as `failed` with Errc::stuck: nothing more is written there, not
/// even a roll back. Everything quiesced resumes in any case, also that of a killed run. `scanned` is as for
/// preview_rebinds(); behind the fences the host is scanned in any case. A unit is refused if a function that
/// it unbinds got its driver only after the first plan, since no fence covers that function. Errors as
/// preview_rebinds().
Result<RebindOutcome> apply_rebinds(const RebindContext& context, const RebindRequest& request,
                                    Direction direction, const Inventory* scanned = nullptr);

/// apply_rebinds() for a caller that stops and starts services itself: no service or module is quiesced, as
/// with an empty `request.release`, and none is started. Several threads may call it for different groups.
Result<RebindOutcome> apply_rebinds_only(const RebindContext& context, RebindRequest request,
                                         Direction direction);

/// Cleans up after a killed run when no driver is to change: starts stopped services and releases drivers'
/// locks. `results` is empty. Errors as read_service_record().
Result<RebindOutcome> start_what_was_stopped(const RebindContext& context);

// Applies the plan of one unit: record, write, verify, and roll back if a step fails. Several units may
// change side by side, each in a thread of its own.

/// Reports one step to `context.on_step` and writes it. The error code is the kernel's errno. Errc::stuck
/// also for a module whose earlier load has not returned, without another try. Steps of services are skipped.
Result<> perform(const RebindContext& context, const Step& step);

struct Applied {
  Result<> done;
  /// A write of the change or of its roll back has not returned. Whatever the error says, nothing more may be
  /// written to the unit.
  bool hangs = false;
};

/// Applies `rebind`, planned from `before`. After an error of a bind, the writes are rolled back as far as
/// the error says. An unbind tries the steps of every function, and a function that the host's driver does
/// not take stays on vfio. Errc::stuck: nothing more is written to this unit, not even a roll back. Sets
/// `driver_after` of each member whose driver the kernel chose.
Applied apply_unit(const RebindContext& context, const Inventory& before, Rebind& rebind,
                   Direction direction);

}  // namespace ferry::vfio
