// SPDX-License-Identifier: Apache-2.0
// gRPC's core, as far as the kubelet's protocol needs it.
//
// Its C++ layer gives each server completion queues and threads of its own, and that for every resource. Here
// one queue and one thread serve them all: a third of the memory, and nothing wakes without cause.
#pragma once

#include <functional>
#include <grpc/grpc.h>
#include <span>
#include <thread>

namespace ferry {

/// One completion queue and the thread on which everything it completes is handled.
class RpcQueue {
 public:
  RpcQueue();
  RpcQueue(const RpcQueue&) = delete;
  RpcQueue& operator=(const RpcQueue&) = delete;
  RpcQueue(RpcQueue&&) = delete;
  RpcQueue& operator=(RpcQueue&&) = delete;
  /// Waits for all that was started; servers must be shut down and calls over or cancelled.
  ~RpcQueue();

  grpc_completion_queue* get() const { return queue_; }

  /// What to hand gRPC with an operation: `done` runs once, on the queue's thread. `ok` is gRPC's.
  static void* tag(std::function<void(bool ok)> done);
  /// Starts operations on a call.
  static void start(grpc_call* call, std::span<const grpc_op> ops, std::function<void(bool ok)> done);

 private:
  void serve();

  grpc_completion_queue* const queue_;
  std::thread thread_;
};

}  // namespace ferry
