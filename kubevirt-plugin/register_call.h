// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/result.h"

namespace ferry {

class ClientCall;
class ClientChannel;
class RpcQueue;

/// A call of v1beta1.Registration/Register.
class RegisterCall {
 public:
  /// Called once, on the queue's thread. Errc::unreachable: the kubelet did not answer; Errc::refused: it
  /// answered with an error.
  using Done = std::function<void(Result<>)>;

  /// Starts the call on a connection to the kubelet's socket, which other calls may share. The kubelet calls
  /// back before it answers, and `limit` covers both.
  RegisterCall(RpcQueue& queue, std::shared_ptr<const ClientChannel> kubelet, const std::string& endpoint,
               const std::string& resource, std::chrono::milliseconds limit, Done done);
  RegisterCall(const RegisterCall&) = delete;
  RegisterCall& operator=(const RegisterCall&) = delete;
  RegisterCall(RegisterCall&&) = delete;
  RegisterCall& operator=(RegisterCall&&) = delete;
  /// Cancels the call, if it is not over.
  ~RegisterCall();

  /// Ends the call now, if it is not over; `done` is still called.
  void cancel();

 private:
  std::shared_ptr<ClientCall> call_;
};

}  // namespace ferry
