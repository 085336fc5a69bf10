// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/list_stream.h"

#include <array>
#include <utility>

#include "common/rpc_ops.h"
#include "common/wire_message.h"
#include "deviceplugin.pb.h"
#include "kubevirt-plugin/rpc_queue.h"

namespace ferry {
namespace {

v1beta1::ListAndWatchResponse message_of(const ListedResource& list) {
  v1beta1::ListAndWatchResponse message;
  message.mutable_devices()->Reserve(static_cast<int>(list.devices.size()));
  for (const auto& listed : list.devices) {
    auto& device = *message.add_devices();
    device.set_id(listed.id);
    device.set_health(listed.healthy() ? "Healthy" : "Unhealthy");
    if (listed.numa_node) device.mutable_topology()->add_nodes()->set_id(*listed.numa_node);
  }
  return message;
}

}  // namespace

ListStream::~ListStream() {
  grpc_call_unref(call_);
}

void ListStream::start(AllocationCore& core, const std::string& resource, std::function<void()> closed) {
  const grpc_op op = recv_close_op(&cancelled_);
  RpcQueue::start(call_, {&op, 1}, [self = shared_from_this(), closed = std::move(closed)](bool /*ok*/) {
    {
      const std::scoped_lock lock(self->mutex_);
      self->over_ = true;
      self->lists_ = nullptr;
    }
    closed();
  });

  auto lists = core.watch(resource, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->pump();
  });
  {
    const std::scoped_lock lock(mutex_);
    if (lists) {
      lists_ = std::move(*lists);
    } else {
      send_status(GRPC_STATUS_NOT_FOUND, lists.error().message);
    }
  }
  pump();
}

void ListStream::pump() {
  const std::scoped_lock lock(mutex_);
  if (sending_ || over_ || lists_ == nullptr) return;
  if (finishing_) return send_status(GRPC_STATUS_OK, {});
  const auto list = lists_->take();
  if (list == nullptr) return;

  const std::shared_ptr<grpc_byte_buffer> wire = to_wire(message_of(*list));
  const std::array ops = {send_message_op(wire.get()), send_metadata_op()};
  sending_ = true;
  RpcQueue::start(call_, std::span(ops).first(std::exchange(greeted_, true) ? 1 : 2),
                  [self = shared_from_this(), wire](bool ok) { self->sent(ok); });
}

void ListStream::sent(bool ok) {
  {
    const std::scoped_lock lock(mutex_);
    sending_ = false;
    if (!ok) over_ = true;  // the close operation of start() completes next and calls `closed`
  }
  pump();
}

void ListStream::finish() {
  {
    const std::scoped_lock lock(mutex_);
    finishing_ = true;
  }
  pump();
}

void ListStream::send_status(grpc_status_code status, const std::string& message) {
  over_ = true;
  const auto text = std::make_shared<grpc_slice>(to_slice(message));
  const std::array ops = {send_status_op(status, text.get()), send_metadata_op()};
  RpcQueue::start(call_, std::span(ops).first(std::exchange(greeted_, true) ? 1 : 2),
                  [self = shared_from_this(), text](bool /*ok*/) { grpc_slice_unref(*text); });
}

}  // namespace ferry
