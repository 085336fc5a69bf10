// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <grpc/grpc.h>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <google/protobuf/message_lite.h>

#include "common/pinned.h"
#include "common/rpc/grpc_core.h"
#include "common/unique_fd.h"

namespace ferry {

class RpcQueue;

struct RpcAnswer {
  grpc_status_code status = GRPC_STATUS_OK;
  std::string message = {};    ///< of an error
  WireMessage wire = nullptr;  ///< null: none
};

RpcAnswer rpc_answer(const google::protobuf::MessageLite& message);
/// The error about a request that is no message of its method.
RpcAnswer unreadable_request();

/// Ends a call with its answer, and takes ownership of the call. Any thread may call.
void send_answer(grpc_call* call, RpcAnswer answer);

/// A server of gRPC for connections from add_connection(), without gRPC's filters, which cost a fifth of a
/// call. It limits messages itself. The client keeps its deadline and ends the call then. A compressed
/// request cannot be read; no kubelet sends one.
class RpcServer : Pinned {
 public:
  struct Method {
    const char* path = nullptr;  ///< "/v1beta1.DevicePlugin/Allocate"; a literal
    /// Runs on the queue's thread. It takes ownership of the call, which must get its end by send_answer() or
    /// an RpcStream before the server ends. A null `request` is no message.
    std::function<void(grpc_call* call, WireMessage request)> serve;
  };

  /// `queue` must outlive this object.
  RpcServer(RpcQueue& queue, std::vector<Method> methods);
  /// Stops the server, if it still runs.
  ~RpcServer();

  /// Serves a connected, non-blocking socket.
  void add_connection(UniqueFd connection);

  /// Accepts no more calls; does not wait.
  void begin_stop();
  /// Waits until all calls are over, and cancels those that are not over at `give_up`.
  void wait_stopped(std::chrono::steady_clock::time_point give_up);

 private:
  struct Registered {
    std::function<void(grpc_call*, WireMessage)> serve;
    void* handle = nullptr;
  };
  /// Asks gRPC for the next call of a method.
  void expect(const Registered& method);
  /// Asks gRPC for the next call of an unknown method, which gRPC does not answer by itself.
  void expect_other();

  RpcQueue& queue_;
  grpc_server* const server_;
  std::vector<Registered> methods_;  // never grows after the start, since calls refer to its elements
  std::future<void> stopped_;
};

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
