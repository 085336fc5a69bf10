// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <grpc/grpc.h>
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

}  // namespace ferry
