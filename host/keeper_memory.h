// SPDX-License-Identifier: Apache-2.0
// The memory of hostd from one round to the next. Most state is on the host and in its files, which outlive
// hostd. The memory holds facts that neither can show, above all times. It is a part of the snapshot
// (reconcile.h). A hostd that restarts begins with an empty memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/host_status.h"
#include "common/exit_status.h"
#include "common/result.h"
#include "host/claims/gpu_allocation.h"
#include "host/sanitize/gpu_history.h"
#include "mdev/gpu_management.h"
#include "policy/policy.h"
#include "vfio/pci/pci_address.h"
#include "vfio/registers/register_facts.h"
#include "vfio/use_probe.h"

namespace ferry::host {

using Moment = std::chrono::steady_clock::time_point;

/// The result of a round for the loop around it.
struct Round {
  api::NodePhase phase = api::NodePhase::idle;
  ExitStatus status = ExitStatus::done;            ///< the status that `ferry apply` would exit with
  bool unfinished = false;                         ///< the next round says how it ends
  std::optional<Moment> again = {};                ///< time of the next round without an event
  std::set<int> processes = {};                    ///< the users of blocked GPUs
  std::optional<std::filesystem::path> file = {};  ///< the policy file that desired.json names
};

/// The last status.json of this hostd. Needed to write the file only after a change, to report accelerators
/// while the host cannot be scanned, and to see which status the plugin has answered. Lost at a restart: the
/// file is written once more. Its generation and unavailable devices are read from the file of the earlier
/// hostd.
struct StatusMemory {
  std::optional<api::HostStatus> published;  ///< absent: this hostd has written none yet
  std::uint64_t generation = 0;              ///< of the last file
  std::uint64_t unavailable_since = 0;       ///< generation that first had the present unavailable devices
};

/// The last serving.json that could be read. Needed because the last order stands while the file is
/// unreadable. Lost at a restart: the order is read from the status.json of the earlier hostd, and an
/// unreadable file is logged once more.
struct ServingMemory {
  std::string standby;  ///< api::HostStatus::standby
  std::string fault;    ///< why serving.json could not be read last; logged once
};

/// The users of vGPUs. Needed because not every round scans for them. Lost at a restart: they
/// are absent in status.json until the first look.
struct VgpuUseMemory {
  std::vector<vfio::UseQuestion> questions;                     ///< about the vGPUs of the last scan
  std::map<std::string, std::vector<api::ReportedUser>> users;  ///< by vGPU, of the last look
};

/// The attempts to reach the desired state. Needed for the plugin's time limit, and because events after a
/// failed attempt are probably its own. Lost at a restart: the plugin gets the whole time again, and a failed
/// attempt is repeated at once, after which the first back-off follows.
struct AttemptMemory {
  std::optional<std::string> summary;    ///< of the desired state of the last round; absent: the first round
  std::optional<Moment> asked_at;        ///< time of the request to the plugin, until it answers
  unsigned failures = 0;                 ///< in a row
  unsigned replans = 0;                  ///< in a row: plans that another program's change outdated
  std::optional<Moment> back_off_until;  ///< absent: each event leads to an attempt
  std::set<std::string> allocated;       ///< by the plugin, at the last round of the back-off
  Round last;                            ///< repeated during the back-off
};

/// The last answer of the driver's library about a GPU. Needed since asking takes seconds, and a GPU without
/// an answer would be asked about in each round. Lost at a restart: the library is asked again.
struct LibraryAnswer {
  Result<mdev::ManagedGpu> said;
  Moment again;  ///< the GPU is not asked about before
};

/// A change of a GPU's virtual functions that has failed. Needed since a try takes a minute, and the driver's
/// tool unbinds the GPU meanwhile. Lost at a restart: it is tried again at once.
struct FunctionsTry {
  Moment first;
  Moment again;  ///< it is not tried before; Moment::max(): not again until the GPU has changed
  std::string reason;
  unsigned failures = 0;  ///< other than refusals, which change nothing
};

/// The GPUs of DRA. Needed to report them while the policy cannot be read, and for the plugin's time limit.
/// Lost at a restart: the GPUs are decided in the first round, from kClaimableGpusFile, and the plugin gets
/// the whole time again.
struct AllocationMemory {
  Allocations last;                ///< of the last round
  bool is_known = false;           ///< `last` is of a round of this hostd
  std::optional<Moment> asked_at;  ///< when GPUs for DRA first became unavailable, until the plugin answers
  /// The GPUs of gpus_without_placements() and of gpus_with_instances(). The facts of all others are in
  /// kClaimableGpusFile.
  std::map<vfio::PciAddress, LibraryAnswer> placements_of;
  /// When the GPUs of gpus_without_types() were first seen so. Lost at a restart: the first pause is short
  /// again.
  std::map<vfio::PciAddress, Moment> without_types_since;
  std::map<vfio::PciAddress, FunctionsTry> functions;
};

/// The registers of accelerators. Needed because each reading wakes them, and a function that is in use
/// cannot be read. A restarted hostd takes them from the status.
struct RegisterMemory {
  struct Entry {
    Moment read;  ///< the last reading, also one without facts
    api::ReportedRegisters registers;
  };
  std::map<vfio::PciAddress, Entry> entries;
  /// Since undo_mode_change() had the host's lock: it tries again then, or once the devices that it has left
  /// change.
  std::optional<Moment> undo_again;
  unsigned undos = 0;  ///< that have left the same devices, one after the other
  std::map<vfio::PciAddress, std::pair<std::uint64_t, bool>> not_undone;  ///< binding, is open
  bool saw_mode_change = false;  ///< a change of modes was recorded at the last look
};

/// The GPUs that hostd sanitizes. Needed for each status that is published before the look of its round. A
/// restarted hostd takes them from its record.
struct SanitizeMemory {
  std::optional<policy::Sanitize> policy;       ///< absent: no policy was read, nor the record
  std::map<vfio::PciAddress, GpuHistory> gpus;  ///< without their events
  /// GPUs that a program had open when they were to be reset. They are not tried again before.
  std::map<vfio::PciAddress, Moment> not_before;
  std::optional<Moment> again;                ///< time of the next look without an event
  std::optional<vfio::WantedMode> mode = {};  ///< the desired confidential mode; absent: it stays
  /// A try to give a GPU this mode. It is not tried again before `again` under the same binding.
  struct ModeTry {
    std::uint64_t binding = 0;
    Moment again;
  };
  std::map<vfio::PciAddress, ModeTry> mode_tried = {};
  bool changes_mode = false;  ///< one such try runs
  std::string fault = {};     ///< why the record could not be read last; logged once
};

/// Without the events. With the policy off no GPU counts.
void remember(const GpuHistories& histories, SanitizeMemory& memory);

struct KeeperMemory {
  StatusMemory status;
  ServingMemory serving;
  VgpuUseMemory vgpu_use;
  AttemptMemory attempt;
  AllocationMemory allocation;
  RegisterMemory registers;
  SanitizeMemory sanitize;
  std::string fault_of_records = {};  ///< why the last round could not clear ended records; logged once
};

}  // namespace ferry::host
