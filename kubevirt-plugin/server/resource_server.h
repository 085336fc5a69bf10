// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <grpc/grpc.h>
#include <memory>
#include <mutex>
#include <string>

#include "common/pinned.h"
#include "common/unique_fd.h"
#include "kubevirt-plugin/allocation/allocate_gate.h"
#include "kubevirt-plugin/allocation/allocation_core.h"

namespace ferry::plugin {

/// A ListAndWatch call. It sends the lists of a DeviceStream one after the other, each once gRPC has taken
/// the one before. A kubelet that does not read delays no other call, and nothing piles up.
class ListStream : public std::enable_shared_from_this<ListStream>, Pinned {
 public:
  /// Takes ownership of the call.
  explicit ListStream(grpc_call* call) : call_(call) {}
  ~ListStream();

  /// `closed` is called once, on the queue's thread, when the call has ended for any reason.
  void start(AllocationCore& core, const std::string& resource, std::function<void()> closed);
  /// Ends the call with OK after the list that is being sent. Any thread may call.
  void finish();

 private:
  void pump();
  void sent(bool ok);
  void send_status(grpc_status_code status, const std::string& message);

  grpc_call* const call_;
  int cancelled_ = 0;

  std::mutex mutex_;
  std::shared_ptr<DeviceStream> lists_;
  bool greeted_ = false;    // initial metadata has been sent
  bool sending_ = false;    // a list is being sent
  bool finishing_ = false;  // the status comes next
  bool over_ = false;       // the status has been sent, or the client has gone
};

class RpcQueue;

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
