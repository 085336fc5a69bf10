// SPDX-License-Identifier: Apache-2.0
// The part of gRPC's core that Ferry's servers and clients of Unix sockets need.
//
// gRPC's C++ layer gives each server completion queues and threads of its own, and the device plugin has a
// server for each resource. Here one queue and one thread serve all servers of a process, with a third of the
// memory and no needless wakeups.
#pragma once

#include <functional>
#include <grpc/grpc.h>
#include <span>
#include <thread>
#include <utility>

#include "common/pinned.h"

namespace ferry {

/// A completion queue and the thread that handles its completions, one at a time unless relieve() replaces
/// the thread.
class RpcQueue : Pinned {
 public:
  RpcQueue();
  /// Waits for all started operations; servers must be shut down, and calls must be over or cancelled.
  ~RpcQueue();

  grpc_completion_queue* get() const { return queue_; }

  /// The tag for an operation of gRPC. `done` runs once, on the queue's thread. `ok` is gRPC's.
  static void* tag(std::function<void(bool ok)> done);
  static void start(grpc_call* call, std::span<const grpc_op> ops, std::function<void(bool ok)> done);

  /// Runs `done` soon, on the queue's thread.
  static void post(grpc_call* call, std::function<void()> done) {
    start(call, {}, [done = std::move(done)](bool /*ok*/) { done(); });
  }

  /// Replaces the queue's thread `held` while the host delays its completion; called from another thread.
  /// When `held` goes on, it calls leave(), ends with that completion and touches neither gRPC nor the queue
  /// again. False: `held` does not serve the queue, or no thread is available. Then `held` serves on after
  /// the delay.
  bool relieve(std::thread::id held);
  static void leave();

 private:
  static void serve(grpc_completion_queue* queue);

  grpc_completion_queue* const queue_;
  std::thread thread_;
};

}  // namespace ferry
