// SPDX-License-Identifier: Apache-2.0
// The reconciler of a node: one round reads the desired state (wanted_file.h) and writes the host status
// (state_file.h).
//
// Before a change, devices that will change are published as withdrawn. hostd writes nothing to the host
// before the device plugin has confirmed exactly this list in offered.json, nor while the plugin still lists
// any of them. Devices in the making are withdrawn until they are complete. Devices that a pod has stay
// withdrawn, so that they are free once the pod ends; devices with another user are advertised again. Without
// a plugin there is no wait.
//
// The first round resumes services and frees driver locks that a killed run left, whatever the desired state
// is. Each round begins by passing on serving.json (common/serving_file.h), which says if the device plugin
// may serve.
//
// The clock is a parameter, and a round waits for nothing but the node's lock. The caller (node_loop.h) calls
// again after an event, or at the time that a round returns.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/exit_status.h"
#include "common/host_fs.h"
#include "common/result.h"
#include "common/withdrawals.h"
#include "host/node_apply.h"
#include "host/node_standings.h"
#include "host/node_state.h"
#include "host/offered_devices.h"
#include "host/wanted_file.h"
#include "vfio/use_probe.h"

namespace ferry {

/// All paths are relative to the host's root.
struct KeeperSettings {
  /// serving.json is in the same folder.
  std::filesystem::path wanted_file = "var/lib/ferry/wanted.json";
  std::filesystem::path state_file = "run/ferry/state.json";
  std::filesystem::path offered_file = kOfferedFile;
  std::filesystem::path plugin_presence = kPluginPresence;
  Reading profiles = Reading::strict;  ///< of NVIDIA's profiles (v1); Ferry's policies are always strict
  std::chrono::seconds plugin_patience{30};
  std::chrono::milliseconds lock_patience = std::chrono::seconds(30);
  /// Makes the caller start a round with News::process_ended when one of these processes ends, and forget all
  /// others. Returns true if the caller will notice the end of each of them. Empty: it notices none.
  std::function<bool(const std::set<int>& processes)> watch_ends = {};
  /// A change may take minutes, so a round's requeue time counts from its end.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

class NodeKeeper {
 public:
  using Clock = std::chrono::steady_clock;
  /// Builds the host with these probes.
  using HostFor = std::function<Result<NodeHost>(const NodeProbes& uses)>;

  static constexpr std::chrono::seconds kFirstPause{10};
  static constexpr std::chrono::seconds kLongestPause{300};
  static constexpr std::chrono::seconds kSettlingPause{1};

  /// `host` and the probes must outlive this object.
  NodeKeeper(HostFs& host, const NodeProbes& uses, HostFor node_host, KeeperSettings settings);

  /// The reason for a round.
  enum class News {
    anything,       ///< a file or a device may have changed, or it is time
    process_ended,  ///< one of Round::processes
  };

  struct Round {
    NodePhase phase = NodePhase::nothing_wanted;
    ExitStatus status = ExitStatus::done;       ///< the status that `ferry apply` would exit with
    bool unfinished = false;                    ///< the next round says how it ends
    std::optional<Clock::time_point> again;     ///< time of the next round without an event
    std::set<int> processes;                    ///< the users of refused devices
    std::optional<std::filesystem::path> file;  ///< the policy file that wanted.json names
  };

  /// After a failure the next attempt waits for the back-off, a new desired state, or the end of a pod or
  /// process that used a device. Other events are ignored until then, since the failed attempt itself may
  /// have caused them. If a refusal came before any write, each event leads to a new attempt.
  Round round(News news = News::anything);

  /// Finds the users of the vGPUs in state.json and publishes them there. The caller calls this periodically,
  /// because libvirt and QEMU open a vGPU without an event. Without vGPUs the probe is not asked.
  Result<> look_at_use();
  bool tells_of_vgpus() const { return !vgpu_questions_.empty(); }

  /// Advertises withdrawn devices again, since no change follows. A change that had not begun stays
  /// `withdrawing` with an error that says why, because the end of hostd is not a failure of the policy.
  Result<> end();

 private:
  void hand_on_serving();
  Round settling() const;
  Round reconcile(Result<std::optional<Wanted>> wanted);
  Round keep(const Wanted& wanted);
  Round carry_out(const Wanted& wanted, const GpuStandings& refused_before, bool writes,
                  const NodeProbes& uses);
  Round settle(const NodeHost& host, const Wanted& wanted, GpuStandings standings,
               const std::optional<Error>& error, const NodeProbes& uses, bool in_vain = false);
  Round nothing_wanted();
  std::optional<Error> make_good(const NodeHost& host) const;
  enum class Awaited { kept, given_back };
  Round begin_nothing(const std::optional<WantedMark>& wanted, const Error& error,
                      Awaited withdrawn = Awaited::kept);
  Round broken(const std::optional<WantedMark>& wanted, const Error& error, Awaited withdrawn = Awaited::kept,
               std::optional<NodePhase> as = std::nullopt);
  Round deaf(Round round);
  void refuse_what_pods_have(const ScannedNode& node, const std::set<std::string>& asked, UseProbe& guarded,
                             GpuStandings& standings) const;
  std::vector<Holder> who_holds(const ScannedNode& node, UseProbe& uses, const PciAddress& gpu) const;
  void ask_who_holds(const ScannedNode& node, UseProbe& uses, GpuStandings& standings) const;
  bool all_told(const GpuStandings& standings, const std::vector<Withdrawal>& awaited,
                const std::set<int>& processes) const;

  /// Absent also where it cannot be read: StillOfferedProbe lets nothing be moved then.
  std::optional<OfferedDevices> offered() const;
  OfferedDevices listed_devices() const;
  std::optional<std::set<std::string>> allocated_now() const;
  bool a_pod_has_ended();
  bool has_withdrawn(const std::set<std::string>& asked) const;
  NodeState state_with(const std::optional<WantedMark>& wanted, NodePhase phase) const;
  using Modes = std::map<PciAddress, Mode>;
  void tell(NodeState& next, const ScannedNode& node, const Modes& wanted, const GpuStandings& standings,
            const ModelNames& models);
  Result<> publish(NodeState next);
  Withdrawals left_by_the_last() const;
  void begin_generations();
  Clock::time_point pause();

  HostFs& host_;
  const NodeProbes uses_;
  const HostFor node_host_;
  const KeeperSettings settings_;

  std::optional<NodeState> published_;
  std::vector<UseQuestion> vgpu_questions_;                       ///< of the last scan
  std::map<std::string, std::vector<StateHolder>> vgpu_holders_;  ///< by vGPU, of the last look
  std::uint64_t generation_ = 0;
  std::uint64_t withdrawn_in_ = 0;             ///< generation that first had the present withdrawals
  std::optional<Clock::time_point> asked_at_;  ///< time of the request to the plugin, until it answers

  std::string stand_back_;     ///< NodeState::stand_back
  std::string serving_fault_;  ///< why serving.json could not be read last; told once

  std::optional<std::string> wish_;
  unsigned failures_ = 0;  ///< in a row
  std::optional<Clock::time_point> deaf_until_;
  std::set<std::string> allocated_;  ///< by the plugin, at the last round while we are deaf
  Round last_;
};

}  // namespace ferry
