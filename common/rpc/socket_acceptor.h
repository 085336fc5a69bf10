// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/rpc/socket_file.h"
#include "common/unique_fd.h"

namespace ferry {

/// Accepts the connections of a socket in the loop. While descriptors are short, it pauses: the socket would
/// stay readable and keep the loop busy. Belongs to the loop's thread.
class SocketAcceptor : Pinned {
 public:
  /// `take` gets each connection, non-blocking. The loop must outlive this object.
  SocketAcceptor(EventLoop& loop, SocketFile socket, std::function<void(UniqueFd)> take);
  ~SocketAcceptor();

  /// True: the name still leads to this socket.
  bool is_there() const { return socket_.is_there(); }

 private:
  void accept_all();

  EventLoop& loop_;
  const SocketFile socket_;
  const std::function<void(UniqueFd)> take_;
  EventLoop::Timer timer_;  // until it fires, no connection is accepted
};

}  // namespace ferry
