// SPDX-License-Identifier: Apache-2.0
#include "common/waited_call.h"

#include <utility>

#include <fmt/format.h>

namespace ferry {
namespace {

/// A completion queue without a thread of its own, with gRPC initialized for its lifetime.
class WaitedQueue {
 public:
  WaitedQueue() : queue_(make()) {}
  WaitedQueue(const WaitedQueue&) = delete;
  WaitedQueue& operator=(const WaitedQueue&) = delete;
  WaitedQueue(WaitedQueue&&) = delete;
  WaitedQueue& operator=(WaitedQueue&&) = delete;
  ~WaitedQueue() {
    grpc_completion_queue_shutdown(queue_);
    wait();
    grpc_completion_queue_destroy(queue_);
    grpc_shutdown_blocking();  // joins gRPC's own threads, unless gRPC is still in use
  }

  grpc_completion_queue* get() const { return queue_; }
  /// False: nothing is done by `end`.
  bool wait(gpr_timespec end = gpr_inf_future(GPR_CLOCK_MONOTONIC)) {
    return grpc_completion_queue_next(queue_, end, nullptr).type != GRPC_QUEUE_TIMEOUT;
  }

 private:
  static grpc_completion_queue* make() {
    grpc_init();
    return grpc_completion_queue_create_for_next(nullptr);
  }
  grpc_completion_queue* const queue_;
};

}  // namespace

Result<> call_and_wait(UniqueFd connection, ClientCall::Question question, std::chrono::milliseconds deadline,
                       const std::function<void(const ClientCall&)>& answered) {
  WaitedQueue queue;
  question.deadline.reset();
  ClientCall call(queue.get(), std::move(connection), std::move(question));
  const auto ops = call.ops();
  if (const auto error = grpc_call_start_batch(call.get(), ops.data(), ops.size(), nullptr, nullptr);
      error != GRPC_CALL_OK) {
    return fail(Errc::failed, fmt::format("gRPC takes no call: {}", grpc_call_error_to_string(error)));
  }
  // The deadline is kept here: gRPC keeps its own in a thread that may still have the call when it is over.
  // That thread and others of gRPC's would end some time after this returns.
  const auto end =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(deadline.count(), GPR_TIMESPAN));
  if (!queue.wait(end)) {
    grpc_call_cancel(call.get(), nullptr);
    queue.wait();
    return fail(Errc::unreachable, fmt::format("no answer in {} ms", deadline.count()));
  }
  answered(call);
  return {};
}

}  // namespace ferry
