// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <grpc/grpc.h>
#include <memory>
#include <mutex>
#include <string>

#include "kubevirt-plugin/allocation_core.h"

namespace ferry {

/// A ListAndWatch call. It sends the lists of a DeviceStream one after the other, each once gRPC has taken
/// the one before. A kubelet that does not read delays no other call, and nothing piles up.
class ListStream : public std::enable_shared_from_this<ListStream> {
 public:
  /// Takes ownership of the call.
  explicit ListStream(grpc_call* call) : call_(call) {}
  ListStream(const ListStream&) = delete;
  ListStream& operator=(const ListStream&) = delete;
  ListStream(ListStream&&) = delete;
  ListStream& operator=(ListStream&&) = delete;
  ~ListStream();

  /// `closed` is called once, on the queue's thread, when the call has ended for any reason.
  void start(AllocationCore& core, const std::string& resource, std::function<void()> closed);
  /// Ends the call with OK after the list that is being sent. Any thread may call.
  void finish();

 private:
  void pump();
  void sent(bool ok);
  void send_status(grpc_status_code status, const std::string& message);

  grpc_call* const call_;
  int cancelled_ = 0;

  std::mutex mutex_;
  std::shared_ptr<DeviceStream> lists_;
  bool greeted_ = false;    // initial metadata has been sent
  bool sending_ = false;    // a list is being sent
  bool finishing_ = false;  // the status comes next
  bool over_ = false;       // the status has been sent, or the client has gone
};

}  // namespace ferry
