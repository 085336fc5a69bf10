// SPDX-License-Identifier: Apache-2.0
#include "tests/support/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace ferry::test {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  address.sin_port = ::htons(port);
  return address;
}

}  // namespace

LoopbackListener::LoopbackListener(int flags) : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0)) {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd.get(), plain, size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0 ||
      ::getsockname(fd.get(), plain, &size) != 0)
    throw std::runtime_error("no port on the loopback");
  port = ::ntohs(address.sin_port);
}

std::uint16_t free_port() {
  return LoopbackListener().port;
}

UniqueFd connected_to_loopback(std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return {};
  return fd;
}

void send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

LoopbackServer::LoopbackServer(std::function<void(int)> answer)
    : answer_(std::move(answer)), stop_(::eventfd(0, EFD_CLOEXEC)), thread_([this] { serve(); }) {}

LoopbackServer::~LoopbackServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof(one));
}

std::vector<bool> LoopbackServer::readable(const std::vector<int>& descriptors) const {
  std::vector<pollfd> watched;
  watched.reserve(descriptors.size() + 1);
  for (const int fd : descriptors) watched.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  watched.push_back({.fd = stop_.get(), .events = POLLIN, .revents = 0});
  while (::poll(watched.data(), watched.size(), -1) < 0) {
  }
  if (watched.back().revents != 0) return {};
  std::vector<bool> out(descriptors.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = watched[i].revents != 0;
  return out;
}

void LoopbackServer::serve() {
  while (!readable({listener_.fd.get()}).empty()) {
    const UniqueFd connection(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid()) answer_(connection.get());
  }
}

}  // namespace ferry::test
