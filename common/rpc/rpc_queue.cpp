// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/rpc_queue.h"

#include <absl/synchronization/mutex.h>
#include <cstdlib>
#include <memory>
#include <system_error>

#include <spdlog/spdlog.h>

namespace ferry {
namespace {

using Done = std::function<void(bool)>;

// Set by leave() in the serving thread, which calls leave() far below serve().
thread_local bool has_left = false;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

grpc_completion_queue* make_queue() {
  // Debian's Abseil checks each lock for deadlocks, a check for developers of gRPC.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  grpc_init();
  return grpc_completion_queue_create_for_next(nullptr);
}

}  // namespace

RpcQueue::RpcQueue() : queue_(make_queue()), thread_([queue = queue_] { serve(queue); }) {}

RpcQueue::~RpcQueue() {
  grpc_completion_queue_shutdown(queue_);
  thread_.join();
  grpc_completion_queue_destroy(queue_);
  grpc_shutdown_blocking();
}

void* RpcQueue::tag(Done done) {
  return new Done(std::move(done));  // NOLINT(cppcoreguidelines-owning-memory): gRPC carries it to serve()
}

void RpcQueue::start(grpc_call* call, std::span<const grpc_op> ops, Done done) {
  const auto error = grpc_call_start_batch(call, ops.data(), ops.size(), tag(std::move(done)), nullptr);
  if (error == GRPC_CALL_OK) return;
  spdlog::critical("gRPC takes no operation: {}", grpc_call_error_to_string(error));
  std::abort();  // a wrong order of operations is a bug of this process
}

bool RpcQueue::relieve(std::thread::id held) {
  if (thread_.get_id() != held) return false;
  try {
    std::thread next([queue = queue_] { serve(queue); });
    thread_.detach();
    thread_ = std::move(next);
  } catch (const std::system_error& error) {
    spdlog::error("no thread for gRPC: calls wait until the host answers: {}", error.what());
    return false;
  }
  return true;
}

void RpcQueue::leave() {
  has_left = true;
}

void RpcQueue::serve(grpc_completion_queue* queue) {
  while (!has_left) {
    const auto event = grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), nullptr);
    if (event.type == GRPC_QUEUE_SHUTDOWN) return;
    if (event.type != GRPC_OP_COMPLETE) continue;
    const std::unique_ptr<Done> done(static_cast<Done*>(event.tag));
    (*done)(event.success != 0);
  }
}

}  // namespace ferry
