// SPDX-License-Identifier: Apache-2.0
// The reconciler of a node: one round reads the desired state (desired_state.h) and writes the host status
// (api/host_status.h).
//
// Before a change, devices that will change are published as unavailable. hostd writes nothing to the host
// before the device plugin has confirmed exactly this list in advertised.json, nor while the plugin still
// lists any of them. Devices in the making are unavailable until they are complete. Devices that a pod has
// stay unavailable, so that they are free once the pod ends; devices with another user are advertised again.
// Without a plugin there is no wait.
//
// GPUs that the policy gives to DRA are unavailable, too, and stay so. A round decides which of them DRA has
// (claims/gpu_allocation.h) and writes them to kClaimableGpusFile before it changes other GPUs.
//
// The first round resumes services and frees driver locks that a killed run left, whatever the desired state
// is. Each round begins by passing on serving.json (api/serving.h), which says if the device plugin
// may serve.
//
// The clock is a parameter, and a round waits for nothing but the node's lock. The caller, run_node_loop(),
// calls again after an event, or at the time that a round returns.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "api/advertised_resources.h"
#include "api/files.h"
#include "api/host_status.h"
#include "common/event_loop.h"
#include "common/exit_status.h"
#include "common/pinned.h"
#include "common/result.h"
#include "host/claims/claim_folder.h"
#include "host/claims/claim_functions.h"
#include "host/claims/claim_record.h"
#include "host/claims/claim_server.h"
#include "host/claims/claimable_gpus.h"
#include "host/claims/gpu_allocation.h"
#include "host/desired_state.h"
#include "host/gpu_conditions.h"
#include "host/keeper_memory.h"
#include "host/node_apply.h"
#include "host/node_observation.h"
#include "host/reconcile.h"
#include "host/sanitize/sanitize_step.h"
#include "host/sanitize_look.h"
#include "host/usage/advertised_use_probe.h"
#include "host/validation_files.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/uevents.h"

namespace ferry::host {

/// All paths are relative to the host's root.
struct KeeperSettings {
  std::filesystem::path desired_file = api::kDesiredFile;
  /// The file is in the folder of `desired_file`.
  std::filesystem::path serving_file() const {
    return desired_file.parent_path() / std::filesystem::path(api::kServingFile).filename();
  }
  std::filesystem::path status_file = api::kStatusFile;
  /// Gives the GPUs that ResourceClaims have: at least one of each IOMMU group. From the call on, no claim
  /// may get a GPU that kClaimableGpusFile does not have, or has without `for_dra`. An error: any GPU may
  /// have a claim, and the round changes none.
  std::function<Result<GpusWithClaims>()> gpus_with_claims = [] { return GpusWithClaims(); };
  /// True if a Kata class of the node is confidential: the registers of its GPUs are then read by default.
  std::function<bool()> has_confidential_class = [] { return false; };
  bool validations = false;            ///< keeps the files for the gpu-operator's pods (validation_files.h)
  Reading profiles = Reading::strict;  ///< of NVIDIA's profiles (v1); Ferry's policies are always strict
  std::chrono::seconds plugin_patience{30};
  std::chrono::milliseconds lock_patience = std::chrono::seconds(30);
  /// Makes the caller start a round with News::process_ended when one of these processes ends, and forget all
  /// others. Returns true if the caller will notice the end of each of them. Empty: it notices none.
  std::function<bool(const std::set<int>& processes)> watch_ends = {};
  /// Runs a job that takes seconds beside the rounds, and starts a round after it. Without a loop it runs at
  /// once.
  std::function<void(std::function<void()> job)> beside = [](const std::function<void()>& job) { job(); };
  Sanitizer sanitize = default_sanitizer();
  /// Sets the confidential mode that the desired state asks for, on GPUs between two users. Such a node
  /// sanitizes its GPUs at least as with the policy best_effort.
  bool sets_cc_mode = false;
  ModeSetter set_mode = default_mode_setter();
  /// A change may take minutes, so a round's requeue time counts from its end.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

/// Writes the host status, and only after a change of it (status_file.cpp).
class StatusFile {
 public:
  /// `host` and `memory` must outlive this object.
  StatusFile(HostFs& host, std::filesystem::path file, KeeperMemory& memory)
      : host_(host), file_(std::move(file)), memory_(memory) {}

  /// Publishes a new status, after it has added this process, the boot, and the plugin's order.
  Result<> publish(api::HostStatus next);
  /// Publishes a status that was published before, with changes.
  Result<> publish_again(api::HostStatus next);

  /// Passes on serving.json, the plugin's order. It is published at once, even if the round has no other
  /// news, because a change of the host may take minutes. If the file is unreadable, the last order stands,
  /// also one from an earlier hostd.
  void pass_on_serving(const std::filesystem::path& serving_file);

  /// The present unavailable devices, or those that an earlier hostd published.
  std::vector<api::UnavailableDevice> unavailable() const;

 private:
  api::PluginOrders left_by_the_last() const;
  std::optional<api::SanitizeStatus> sanitize_status(const api::AcceleratorStatus& gpu) const;
  void begin_generations();

  HostFs& host_;
  const std::filesystem::path file_;
  KeeperMemory& memory_;
};

/// The loop's rounds: reads the facts of each stage, reconciles (reconcile.h), and performs the action.
class NodeKeeper : Pinned {
 public:
  using Clock = std::chrono::steady_clock;

  /// `host` and the probes must outlive this object.
  NodeKeeper(HostFs& host, const NodeProbes& uses, MakeContext make_context, KeeperSettings settings);

  /// The reason for a round.
  enum class News {
    anything,       ///< a file or a device may have changed, or it is time
    process_ended,  ///< one of Round::processes
  };

  /// After a failure the next attempt waits for the back-off, a new desired state, or the end of a pod or
  /// process that used a device. Other events are ignored until then, since the failed attempt itself may
  /// have caused them; only kClaimableGpusFile follows them. If a refusal came before any write, each event
  /// leads to a new attempt.
  Round round(News news = News::anything);

  /// Finds the users of the vGPUs in status.json and publishes them there. The caller calls this
  /// periodically, because libvirt and QEMU open a vGPU without an event. Without vGPUs the probe is not
  /// asked.
  Result<> look_at_use();
  bool reports_vgpus() const { return !memory_.vgpu_use.questions.empty(); }

  /// Advertises unavailable devices again, except those for DRA, since no change follows. A change that had
  /// not begun stays `applying` with an error that says why, because the end of hostd is not a failure of the
  /// policy.
  Result<> end();

 private:
  Round keep_without_desired_state();
  Round keep_desired_state(DesiredState desired);
  /// Makes the devices of a plan that writes unavailable, and applies the plan once the plugin has answered.
  Round prepare_change(const NodeContext& context, const DesiredState& desired, RoundSnapshot snapshot);
  Round apply(const DesiredState& desired, RoundSnapshot snapshot, const NodeProbes& uses);
  /// Publishes the result of a round. `scanned`: the host as the second preview has scanned it before its
  /// plan; the status describes that scan. Absent: the host is scanned here.
  Round report_result(const NodeContext& context, const DesiredState& desired, RoundSnapshot snapshot,
                      const NodeProbes& uses, std::optional<ScannedNode> scanned = {});
  Round roll_back_and_report(const std::optional<api::DesiredMark>& desired, Obstacle obstacle);
  /// Reports an error that kept the round from beginning, or from its end.
  Round report_obstacle(const std::optional<api::DesiredMark>& desired, Obstacle obstacle);
  /// The next attempt waits for the end of this round's back-off (begin_round()).
  Round back_off(Round round);
  /// Resumes services and frees locks that a killed run left, whatever the desired state is. Returns the
  /// first error.
  std::optional<Error> roll_back(const NodeContext& context) const;

  ReconcileResult reconcile_at(Stage stage, RoundSnapshot& snapshot) const;
  ReconcileResult reconcile_and_remember(Stage stage, RoundSnapshot& snapshot);
  Result<> publish(ReconcileResult& result);
  void remember_vgpus(const ScannedNode& node);
  /// Reads the registers that are due, and publishes them (register_look.cpp).
  void look_at_registers();

  // GPUs between two users (sanitize_look.cpp).

  /// Follows the users of each GPU that VMs get whole, records and publishes its state, and starts the resets
  /// that are due.
  void look_at_sanitizing();
  /// A new record in place of a malformed one: the past of each GPU is not known.
  Result<GpuHistories> begin_histories(const Error& why);
  void take_up_policy(GpuHistories& histories);
  std::string user_of(const api::AcceleratorStatus& gpu, const ListedGpu& listed,
                      const GpusWithClaims& claims);
  /// Enters the resets that have ended.
  void take_ended_runs(GpuHistories& histories, std::uint64_t now);
  /// GPUs whose reset is due.
  struct DueGpus {
    /// A hot reset of one GPU concerns its whole group, so the GPUs of a group follow each other.
    std::map<std::optional<std::uint32_t>, std::vector<vfio::PciAddress>> by_group;
    std::set<vfio::PciAddress> wrong_modes;  ///< their confidential mode is set before
  };
  /// Takes the pods that have ended from the list that a plugin left at its end: the probes ask the kubelet.
  void forget_ended_pods(std::map<vfio::PciAddress, ListedGpu>& lists);
  DueGpus follow_gpus(GpuHistories& histories, const GpusWithClaims& claims,
                      const std::optional<SanitizeRequest>& request, std::uint64_t now);
  void start_runs(const DueGpus& due);
  /// Takes the policy and the confidential mode of the desired state.
  void remember_desired(const DesiredState& desired);
  /// Why its mode is to be changed now; empty: it is right, or was tried.
  std::string wrong_mode_of(const api::AcceleratorStatus& gpu) const;

  // Claims (node_claims.cpp).

  /// Decides which GPUs DRA has in this round, and writes them to kClaimableGpusFile.
  Result<> allocate_gpus(const ScannedNode& node, const policy::ResolvedPolicy& resolved,
                         const NodeContext& context);
  /// Finds the users of GPUs that change their allocation, and whether the plugin has read that they are
  /// unavailable.
  void read_allocation_facts(const ScannedNode& node, const policy::ResolvedPolicy& resolved,
                             AllocationFacts& facts);
  /// Gives GPUs for claims their virtual functions, and takes those of GPUs that have left DRA away.
  void change_functions_for_claims(const std::vector<FunctionsChange>& changes,
                                   const std::set<std::string>& release, const NodeContext& context);
  /// Asks the driver's library about GPUs for mixed sizes whose placements are not known yet, and about the
  /// GPU instances of empty GPUs in MIG mode.
  void ask_for_placements(const NodeContext& context, ClaimableFacts& facts);
  void remember_gpus_without_types(const ClaimableFacts& facts);
  /// ClaimableFacts::lost_claims; logs those that are new.
  std::map<vfio::PciAddress, std::vector<std::string>> find_lost_claims(const GpusWithClaims& claims,
                                                                        const ScannedNode& node,
                                                                        const NodeContext& context);
  /// Schedules the next round for facts that no event reports: a driver that is loaded later, types that are
  /// listed late, a mode that a person switches. A time already past is skipped. The round then failed before
  /// it could ask, and its own back-off decides; else rounds would follow each other without a pause.
  void schedule_questions(Round& round) const;
  /// Publishes the state of the GPUs for claims during a back-off, in which claims are served too. The round
  /// after the back-off reports the errors.
  void look_at_claims(const DesiredState& desired);
  /// Lets DRA have the GPUs of the last round, which kClaimableGpusFile names after a restart. For a policy
  /// that gives no GPU another allocation. Without any record of the claims the allocations stay unknown.
  void keep_allocations(const ScannedNode& node);
  /// False: an earlier hostd has given GPUs to DRA, or may have, and no round of this one has decided about
  /// them yet.
  bool knows_allocations();

  /// Takes the fatal errors of new lists of the plugin. If another device is Unhealthy since the last list,
  /// the next scan wakes the sleeping GPUs once more: Allocate may have found a GPU off the bus.
  void heed_plugin();

  /// Absent also if it cannot be read: StillAdvertisedProbe then permits no change.
  std::optional<api::AdvertisedResources> advertised() const;
  /// The devices that the plugin has allocated. Absent: the plugin's file cannot be read.
  std::optional<std::set<std::string>> allocated_now() const;

  HostFs& host_;
  const NodeProbes uses_;
  const MakeContext make_context_;
  const KeeperSettings settings_;
  KeeperMemory memory_;
  BusWatch watch_;
  std::uint64_t heeded_ = 0;              // generation of the plugin's lists that heed_plugin() has read
  std::set<std::string> sick_;            // the Unhealthy devices of these lists
  std::optional<policy::Policy> policy_;  // the last one that was read; absent: there is no desired state
  std::shared_ptr<SanitizeRuns> sanitize_runs_ = std::make_shared<SanitizeRuns>();  // shared with the jobs
  ValidationFiles validations_;
  StatusFile status_;
  ClaimableGpusFile claimable_;
};

// `ferry hostd` as one function: it starts a NodeKeeper's round after each event that may matter.

struct NodeLoopOptions {
  KeeperSettings keeper;
  bool once = false;  ///< until the node is in its desired state, or is known not to become so
  /// The time between two looks for users of vGPUs. A program that opens one without the kubelet causes no
  /// event, and a scan walks all of /proc.
  std::chrono::milliseconds use_poll_period = std::chrono::seconds(30);
  /// The time between two rounds if the kernel sends no events of devices.
  std::chrono::milliseconds without_uevents = std::chrono::seconds(30);
  /// The time between two attempts to get the lock that shows that hostd runs: another process may keep it to
  /// itself.
  std::chrono::milliseconds between_announcements = std::chrono::seconds(10);
  /// The kernel's events of devices. An error: it sends none.
  std::function<Result<vfio::Uevents>()> open_uevents = vfio::Uevents::open;
  std::function<bool()> uevents_are_sent = vfio::Uevents::are_sent;
  /// Adds further work to the loop of the process that serves the node; destroyed when the loop ends.
  std::function<std::shared_ptr<void>(EventLoop& loop)> beside = {};
  /// Called at the start, also while another hostd works, and before each round: folders of the host may be
  /// gone or replaced.
  std::function<void()> keep_folders = {};
  /// Requests about claims are served between rounds, and a round follows each of them. Absent, or with
  /// `once`: none are.
  std::optional<ClaimServerSettings> claims = {};
  std::filesystem::path claim_metadata = kClaimMetadataFolder;  ///< ClaimSettings::metadata_folder
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
Result<ExitStatus> run_node_loop(HostFs& host, const NodeProbes& uses, MakeContext make_context,
                                 const NodeLoopOptions& options, const std::stop_token& stop);

}  // namespace ferry::host
