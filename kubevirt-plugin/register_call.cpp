// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/register_call.h"

#include <utility>

#include <fmt/format.h>

#include "common/client_call.h"
#include "common/wire_message.h"
#include "deviceplugin.pb.h"
#include "kubevirt-plugin/resource_server.h"
#include "kubevirt-plugin/rpc_queue.h"

namespace ferry {
namespace {

WireMessage request_of(const std::string& endpoint, const std::string& resource) {
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(endpoint);
  request.set_resource_name(resource);
  // Present kubelets ask for the options; older ones take them from here.
  request.mutable_options()->set_get_preferred_allocation_available(kPrefersAllocations);
  return to_wire(request);
}

Result<> result_of(const ClientCall& call) {
  if (call.status() == GRPC_STATUS_OK) return {};
  return fail(call.silent() ? Errc::unreachable : Errc::refused,
              fmt::format("the kubelet {}: {}", call.silent() ? "does not answer" : "refuses", call.text()));
}

}  // namespace

RegisterCall::RegisterCall(RpcQueue& queue, std::shared_ptr<const ClientChannel> kubelet,
                           const std::string& endpoint, const std::string& resource,
                           std::chrono::milliseconds limit, Done done)
    : call_(std::make_shared<ClientCall>(queue.get(), std::move(kubelet),
                                         ClientCall::Question{.method = "/v1beta1.Registration/Register",
                                                              .message = request_of(endpoint, resource),
                                                              .deadline = limit})) {
  RpcQueue::start(call_->get(), call_->ops(),
                  [call = call_, done = std::move(done)](bool /*ok*/) { done(result_of(*call)); });
}

RegisterCall::~RegisterCall() {
  cancel();
}

void RegisterCall::cancel() {
  grpc_call_cancel(call_->get(), nullptr);
}

}  // namespace ferry
