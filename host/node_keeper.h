// SPDX-License-Identifier: Apache-2.0
// The reconciler of a node: one round reads the desired state (desired_file.h) and writes the host status
// (status_file.h).
//
// Before a change, devices that will change are published as withdrawn. hostd writes nothing to the host
// before the device plugin has confirmed exactly this list in advertised.json, nor while the plugin still
// lists any of them. Devices in the making are withdrawn until they are complete. Devices that a pod has stay
// withdrawn, so that they are free once the pod ends; devices with another user are advertised again. Without
// a plugin there is no wait.
//
// The first round resumes services and frees driver locks that a killed run left, whatever the desired state
// is. Each round begins by passing on serving.json (common/plugin_files.h), which says if the device plugin
// may serve.
//
// The clock is a parameter, and a round waits for nothing but the node's lock. The caller, run_node_loop(),
// calls again after an event, or at the time that a round returns.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "common/exit_status.h"
#include "common/plugin_files.h"
#include "common/result.h"
#include "host/desired_file.h"
#include "host/gpu_conditions.h"
#include "host/node_apply.h"
#include "host/status_file.h"
#include "host/usage/advertised_resources.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/uevents.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// All paths are relative to the host's root.
struct KeeperSettings {
  /// serving.json is in the same folder.
  std::filesystem::path desired_file = "var/lib/ferry/desired.json";
  std::filesystem::path status_file = "run/ferry/status.json";
  std::filesystem::path advertised_file = kAdvertisedFile;
  std::filesystem::path plugin_liveness = kPluginLiveness;
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
    NodePhase phase = NodePhase::idle;
    ExitStatus status = ExitStatus::done;       ///< the status that `ferry apply` would exit with
    bool unfinished = false;                    ///< the next round says how it ends
    std::optional<Clock::time_point> again;     ///< time of the next round without an event
    std::set<int> processes;                    ///< the users of blocked GPUs
    std::optional<std::filesystem::path> file;  ///< the policy file that desired.json names
  };

  /// After a failure the next attempt waits for the back-off, a new desired state, or the end of a pod or
  /// process that used a device. Other events are ignored until then, since the failed attempt itself may
  /// have caused them. If a refusal came before any write, each event leads to a new attempt.
  Round round(News news = News::anything);

  /// Finds the users of the vGPUs in status.json and publishes them there. The caller calls this
  /// periodically, because libvirt and QEMU open a vGPU without an event. Without vGPUs the probe is not
  /// asked.
  Result<> look_at_use();
  bool tells_of_vgpus() const { return !vgpu_questions_.empty(); }

  /// Advertises withdrawn devices again, since no change follows. A change that had not begun stays
  /// `applying` with an error that says why, because the end of hostd is not a failure of the policy.
  Result<> end();

 private:
  void hand_on_serving();
  Round settling() const;
  Round reconcile(Result<std::optional<DesiredState>> desired);
  Round keep(const DesiredState& desired);
  Round carry_out(const DesiredState& desired, const GpuConditions& refused_before, bool writes,
                  const NodeProbes& uses);
  Round settle(const NodeHost& host, const DesiredState& desired, GpuConditions conditions,
               const std::optional<Error>& error, const NodeProbes& uses, bool in_vain = false);
  Round idle();
  std::optional<Error> roll_back(const NodeHost& host) const;
  enum class Awaited { kept, given_back };
  Round begin_nothing(const std::optional<DesiredMark>& desired, const Error& error,
                      Awaited withdrawn = Awaited::kept);
  Round broken(const std::optional<DesiredMark>& desired, const Error& error,
               Awaited withdrawn = Awaited::kept, std::optional<NodePhase> as = std::nullopt);
  Round back_off(Round round);
  void refuse_what_pods_have(const ScannedNode& node, const std::set<std::string>& asked,
                             vfio::UseProbe& guarded, GpuConditions& conditions) const;
  std::vector<vfio::DeviceUser> who_holds(const ScannedNode& node, vfio::UseProbe& uses,
                                          const vfio::PciAddress& gpu) const;
  void ask_who_holds(const ScannedNode& node, vfio::UseProbe& uses, GpuConditions& conditions) const;
  bool all_told(const GpuConditions& conditions, const std::vector<Withdrawal>& awaited,
                const std::set<int>& processes) const;

  /// Absent also if it cannot be read: StillAdvertisedProbe then permits no change.
  std::optional<AdvertisedResources> advertised() const;
  AdvertisedResources listed_devices() const;
  std::optional<std::set<std::string>> allocated_now() const;
  bool a_pod_has_ended();
  bool has_withdrawn(const std::set<std::string>& asked) const;
  HostStatus state_with(const std::optional<DesiredMark>& desired, NodePhase phase) const;
  using Modes = std::map<vfio::PciAddress, policy::Mode>;
  void tell(HostStatus& next, const ScannedNode& node, const Modes& desired, const GpuConditions& conditions,
            const policy::ModelNames& models);
  Result<> publish(HostStatus next);
  Withdrawals left_by_the_last() const;
  void begin_generations();
  Clock::time_point pause();

  HostFs& host_;
  const NodeProbes uses_;
  const HostFor node_host_;
  const KeeperSettings settings_;

  std::optional<HostStatus> published_;
  std::vector<vfio::UseQuestion> vgpu_questions_;                  ///< of the last scan
  std::map<std::string, std::vector<ReportedUser>> vgpu_holders_;  ///< by vGPU, of the last look
  std::uint64_t generation_ = 0;
  std::uint64_t withdrawn_in_ = 0;             ///< generation that first had the present withdrawals
  std::optional<Clock::time_point> asked_at_;  ///< time of the request to the plugin, until it answers

  std::string standby_;        ///< HostStatus::standby
  std::string serving_fault_;  ///< why serving.json could not be read last; logged once

  std::optional<std::string> summary_;
  unsigned failures_ = 0;  ///< in a row
  std::optional<Clock::time_point> back_off_until_;
  std::set<std::string> allocated_;  ///< by the plugin, at the last round of the back-off
  Round last_;
};

// `ferry hostd` as one function: it starts a NodeKeeper's round after each event that may matter.

struct NodeLoopOptions {
  KeeperSettings files;
  bool once = false;  ///< until the node is in its desired state, or is known not to become so
  /// The time between two looks for users of vGPUs. A program that opens one without the kubelet causes no
  /// event, and a look walks all of /proc.
  std::chrono::milliseconds between_use_looks = std::chrono::seconds(30);
  /// The time between two rounds if the kernel sends no events of devices.
  std::chrono::milliseconds without_uevents = std::chrono::seconds(30);
  /// The kernel's events of devices. An error: it sends none.
  std::function<Result<vfio::Uevents>()> open_uevents = vfio::Uevents::open;
  std::function<bool()> uevents_are_sent = vfio::Uevents::are_sent;
  /// Adds further work to the loop of the process that serves the node; destroyed when the loop ends.
  std::function<std::shared_ptr<void>(EventLoop& loop)> beside = {};
  /// Called at the start, also while another hostd works, and before each round: folders of the host may be
  /// gone or replaced.
  std::function<void()> keep_folders = {};
};

/// Runs until `stop` is requested. It finishes the round that has begun, and leaves the host as it is then.
///
/// A round follows changes of desired.json, serving.json beside it, the policy file that desired.json names,
/// and advertised.json (inotify), device events of the kernel, and ends of processes that use a blocked GPU
/// (ProcessEnds). There is at most one round a second. Only Round::again, the users of vGPUs, and devices
/// without events of the kernel cause rounds without an event. The limit of descriptors is raised as far as
/// this process may. If several hostds run, one works and the others wait for its end. It holds
/// run/ferry/hostd.running (LivenessLock), except with `once`.
///
/// Returns the exit status of the last round with `once`, else ExitStatus::done. Errc::refused: another hostd
/// runs (with `once`), or has begun to since run/ferry was removed. An errno: nothing can be watched, or the
/// lock's file is gone and cannot be made again.
Result<ExitStatus> run_node_loop(HostFs& host, const NodeProbes& uses, NodeKeeper::HostFor node_host,
                                 const NodeLoopOptions& options, const std::stop_token& stop);

}  // namespace ferry::host
