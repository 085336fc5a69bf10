// SPDX-License-Identifier: Apache-2.0
// A node that obeys a file: one round from what is wanted (wanted_file.h) to what is (state_file.h).
//
// The kubelet is asked first. Devices that are about to change are published as withdrawn, and nothing is
// written before the device plugin has said, in offered.json, that it has read exactly that, and while it
// still lists any of them. What is being made is withdrawn until it is made. What a pod has stays withdrawn,
// so that it is free once the pod ends; what something else holds is offered again. Without a plugin nobody
// is waited for.
//
// What a run that was killed has left stopped or locked is made good by the first round, whatever is wanted.
//
// Whether the device plugin shall serve at all (common/serving_file.h) is handed on at the begin of each
// round.
//
// Its clock is handed in, and it waits for nothing but the node's lock: who runs it (node_loop.h) calls again
// when something has happened, or when a round says so.
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
  /// serving.json lies beside it.
  std::filesystem::path wanted_file = "var/lib/ferry/wanted.json";
  std::filesystem::path state_file = "run/ferry/state.json";
  std::filesystem::path offered_file = kOfferedFile;
  std::filesystem::path plugin_presence = kPluginPresence;
  Reading profiles = Reading::strict;  ///< of NVIDIA's (v1); policies of ours are read strictly
  std::chrono::seconds plugin_patience{30};
  std::chrono::milliseconds lock_patience = std::chrono::seconds(30);
  /// Of who runs the rounds: has a round follow, with News::process_ended, when one of these ends, and no
  /// longer for others. Whether that is so for every one of them. Empty: for none.
  std::function<bool(const std::set<int>& processes)> watch_ends = {};
  /// A change may take minutes: what a round asks for counts from its end.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

class NodeKeeper {
 public:
  using Clock = std::chrono::steady_clock;
  /// The host, with these as the ones that are asked.
  using HostFor = std::function<Result<NodeHost>(const NodeProbes& uses)>;

  static constexpr std::chrono::seconds kFirstPause{10};
  static constexpr std::chrono::seconds kLongestPause{300};
  static constexpr std::chrono::seconds kSettlingPause{1};

  /// `host` and the probes must outlive this.
  NodeKeeper(HostFs& host, const NodeProbes& uses, HostFor node_host, KeeperSettings settings);

  /// Why a round is run.
  enum class News {
    anything,       ///< a file or a device may have changed, or it is time
    process_ended,  ///< one of Round::processes
  };

  struct Round {
    NodePhase phase = NodePhase::nothing_wanted;
    ExitStatus status = ExitStatus::done;       ///< as `ferry apply` would end
    bool unfinished = false;                    ///< the next round says how it ends
    std::optional<Clock::time_point> again;     ///< when to come again though nothing has happened
    std::set<int> processes;                    ///< those that hold what is refused
    std::optional<std::filesystem::path> file;  ///< the policy file that wanted.json names
  };

  /// After a failure only time, another wish and the end of a holder, a process or a pod, lead to another
  /// try: what the host and the plugin tell else may be an echo of the last one. What is refused before
  /// anything is written is looked at again whenever there is news.
  Round round(News news = News::anything);

  /// Asks who has the vGPUs that state.json tells of, and says it there: who opens one without the kubelet
  /// (libvirt, QEMU) tells nobody. To be called now and then; without vGPUs nothing is asked.
  Result<> look_at_use();
  bool tells_of_vgpus() const { return !vgpu_questions_.empty(); }

  /// What is withdrawn may be offered again: nobody will change it now. A change that was about to begin is
  /// still `withdrawing`, with an error that says why it does not go on: an end is no failure of the policy.
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
  std::uint64_t withdrawn_in_ = 0;             ///< the generation that first had the present withdrawals
  std::optional<Clock::time_point> asked_at_;  ///< while the plugin's answer is waited for

  std::string stand_back_;     ///< NodeState::stand_back
  std::string serving_fault_;  ///< why serving.json could not be read last; told once

  std::optional<std::string> wish_;
  unsigned failures_ = 0;  ///< in a row
  std::optional<Clock::time_point> deaf_until_;
  std::set<std::string> allocated_;  ///< by the plugin, at the last round while we are deaf
  Round last_;
};

}  // namespace ferry
