// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/client_call.h"

#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <string>
#include <utility>

#include "common/rpc/rpc_ops.h"

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

}  // namespace ferry
