// SPDX-License-Identifier: Apache-2.0
// The process `ferry dra`: it publishes the node's GPUs as ResourceSlices, and prepares the devices of
// ResourceClaims for the kubelet (docs/adr/0035).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>

#include "api/claim_request.h"
#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/rpc/rpc_queue.h"
#include "dra/checkpoint.h"
#include "dra/claim.h"
#include "dra/claims/claim_driver.h"
#include "dra/dra_options.h"
#include "dra/publish/slice_publisher.h"
#include "dra/server/dra_server.h"
#include "dra/slices/node_model.h"
#include "hostfs/directory_watch.h"
#include "hostfs/host_fs.h"
#include "hostfs/locks.h"
#include "kube/api_client.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/event_recorder.h"
#include "kube/field_filter.h"
#include "kube/timers.h"

namespace ferry::dra {

// ResourceClaims in the API server: reading them, their events, and claims of the checkpoint that are gone.

/// Reads ResourceClaims and DeviceClasses from the API server, without the fields that are of no use to
/// read_allocated_claim() and resources_of().
class KubeClaimReader final : public ClaimReader {
 public:
  /// The time for an answer, all tries together: a connection whose other end is gone is silent for longer.
  /// ClaimDriver answers the kubelet after 30 s, and has to know by then that no answer comes.
  static constexpr std::chrono::seconds kLongest{25};

  /// Both must outlive this and its reads.
  KubeClaimReader(kube::ApiClient& client, kube::Timers& timers) : client_(client), timers_(timers) {}

  void read(const ClaimKey& key, Done done) override;
  void read_class(const std::string& name, Done done) override;

 private:
  void ask(const kube::ObjectRef& object, const kube::FieldChoice& fields, Done done);

  kube::ApiClient& client_;
  kube::Timers& timers_;
};

/// Records events of ResourceClaims, which `kubectl describe resourceclaim` shows, and logs their messages,
/// each of which names its claim.
class KubeClaimEvents final : public ClaimEvents {
 public:
  // Reasons of the events.

  static constexpr std::string_view kPrepareFailed = "GpuPrepareFailed";
  static constexpr std::string_view kUnprepareFailed = "GpuUnprepareFailed";
  static constexpr std::string_view kWarning = "GpuClaimWarning";
  static constexpr std::string_view kLost = "GpuDeviceLost";  ///< also of an event of the Node

  /// An equal message about the same claim within this time is not given again.
  static constexpr kube::Timers::Clock::duration kOnce = std::chrono::minutes(10);

  /// Both must outlive this. The recorder's events have kController as their reportingComponent.
  KubeClaimEvents(kube::EventRecorder& recorder, kube::Timers& timers)
      : recorder_(recorder), timers_(timers) {}

  static constexpr const char* kController = "gpu-ferry.io/dra";

  void failed(const ClaimKey& claim, api::ClaimAction action, const Error& error) override;
  void warned(const ClaimKey& claim, const std::string& sentence) override;
  void lost(const ClaimKey& claim, const std::string& sentence) override;

 private:
  struct Given {
    std::string message;
    kube::Timers::Clock::time_point at;
  };

  void give(const ClaimKey& claim, std::string_view reason, const std::string& message);

  kube::EventRecorder& recorder_;
  kube::Timers& timers_;
  std::map<std::string, Given> given_;  ///< by the claim's UID and the reason
};

/// Finds claims of the checkpoint that have no device of this node in the API server, so that their GPUs
/// become free also if the kubelet has lost its own records and does not ask for that. For each claim the
/// kubelet first has kPatience to ask as usual. Only one thread may use it.
class LostClaims : Pinned {
 public:
  static constexpr std::chrono::minutes kPatience{5};

  struct Settings {
    /// The claims that have devices on this node.
    std::function<const Checkpoint&()> checkpoint;
    /// ClaimDriver::unprepare_all_but(), which reads each of the other claims before it undoes one, since
    /// `kept` may be older than the claim.
    std::function<void(const std::set<std::string>& kept)> unprepare_all_but;
  };

  /// The timers must outlive this.
  LostClaims(kube::Timers& timers, Settings settings);

  /// Call this when the checkpoint, or the claims with devices of this node, may have changed.
  /// `in_server`: the UIDs of the latter.
  void look(std::set<std::string> in_server);

 private:
  using Clock = kube::Timers::Clock;

  void undo_due();

  kube::Timers& timers_;
  const Settings settings_;
  std::set<std::string> in_server_;
  std::map<std::string, Clock::time_point> undone_at_;  ///< lost claims, by UID
  kube::OwnedTimer timer_{timers_};
};

/// The parts of the process, in the loop's thread. A node has one such process that works: another one waits
/// for its end. Slices stay in the API server when the process ends, and prepared claims stay prepared.
class DraProgram : Pinned {
 public:
  /// All references must outlive this.
  DraProgram(EventLoop& loop, HostFs& host, kube::ApiTransport& transport, const kube::Random& random,
             DraProgramOptions options);

  /// Runs the loop until `stop`. Waits for hostd, which makes the folders and permits this process to use
  /// them. Errors: the checkpoint is malformed; the kubelet's folder does not exist or is gone; a name that
  /// no Node can have.
  Result<> run(const std::stop_token& stop);

 private:
  void try_now();
  Result<> begin();
  Result<> open_driver();
  Result<> open_server();
  void node_changed();
  void report_lost_devices(const NodeModel& node);
  void drop_memory_later();
  void end_by(Error error);
  void wait_for(const std::string& what);

  EventLoop& loop_;
  HostFs& host_;
  const DraProgramOptions options_;
  kube::LoopTimers timers_;
  kube::ApiClient client_;
  kube::EventRecorder recorder_;
  KubeClaimReader reader_;
  KubeClaimEvents events_;
  SlicePublisher publisher_;
  std::optional<InstanceLock> only_;
  std::unique_ptr<ClaimDriver> driver_;  ///< null: not begun
  LostClaims lost_;
  RpcQueue queue_;
  std::unique_ptr<DraServer> server_;     ///< null: not begun
  std::optional<FolderWatch> folder_;     ///< of hostd's list
  std::string waits_for_;                 ///< last logged message
  std::set<std::string> without_device_;  ///< UIDs of the claims whose loss was reported
  kube::OwnedTimer memory_timer_{timers_};
  std::optional<Error> failure_;
};

}  // namespace ferry::dra
