// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/rpc_stream.h"

#include <array>
#include <span>
#include <utility>

#include "common/rpc/rpc_queue.h"

namespace ferry {

RpcStream::~RpcStream() {
  grpc_call_unref(call_);
}

void RpcStream::start(std::function<void()> closed) {
  const grpc_op op = recv_close_op(&cancelled_);
  RpcQueue::start(call_, {&op, 1}, [self = shared_from_this(), closed = std::move(closed)](bool /*ok*/) {
    Source source;  // ends after the lock
    {
      const std::scoped_lock lock(self->mutex_);
      self->over_ = true;
      source = std::exchange(self->source_, nullptr);
    }
    closed();
  });
}

void RpcStream::send_from(Source source) {
  {
    const std::scoped_lock lock(mutex_);
    if (!over_) source_ = std::move(source);
  }
  pump();
}

void RpcStream::refuse(grpc_status_code status, const std::string& message) {
  const std::scoped_lock lock(mutex_);
  if (!over_) send_status(status, message);
}

void RpcStream::pump() {
  const std::scoped_lock lock(mutex_);
  if (sending_ || over_ || source_ == nullptr) return;
  if (finishing_) return send_status(GRPC_STATUS_OK, {});
  const std::shared_ptr<grpc_byte_buffer> wire = source_();
  if (wire == nullptr) return;

  const std::array ops = {send_message_op(wire.get()), send_metadata_op()};
  sending_ = true;
  RpcQueue::start(call_, std::span(ops).first(std::exchange(greeted_, true) ? 1 : 2),
                  [self = shared_from_this(), wire](bool ok) { self->sent(ok); });
}

void RpcStream::sent(bool ok) {
  {
    const std::scoped_lock lock(mutex_);
    sending_ = false;
    if (!ok) over_ = true;  // the close operation of start() completes next and calls `closed`
  }
  pump();
}

void RpcStream::finish() {
  {
    const std::scoped_lock lock(mutex_);
    finishing_ = true;
  }
  pump();
}

void RpcStream::send_status(grpc_status_code status, const std::string& message) {
  over_ = true;
  const auto text = std::make_shared<grpc_slice>(to_slice(message));
  const std::array ops = {send_status_op(status, text.get()), send_metadata_op()};
  RpcQueue::start(call_, std::span(ops).first(std::exchange(greeted_, true) ? 1 : 2),
                  [self = shared_from_this(), text](bool /*ok*/) { grpc_slice_unref(*text); });
}

}  // namespace ferry
