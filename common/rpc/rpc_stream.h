// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <grpc/grpc.h>
#include <memory>
#include <mutex>
#include <string>

#include "common/pinned.h"
#include "common/rpc/grpc_core.h"

namespace ferry {

/// The server's side of a call whose answer is a stream. It takes a message from its source whenever gRPC has
/// taken the one before. A client that does not read delays no other call, and nothing piles up.
class RpcStream : public std::enable_shared_from_this<RpcStream>, Pinned {
 public:
  /// The next message; null: none is waiting.
  using Source = std::function<WireMessage()>;

  /// Takes ownership of the call.
  explicit RpcStream(grpc_call* call) : call_(call) {}
  ~RpcStream();

  /// `closed` is called once, on the queue's thread, when the call has ended for any reason.
  void start(std::function<void()> closed);
  /// Sends the messages of `source`. It is called by one thread at a time, and released when the call ends.
  void send_from(Source source);
  /// A message may be waiting. Any thread may call.
  void pump();
  /// Ends the call with OK after the message that is being sent. Any thread may call.
  void finish();
  /// Ends a call that has sent no message with an error.
  void refuse(grpc_status_code status, const std::string& message);

 private:
  void sent(bool ok);
  void send_status(grpc_status_code status, const std::string& message);

  grpc_call* const call_;
  int cancelled_ = 0;

  std::mutex mutex_;
  Source source_;
  bool greeted_ = false;    // initial metadata has been sent
  bool sending_ = false;    // a message is being sent
  bool finishing_ = false;  // the status comes next
  bool over_ = false;       // the status has been sent, or the client has gone
};

}  // namespace ferry
