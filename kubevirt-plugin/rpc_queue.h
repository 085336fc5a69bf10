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
#include <utility>

namespace ferry {

/// One completion queue and the thread on which everything it completes is handled: one at a time, for as
/// long as nobody is relieved.
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

  /// Runs `done` soon, on the queue's thread.
  static void post(grpc_call* call, std::function<void()> done) {
    start(call, {}, [done = std::move(done)](bool /*ok*/) { done(); });
  }

  /// What handles a completion may be held up by the host for long. Then another thread goes on in its place:
  /// by relieve(), called elsewhere, for the queue's thread `held`; which calls leave() as soon as it is let
  /// go, ends with that completion and touches nothing of gRPC or of the queue any more. False: `held` does
  /// not serve the queue, or there is no thread to be had, and it goes on when it is let go.
  bool relieve(std::thread::id held);
  static void leave();

 private:
  static void serve(grpc_completion_queue* queue);

  grpc_completion_queue* const queue_;
  std::thread thread_;
};

}  // namespace ferry
