// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/faulty_wire.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <sys/socket.h>

namespace ferry::test {
namespace {

constexpr std::size_t kAtOnce = 64UL * 1024;

}  // namespace

FaultyWire::FaultyWire(std::uint16_t server)
    : server_(server), listens_([this](int client) { pass(client); }) {}

void FaultyWire::fail_after(std::uint64_t bytes, Fault fault) {
  const std::lock_guard guard(mutex_);
  planned_ = {.left = bytes, .fault = fault};
}

std::uint64_t FaultyWire::said() const {
  const std::lock_guard guard(mutex_);
  return said_;
}

void FaultyWire::pass(int client) {
  const UniqueFd server = connected_to_loopback(server_);
  if (!server.valid()) return;
  std::array<char, kAtOnce> buffer{};
  while (!fails(client)) {
    const auto readable = listens_.readable({client, server.get()});
    if (readable.empty()) return;
    if (readable[0]) {
      const ssize_t n = ::recv(client, buffer.data(), buffer.size(), 0);
      if (n <= 0) return;
      send_all(server.get(), {buffer.data(), static_cast<std::size_t>(n)});
    }
    if (readable[1] && !pass_answer(client, server.get())) return;
  }
}

// Whether that is where it was to fail: it has, then.
bool FaultyWire::fails(int client) {
  Fault fault{};
  {
    const std::lock_guard guard(mutex_);
    if (!planned_ || planned_->left > 0) return false;
    fault = planned_->fault;
    planned_.reset();
  }
  if (fault == Fault::reset) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }
  std::array<char, kAtOnce> unheard{};
  while (fault == Fault::silence && !listens_.readable({client}).empty() &&
         ::recv(client, unheard.data(), unheard.size(), 0) > 0) {
  }
  return true;
}

bool FaultyWire::pass_answer(int client, int server) {
  std::array<char, kAtOnce> buffer{};
  std::size_t most = buffer.size();
  {
    const std::lock_guard guard(mutex_);
    if (planned_) most = std::min<std::uint64_t>(most, planned_->left);
  }
  const ssize_t n = ::recv(server, buffer.data(), most, 0);
  if (n <= 0) return false;
  const auto size = static_cast<std::size_t>(n);
  {
    const std::lock_guard guard(mutex_);
    said_ += size;
    if (planned_) planned_->left -= std::min<std::uint64_t>(planned_->left, size);
  }
  send_all(client, {buffer.data(), size});
  return true;
}

}  // namespace ferry::test
