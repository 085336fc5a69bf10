// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/register_call.h"

#include <array>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <utility>

#include <fmt/format.h>

#include "deviceplugin.pb.h"
#include "kubevirt-plugin/resource_server.h"
#include "kubevirt-plugin/rpc_ops.h"
#include "kubevirt-plugin/rpc_queue.h"

namespace ferry {
namespace {

// The kubelet may take ten seconds to dial back.
constexpr int kDeadlineSeconds = 20;

gpr_timespec deadline() {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(kDeadlineSeconds, GPR_TIMESPAN));
}

grpc_channel* open_channel(UniqueFd connection) {
  auto* const credentials = grpc_insecure_credentials_create();
  std::string key = GRPC_ARG_DEFAULT_AUTHORITY;
  std::string value = "localhost";
  grpc_arg authority = string_arg(key.data(), value.data());
  const grpc_channel_args args{.num_args = 1, .args = &authority};
  auto* const channel = grpc_channel_create_from_fd("kubelet.sock", connection.release(), credentials, &args);
  grpc_channel_credentials_release(credentials);
  return channel;
}

WireMessage request_of(const std::string& endpoint, const std::string& resource) {
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(endpoint);
  request.set_resource_name(resource);
  // Today's kubelets ask for the options; those of old take them from here.
  request.mutable_options()->set_get_preferred_allocation_available(kPrefersAllocations);
  return to_wire(request);
}

}  // namespace

struct RegisterCall::State {
  State(RpcQueue& queue, UniqueFd connection, WireMessage what)
      : channel(open_channel(std::move(connection))),
        call(grpc_channel_create_call(channel, nullptr, GRPC_PROPAGATE_DEFAULTS, queue.get(),
                                      grpc_slice_from_static_string("/v1beta1.Registration/Register"),
                                      nullptr, deadline(), nullptr)),
        request(std::move(what)) {
    grpc_metadata_array_init(&initial);
    grpc_metadata_array_init(&trailing);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;
  ~State() {
    grpc_metadata_array_destroy(&initial);
    grpc_metadata_array_destroy(&trailing);
    grpc_slice_unref(message);
    grpc_byte_buffer_destroy(response);
    grpc_call_unref(call);
    grpc_channel_destroy(channel);
  }

  Result<> result() const {
    if (status == GRPC_STATUS_OK) return {};
    const auto text = std::string_view(reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(message)),
                                       GRPC_SLICE_LENGTH(message));
    const bool silent = status == GRPC_STATUS_UNAVAILABLE || status == GRPC_STATUS_DEADLINE_EXCEEDED ||
                        status == GRPC_STATUS_CANCELLED;
    return fail(silent ? Errc::unreachable : Errc::refused,
                fmt::format("the kubelet {}: {}", silent ? "does not answer" : "refuses", text));
  }

  grpc_channel* channel;
  grpc_call* call;
  WireMessage request;
  grpc_metadata_array initial{};
  grpc_metadata_array trailing{};
  grpc_byte_buffer* response = nullptr;
  grpc_status_code status = GRPC_STATUS_UNKNOWN;
  grpc_slice message = grpc_empty_slice();
};

RegisterCall::RegisterCall(RpcQueue& queue, UniqueFd connection, const std::string& endpoint,
                           const std::string& resource, Done done)
    : state_(std::make_shared<State>(queue, std::move(connection), request_of(endpoint, resource))) {
  const std::array ops = {send_metadata_op(),
                          send_message_op(state_->request.get()),
                          send_close_op(),
                          recv_metadata_op(&state_->initial),
                          recv_message_op(&state_->response),
                          recv_status_op(&state_->trailing, &state_->status, &state_->message)};
  RpcQueue::start(state_->call, ops,
                  [state = state_, done = std::move(done)](bool /*ok*/) { done(state->result()); });
}

RegisterCall::~RegisterCall() {
  grpc_call_cancel(state_->call, nullptr);
}

}  // namespace ferry
