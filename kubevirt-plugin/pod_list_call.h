// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "common/client_call.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "kubevirt-plugin/pod_list.h"

namespace ferry {

class RpcQueue;

/// v1.PodResourcesLister/List, without a deadline.
ClientCall::Question pod_list_question();
/// The call's result. Errors are those of list_pod_devices().
Result<PodList> pod_list_answer(const ClientCall& call);

/// An asynchronous call of List.
class PodListCall {
 public:
  /// Called once, on the queue's thread.
  using Done = std::function<void(Result<PodList>)>;

  /// Starts the call on a connection to the pod resources socket, with kPodListDeadline.
  PodListCall(RpcQueue& queue, UniqueFd connection, Done done);
  PodListCall(const PodListCall&) = delete;
  PodListCall& operator=(const PodListCall&) = delete;
  PodListCall(PodListCall&&) = delete;
  PodListCall& operator=(PodListCall&&) = delete;
  /// Cancels the call, if it is not over.
  ~PodListCall();

 private:
  std::shared_ptr<ClientCall> call_;
};

}  // namespace ferry
