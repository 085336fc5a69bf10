// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/client_call.h"

#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace ferry {
namespace {

grpc_channel* open_channel(UniqueFd connection, int largest_answer) {
  auto* const credentials = grpc_insecure_credentials_create();
  std::string authority = GRPC_ARG_DEFAULT_AUTHORITY;
  std::string host = "localhost";
  std::string largest = GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH;
  std::array settings = {string_arg(authority.data(), host.data()),
                         integer_arg(largest.data(), largest_answer)};
  const grpc_channel_args args{.num_args = settings.size(), .args = settings.data()};
  auto* const channel = grpc_channel_create_from_fd("local", connection.release(), credentials, &args);
  grpc_channel_credentials_release(credentials);
  return channel;
}

gpr_timespec end_of(std::optional<std::chrono::milliseconds> span) {
  if (!span) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(span->count(), GPR_TIMESPAN));
}

}  // namespace

ClientChannel::ClientChannel(UniqueFd connection, int largest_answer)
    : channel_(open_channel(std::move(connection), largest_answer)) {}

ClientChannel::~ClientChannel() {
  grpc_channel_destroy(channel_);
}

ClientCall::ClientCall(grpc_completion_queue* queue, std::shared_ptr<const ClientChannel> channel,
                       Question question)
    : channel_(std::move(channel)),
      call_(grpc_channel_create_call(channel_->get(), nullptr, GRPC_PROPAGATE_DEFAULTS, queue,
                                     grpc_slice_from_static_string(question.method), nullptr,
                                     end_of(question.deadline), nullptr)),
      message_(std::move(question.message)) {
  grpc_metadata_array_init(&initial_);
  grpc_metadata_array_init(&trailing_);
}

ClientCall::ClientCall(grpc_completion_queue* queue, UniqueFd connection, Question question)
    : ClientCall(queue, std::make_shared<const ClientChannel>(std::move(connection), question.largest_answer),
                 std::move(question)) {}

ClientCall::~ClientCall() {
  grpc_metadata_array_destroy(&initial_);
  grpc_metadata_array_destroy(&trailing_);
  grpc_slice_unref(text_);
  grpc_byte_buffer_destroy(answer_);
  grpc_call_unref(call_);
}

std::array<grpc_op, 6> ClientCall::ops() {
  return {send_metadata_op(),        send_message_op(message_.get()),
          send_close_op(),           recv_metadata_op(&initial_),
          recv_message_op(&answer_), recv_status_op(&trailing_, &status_, &text_)};
}

std::string_view ClientCall::text() const {
  return to_text(text_);
}

bool ClientCall::silent() const {
  return status_ == GRPC_STATUS_UNAVAILABLE || status_ == GRPC_STATUS_DEADLINE_EXCEEDED ||
         status_ == GRPC_STATUS_CANCELLED;
}

namespace {

/// A completion queue without a thread of its own, with gRPC initialized for its lifetime.
class WaitedQueue : Pinned {
 public:
  WaitedQueue() : queue_(make()) {}
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
