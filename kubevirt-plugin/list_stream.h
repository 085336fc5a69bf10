// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <grpc/grpc.h>
#include <memory>
#include <mutex>
#include <string>

#include "kubevirt-plugin/allocation_core.h"

namespace ferry {

/// One ListAndWatch call: sends the lists of a DeviceStream one after the other, the next when gRPC has taken
/// the last. A kubelet that does not read holds up nobody and piles nothing up.
class ListStream : public std::enable_shared_from_this<ListStream> {
 public:
  /// Takes the call over.
  explicit ListStream(grpc_call* call) : call_(call) {}
  ListStream(const ListStream&) = delete;
  ListStream& operator=(const ListStream&) = delete;
  ListStream(ListStream&&) = delete;
  ListStream& operator=(ListStream&&) = delete;
  ~ListStream();

  /// `closed` is called once, on the queue's thread, when the call is over, whoever ended it.
  void start(AllocationCore& core, const std::string& resource, std::function<void()> closed);
  /// Ends it with OK after what is being sent. Any thread.
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
  bool sending_ = false;    // a list is on its way
  bool finishing_ = false;  // the status is to follow
  bool over_ = false;       // the status has been sent, or nobody is there to read it
};

}  // namespace ferry
