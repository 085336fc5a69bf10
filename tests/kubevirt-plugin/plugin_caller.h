// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

namespace ferry::plugin_test {

/// Asks the plugin what the stand-in for the kubelet would not, over a connection of its own.
class Caller {
 public:
  explicit Caller(const std::filesystem::path& socket, grpc::ChannelArguments arguments = {}) {
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ =
        grpc::CreateCustomChannel("unix:" + socket.string(), grpc::InsecureChannelCredentials(), arguments);
  }

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  /// `call` is a member of the service's stub.
  template <typename Stub, typename Request, typename Response>
  grpc::Status ask(grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Response*),
                   const Request& request, Response& response) const {
    grpc::ClientContext context;
    context.set_deadline(limit());
    return (Stub(channel_).*call)(&context, request, &response);
  }

  /// Sends bytes, whatever the method takes.
  grpc::Status send(const std::string& method, const std::string& bytes) const {
    grpc::ClientContext context;
    context.set_deadline(limit());
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::GenericStub stub(channel_);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
    grpc::ByteBuffer response;
    grpc::Status status;
    call->StartCall();
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }

 private:
  static std::chrono::system_clock::time_point limit() {
    return std::chrono::system_clock::now() + std::chrono::seconds(20);
  }

  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace ferry::plugin_test
