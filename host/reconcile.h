// SPDX-License-Identifier: Apache-2.0
// The decisions of hostd: from a snapshot of all known facts to the action that is due, the conditions of the
// GPUs, and the time of the next round. Pure. State between two rounds is on the host or in its files, so
// that hostd continues after a crash at any point. The snapshot has the rest (keeper_memory.h).
//
// A round has several stages, each with a reconcile of its own. Each stage needs facts that exist only after
// the action of the stage before it. First the devices that will change are published as unavailable, and the
// plugin is observed. Then the policy is applied, and the host is scanned again. NodeKeeper reads the facts
// and performs the actions.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/advertised_resources.h"
#include "api/host_status.h"
#include "common/result.h"
#include "host/claims/gpu_allocation.h"
#include "host/gpu_conditions.h"
#include "host/keeper_memory.h"
#include "host/node_apply.h"
#include "policy/gpu_selection.h"
#include "policy/policy.h"
#include "vfio/pci/pci_address.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// The back-off after a failure doubles from the first pause to the longest.
inline constexpr std::chrono::seconds kFirstPause{10};
inline constexpr std::chrono::seconds kLongestPause{300};
/// The time until a policy file that is being written is read again.
inline constexpr std::chrono::seconds kRereadPause{1};
/// Plans in a row that may follow each other without a pause while other programs change the host.
inline constexpr unsigned kMostReplans = 10;
/// The time to the next round while the allocation of a GPU waits for the plugin.
inline constexpr std::chrono::seconds kPluginPollPause{1};

// The beginning of a round: it may end at once.

struct BeginSnapshot {
  std::string summary;             ///< text of the desired state; another text is another desired state
  bool may_be_incomplete = false;  ///< DesiredState::may_be_incomplete
  bool process_ended = false;      ///< a process that used a blocked GPU has ended
  /// Devices that the plugin has allocated, read during a back-off. Absent: they cannot be read.
  std::optional<std::set<std::string>> allocated = {};
  AttemptMemory memory = {};
  Moment now = {};
};

struct BeginResult {
  enum class Kind {
    goes_on,
    rereads,   ///< the policy file may be incomplete: the desired state stays as it was
    backs_off  ///< the back-off after a failure is not over
  };
  Kind kind = Kind::goes_on;
  bool is_news = false;  ///< the desired state differs from that of the last round
  Round round = {};      ///< the round's result, unless it goes on
  AttemptMemory memory = {};
};

/// After a failed attempt, events are ignored until the back-off ends: the attempt itself probably caused
/// them. Only a new desired state ends the back-off early, or the end of a pod or process that used a device.
BeginResult begin_round(const BeginSnapshot& snapshot);

// The stages of a round that goes on.

enum class Stage {
  idle,       ///< there is no desired state
  failed,     ///< `obstacle` keeps the change from beginning
  planned,    ///< the change is planned, and nothing is published or written to the host
  published,  ///< the unavailable devices are published, and the plugin was observed after that
  checked,    ///< `pods` has the users of devices that the plugin still lists
  attempted,  ///< apply_policy() has returned
  finished,   ///< no write to the host follows in this round; `node` is the last scan
};

/// The plugin's answer about unavailable devices.
struct PluginSnapshot {
  bool runs = false;                                   ///< also if that is not known
  api::AdvertisedResources listed = {};                ///< at the time of the plan
  std::optional<std::uint64_t> state_generation = {};  ///< of the present lists; absent: they cannot be read
};

/// An error that keeps a change from beginning.
struct Obstacle {
  Error error = {};
  /// The present unavailable devices become available: there is no desired state, or it asks for the
  /// impossible. Otherwise they stay, so that no new pod gets these devices while no better list is known.
  bool ends_unavailability = false;
  bool of_the_lock = false;  ///< the node's lock could not be taken
};

/// The snapshot for a reconcile.
struct RoundSnapshot {
  Stage stage = Stage::idle;
  std::optional<api::DesiredMark> desired = {};  ///< absent: there is no desired state, or it is unreadable
  ScannedNode node = {};
  bool is_scanned = true;                               ///< false: of Stage::failed, `node` is unknown
  std::map<vfio::PciAddress, policy::Mode> modes = {};  ///< the desired ones of `node`
  policy::ModelNames models = {};
  Allocations allocations = {};                          ///< by the facts at the beginning of the round
  Obstacle obstacle = {};                                ///< of Stage::failed
  std::vector<api::UnavailableDevice> unavailable = {};  ///< of Stage::failed: the present ones
  NodePreview plan = {};
  /// The GPUs by the plan, with their users if the plan writes. After an attempt: by its outcome.
  GpuConditions conditions = {};
  /// A killed run left stopped services or driver locks; only needed if the plan writes nothing.
  bool leftovers = false;
  PluginSnapshot plugin = {};
  /// Users of the GPUs that change and that the plugin still lists. It has read the unavailable devices, so
  /// each such device has been allocated to a pod.
  std::map<vfio::PciAddress, std::vector<vfio::DeviceUser>> pods = {};
  std::optional<NodeOutcome> outcome = {};  ///< of the attempt; absent: it could not begin
  std::optional<Error> error = {};          ///< of the attempt, or of the roll back of a killed run
  bool in_vain = false;                     ///< the attempt has not led to the desired state
  /// In Stage::finished: `node` has other GPUs or drivers than the plan knew (is_outdated()). The plan and
  /// the attempt then prove nothing, and the next round plans again at once.
  bool is_outdated = false;
  std::optional<Error> gone_gpus = {};  ///< GPUs of the policy's numbers that are gone (NumberedPolicy::gone)
  /// A second plan after the attempt still writes; absent: there is none yet.
  std::optional<bool> still_writes = {};
  /// The end of each of Round::processes will be reported; absent: nothing watches for them yet.
  std::optional<bool> ends_are_reported = {};
  std::chrono::seconds plugin_patience{30};
  KeeperMemory memory = {};
  Moment now = {};
};

enum class Action {
  end,             ///< the status is published, and the round ends
  observe_plugin,  ///< the status is published, and the plugin is observed again: Stage::published
  find_pods,       ///< RoundSnapshot::pods are found: Stage::checked
  roll_back,       ///< services resume and locks are freed after a killed run: Stage::finished
  apply,           ///< the status is published, and the policy is applied: Stage::attempted
  plan_again,      ///< RoundSnapshot::still_writes is found: Stage::attempted
  scan_result,     ///< the host is scanned: Stage::finished
  watch_ends,      ///< RoundSnapshot::ends_are_reported is found: Stage::finished
};

struct ReconcileResult {
  Action action = Action::end;
  /// It is published before the action; absent: the present one stays.
  std::optional<api::HostStatus> status = {};
  std::set<std::string> asked = {};  ///< devices that the plugin must make unavailable before the change
  GpuConditions conditions = {};     ///< for the next stage
  std::optional<Error> error = {};   ///< of Stage::attempted, for the next stage
  bool in_vain = false;              ///< of Stage::attempted, for the next stage
  Round round = {};                  ///< with Action::end; Round::again is the time of the next reconcile
  AttemptMemory memory = {};         ///< for the next snapshot
};

/// In Stage::failed, HostStatus::accelerators stay as last published if the host cannot be scanned. All
/// statuses lack the facts that StatusFile adds.
ReconcileResult reconcile(const RoundSnapshot& snapshot);

}  // namespace ferry::host
