// SPDX-License-Identifier: Apache-2.0
// A node that obeys a file: one round from what is wanted (wanted_file.h) to what is (state_file.h).
//
// The kubelet is asked first. Devices that are about to change are published as withdrawn, and nothing is
// written before the device plugin has said, in offered.json, that it has read exactly that, and while it
// still lists any of them. What a pod has stays withdrawn, so that it is free once the pod ends; what
// something else holds is offered again. Without a plugin nobody is waited for.
//
// Knows no clock and waits for nothing but the node's lock: who runs it (node_loop.h) calls again when
// something has happened, or when a round says so.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/exit_status.h"
#include "common/host_fs.h"
#include "common/result.h"
#include "host/node_apply.h"
#include "host/node_standings.h"
#include "host/node_state.h"
#include "host/offered_devices.h"
#include "host/wanted_file.h"
#include "vfio/use_probe.h"

namespace ferry {

/// All paths are relative to the host's root.
struct KeeperSettings {
  std::filesystem::path wanted_file = "var/lib/ferry/wanted.json";
  std::filesystem::path state_file = "run/ferry/state.json";
  std::filesystem::path offered_file = kOfferedFile;
  std::filesystem::path plugin_presence = kPluginPresence;
  std::chrono::seconds plugin_patience{30};
  std::chrono::milliseconds lock_patience = std::chrono::seconds(30);
  /// Who runs the rounds learns when one of Round::processes ends.
  bool ends_are_told = false;
};

class NodeKeeper {
 public:
  using Clock = std::chrono::steady_clock;
  /// The host, with `uses` as the one that is asked who holds what.
  using HostFor = std::function<Result<NodeHost>(UseProbe& uses)>;

  static constexpr std::chrono::seconds kFirstPause{10};
  static constexpr std::chrono::seconds kLongestPause{300};

  /// `host` and `uses` must outlive this.
  NodeKeeper(HostFs& host, UseProbe& uses, HostFor node_host, KeeperSettings settings);

  /// Why a round is run.
  enum class News {
    anything,       ///< a file or a device may have changed, or it is time
    process_ended,  ///< one of Round::processes
  };

  struct Round {
    NodePhase phase = NodePhase::nothing_wanted;
    ExitStatus status = ExitStatus::done;       ///< as `ferry apply` would end
    std::optional<Clock::time_point> again;     ///< when to come again though nothing has happened
    std::set<int> processes;                    ///< those that hold what is refused
    std::optional<std::filesystem::path> file;  ///< the policy file that wanted.json names
  };

  /// After a failure only time, another wish and the end of a holder lead to another try: what the host and
  /// the plugin tell may be an echo of the last one. What is refused before anything is written is looked at
  /// again whenever there is news.
  Round round(Clock::time_point now, News news = News::anything);

  /// What is withdrawn may be offered again: nobody will change it now.
  Result<> end();

 private:
  Round reconcile(Clock::time_point now, Result<std::optional<Wanted>> wanted);
  Round keep(Clock::time_point now, const Wanted& wanted);
  Round carry_out(Clock::time_point now, const Wanted& wanted, const GpuStandings& refused_before,
                  bool writes, UseProbe& uses);
  Round settle(Clock::time_point now, const NodeHost& host, const Wanted& wanted, GpuStandings standings,
               const std::optional<Error>& error, UseProbe& uses);
  Round nothing_wanted(Clock::time_point now);
  Round broken(Clock::time_point now, const std::optional<WantedMark>& wanted, const Error& error);
  Round deaf(Round round);
  void refuse_what_pods_have(const ScannedNode& node, const std::set<std::string>& asked, UseProbe& guarded,
                             GpuStandings& standings) const;
  std::vector<Holder> who_holds(const ScannedNode& node, UseProbe& uses, const PciAddress& gpu) const;
  void ask_who_holds(const ScannedNode& node, UseProbe& uses, GpuStandings& standings) const;
  bool all_told(const GpuStandings& standings, const std::vector<Withdrawal>& awaited) const;

  bool plugin_runs() const;
  /// Absent also where it cannot be read: StillOfferedProbe lets nothing be moved then.
  std::optional<OfferedDevices> offered() const;
  bool has_withdrawn(const std::set<std::string>& asked) const;
  NodeState state_with(const std::optional<WantedMark>& wanted, NodePhase phase) const;
  Result<> publish(Clock::time_point now, NodeState next);
  void begin_generations();
  Clock::time_point pause(Clock::time_point now);

  HostFs& host_;
  UseProbe& uses_;
  const HostFor node_host_;
  const KeeperSettings settings_;

  std::optional<NodeState> published_;
  std::uint64_t generation_ = 0;
  std::uint64_t withdrawn_in_ = 0;  ///< the generation that first had the present withdrawals
  Clock::time_point withdrawn_at_;

  std::optional<std::string> wish_;
  unsigned failures_ = 0;  ///< in a row
  std::optional<Clock::time_point> deaf_until_;
  Round last_;
};

}  // namespace ferry
