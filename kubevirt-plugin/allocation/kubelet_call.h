// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <grpc/grpc.h>
#include <memory>
#include <string>
#include <utility>

#include "common/pinned.h"
#include "common/result.h"
#include "common/rpc/client_call.h"
#include "common/rpc/rpc_queue.h"

namespace ferry::plugin {

/// An asynchronous call to the kubelet.
class KubeletCall : Pinned {
 public:
  /// Starts the call. `done` runs once, on the queue's thread.
  KubeletCall(std::shared_ptr<ClientCall> call, std::function<void(const ClientCall&)> done)
      : call_(std::move(call)) {
    RpcQueue::start(call_->get(), call_->ops(),
                    [running = call_, done = std::move(done)](bool /*ok*/) { done(*running); });
  }
  ~KubeletCall() { cancel(); }

  /// Ends the call now, if it is not over; `done` still runs.
  void cancel() { grpc_call_cancel(call_->get(), nullptr); }

 private:
  const std::shared_ptr<ClientCall> call_;
};

/// Errc::unreachable: the kubelet did not answer. `refusal`: it answered with an error.
inline Result<> result_of(const ClientCall& call, Errc refusal) {
  if (call.status() == GRPC_STATUS_OK) return {};
  const char* const what = call.silent() ? "does not answer: " : "refuses: ";
  return fail(call.silent() ? Errc::unreachable : refusal,
              std::string("the kubelet ") + what + std::string(call.text()));
}

}  // namespace ferry::plugin
