// SPDX-License-Identifier: Apache-2.0
// The process `ferry dra`: it publishes the node's GPUs as ResourceSlices, and prepares the devices of
// ResourceClaims for the kubelet (docs/adr/0035).
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/rpc/rpc_queue.h"
#include "dra/claims/claim_driver.h"
#include "dra/dra_options.h"
#include "dra/publish/claims_of_server.h"
#include "dra/publish/slice_publisher.h"
#include "dra/server/dra_server.h"
#include "dra/slices/node_model.h"
#include "hostfs/directory_watch.h"
#include "hostfs/host_fs.h"
#include "hostfs/locks.h"
#include "kube/api_client.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/event_recorder.h"
#include "kube/timers.h"

namespace ferry::dra {

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
