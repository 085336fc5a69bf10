// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/socket_acceptor.h"

#include <chrono>

#include <spdlog/spdlog.h>

namespace ferry {
namespace {

// The pause until descriptors may be available again.
constexpr EventLoop::Clock::duration kNoDescriptors = std::chrono::seconds(1);

}  // namespace

SocketAcceptor::SocketAcceptor(EventLoop& loop, SocketFile socket, std::function<void(UniqueFd)> take)
    : loop_(loop), socket_(std::move(socket)), take_(std::move(take)) {
  loop_.watch(socket_.fd(), [this] { accept_all(); });
}

SocketAcceptor::~SocketAcceptor() {
  loop_.cancel(timer_);
  loop_.forget(socket_.fd());
}

void SocketAcceptor::accept_all() {
  auto connection = socket_.accept();
  for (; connection && *connection; connection = socket_.accept()) take_(std::move(**connection));
  if (connection) return;
  spdlog::warn("{}; trying again in a moment", connection.error().message);
  loop_.forget(socket_.fd());
  timer_ = loop_.at(EventLoop::Clock::now() + kNoDescriptors,
                    [this] { loop_.watch(socket_.fd(), [this] { accept_all(); }); });
}

}  // namespace ferry
