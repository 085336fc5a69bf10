// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <grpc/grpc.h>
#include <memory>
#include <optional>
#include <string_view>

#include "common/unique_fd.h"
#include "common/wire_message.h"

namespace ferry {

/// A connection to another process of this host, for one call or for several that are made at one moment: to
/// make it and take it down costs more than a call. Needs grpc_init() to have been called.
class ClientChannel {
 public:
  static constexpr int kLargestAnswer = GRPC_DEFAULT_MAX_RECV_MESSAGE_LENGTH;  ///< bytes

  /// An answer larger than that is an error of its call.
  explicit ClientChannel(UniqueFd connection, int largest_answer = kLargestAnswer);
  ClientChannel(const ClientChannel&) = delete;
  ClientChannel& operator=(const ClientChannel&) = delete;
  ClientChannel(ClientChannel&&) = delete;
  ClientChannel& operator=(ClientChannel&&) = delete;
  ~ClientChannel();

  grpc_channel* get() const { return channel_; }

 private:
  grpc_channel* const channel_;
};

/// One unary call over such a connection.
class ClientCall {
 public:
  struct Question {
    const char* method;  ///< "/v1beta1.Registration/Register"; a literal
    WireMessage message;
    /// From now; the call is over then, one way or another. Absent: its owner cancels it in time.
    std::optional<std::chrono::milliseconds> deadline;
    /// Bytes, as ClientChannel has it; where the call shares none.
    int largest_answer = ClientChannel::kLargestAnswer;
  };

  /// Starts nothing: ops() has what is to be started, on `queue`.
  ClientCall(grpc_completion_queue* queue, std::shared_ptr<const ClientChannel> channel, Question question);
  /// Over a connection of its own.
  ClientCall(grpc_completion_queue* queue, UniqueFd connection, Question question);
  ClientCall(const ClientCall&) = delete;
  ClientCall& operator=(const ClientCall&) = delete;
  ClientCall(ClientCall&&) = delete;
  ClientCall& operator=(ClientCall&&) = delete;
  /// What was started must be done.
  ~ClientCall();

  grpc_call* get() const { return call_; }
  /// The whole call in one batch. It is done when the answer or the deadline has come, or it is cancelled,
  /// whatever the outcome.
  std::array<grpc_op, 6> ops();

  // When the batch is done.
  grpc_status_code status() const { return status_; }
  /// The status' text, as the other side or gRPC gives it.
  std::string_view text() const;
  /// Whether nobody answered, as against an answer that was an error.
  bool silent() const;
  /// nullptr when there is none.
  grpc_byte_buffer* answer() const { return answer_; }

 private:
  const std::shared_ptr<const ClientChannel> channel_;
  grpc_call* call_;
  WireMessage message_;
  grpc_metadata_array initial_{};
  grpc_metadata_array trailing_{};
  grpc_byte_buffer* answer_ = nullptr;
  grpc_status_code status_ = GRPC_STATUS_UNKNOWN;
  grpc_slice text_ = grpc_empty_slice();
};

}  // namespace ferry
