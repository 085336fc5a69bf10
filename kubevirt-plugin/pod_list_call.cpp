// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/pod_list_call.h"

#include <utility>

#include <fmt/format.h>

#include "common/wire_message.h"
#include "kubevirt-plugin/pod_list.h"
#include "kubevirt-plugin/pod_resources.h"
#include "kubevirt-plugin/rpc_queue.h"

namespace ferry {
namespace {

// A node of 250 pods with a dozen containers each makes about 1 MiB, with CPUs and memory listed too.
constexpr int kLargestAnswer = 16 * 1024 * 1024;

ClientCall::Question with_deadline(ClientCall::Question question) {
  question.deadline = kPodListDeadline;
  return question;
}

}  // namespace

ClientCall::Question pod_list_question() {
  return {.method = "/v1.PodResourcesLister/List",
          .message = WireMessage(grpc_raw_byte_buffer_create(nullptr, 0)),
          .deadline = {},
          .largest_answer = kLargestAnswer};
}

Result<PodList> pod_list_answer(const ClientCall& call) {
  if (call.status() != GRPC_STATUS_OK) {
    return fail(
        call.silent() ? Errc::unreachable : Errc::failed,
        fmt::format("the kubelet {}: {}", call.silent() ? "does not answer" : "refuses", call.text()));
  }
  const auto answer = bytes_of(call.answer());
  if (!answer) return fail(Errc::malformed_host, "the kubelet's answer cannot be unpacked");
  return read_pod_list(*answer);
}

PodListCall::PodListCall(RpcQueue& queue, UniqueFd connection, Done done)
    : call_(std::make_shared<ClientCall>(queue.get(), std::move(connection),
                                         with_deadline(pod_list_question()))) {
  RpcQueue::start(call_->get(), call_->ops(),
                  [call = call_, done = std::move(done)](bool /*ok*/) { done(pod_list_answer(*call)); });
}

PodListCall::~PodListCall() {
  grpc_call_cancel(call_->get(), nullptr);
}

}  // namespace ferry
