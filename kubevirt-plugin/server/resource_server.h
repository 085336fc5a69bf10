// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/pinned.h"
#include "common/unique_fd.h"
#include "kubevirt-plugin/allocation/allocate_gate.h"
#include "kubevirt-plugin/allocation/allocation_core.h"

namespace ferry {
class RpcQueue;
}  // namespace ferry

namespace ferry::plugin {

/// Answers the kubelet for one resource over connections from add_connection(). It serves
/// v1beta1.DevicePlugin, and pluginregistration.Registration for a kubelet that finds plugins by itself.
class ResourceServer : Pinned {
 public:
  using Stream = std::uint64_t;  ///< unique within a server
  /// A client has begun to read the list, or no longer reads it. Called on the queue's thread.
  using StreamHook = std::function<void(Stream stream, bool begins)>;

  /// The references must outlive this object. Allocate calls pass `gate`, and none may wait there when this
  /// object ends. `cdi_names`: answers name devices as RESOURCE=ID, for the runtime to look up, instead of
  /// their nodes.
  ResourceServer(RpcQueue& queue, AllocationCore& core, AllocateGate& gate, std::string resource,
                 bool cdi_names, StreamHook hook);
  /// Stops the server, if it still runs.
  ~ResourceServer();

  /// Serves a connected, non-blocking socket.
  void add_connection(UniqueFd connection);

  /// Ends every stream with OK and accepts no more calls; does not wait.
  void begin_stop();
  /// Waits until all calls are over, and cancels those that are not over at `give_up`.
  void wait_stopped(std::chrono::steady_clock::time_point give_up);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Tells the kubelet, in Register and in the options, that GetPreferredAllocation is served.
constexpr bool kPrefersAllocations = true;

}  // namespace ferry::plugin
