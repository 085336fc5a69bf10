// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <grpc/grpc.h>
#include <memory>
#include <optional>
#include <string_view>

#include "common/pinned.h"
#include "common/result.h"
#include "common/rpc/grpc_core.h"
#include "common/unique_fd.h"

namespace ferry {

/// A connection to another process of this host, for one call or for several at the same time: connecting
/// costs more than a call. Call grpc_init() first.
class ClientChannel : Pinned {
 public:
  static constexpr int kLargestAnswer = GRPC_DEFAULT_MAX_RECV_MESSAGE_LENGTH;  ///< bytes

  /// An answer larger than `largest_answer` fails its call.
  explicit ClientChannel(UniqueFd connection, int largest_answer = kLargestAnswer);
  ~ClientChannel();

  grpc_channel* get() const { return channel_; }

 private:
  grpc_channel* const channel_;
};

class ClientCall : Pinned {
 public:
  struct Question {
    const char* method;  ///< "/v1beta1.Registration/Register"; a literal
    WireMessage message;
    /// Time from now after which gRPC ends the call. Absent: the call's owner cancels it in time.
    std::optional<std::chrono::milliseconds> deadline;
    /// Bytes; used only if the call makes a channel of its own.
    int largest_answer = ClientChannel::kLargestAnswer;
  };

  /// Starts nothing: the caller starts ops() on `queue`.
  ClientCall(grpc_completion_queue* queue, std::shared_ptr<const ClientChannel> channel, Question question);
  /// Makes a channel of its own.
  ClientCall(grpc_completion_queue* queue, UniqueFd connection, Question question);
  /// A batch that was started must be done.
  ~ClientCall();

  grpc_call* get() const { return call_; }
  /// All operations of the call as one batch. The batch is done once an answer or the deadline has come, or
  /// the call was cancelled.
  std::array<grpc_op, 6> ops();

  // Valid once the batch is done.
  grpc_status_code status() const { return status_; }
  /// The status text, from the other side or from gRPC.
  std::string_view text() const;
  /// True: no answer came. An error from the other side is an answer.
  bool silent() const;
  /// nullptr: no answer.
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

/// Makes one call and waits, without a thread of its own. `answered` runs once the other side has answered or
/// the connection broke, with any ClientCall::status. Leaves no thread and no connection behind. The
/// question's own deadline is ignored. Errors: Errc::unreachable, no answer by the deadline.
Result<> call_and_wait(UniqueFd connection, ClientCall::Question question, std::chrono::milliseconds deadline,
                       const std::function<void(const ClientCall&)>& answered);

}  // namespace ferry
