// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "common/unique_fd.h"

namespace ferry::test {

/// A socket that listens on the loopback, on a port that nobody else has; `flags` of socket(). Throws where
/// there is none.
struct LoopbackListener {
  explicit LoopbackListener(int flags = 0);
  UniqueFd fd;
  std::uint16_t port = 0;
};

/// A port that nobody has.
std::uint16_t free_port();

/// A connection to that port of the loopback; invalid: nobody listens there.
UniqueFd connected_to_loopback(std::uint16_t port);

/// Who has heard enough and gone is no error.
void send_all(int connection, std::string_view bytes);

/// A thread that answers who comes to a port of the loopback, one connection after the other.
class LoopbackServer {
 public:
  explicit LoopbackServer(std::function<void(int connection)> answer);
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;
  LoopbackServer(LoopbackServer&&) = delete;
  LoopbackServer& operator=(LoopbackServer&&) = delete;
  ~LoopbackServer();

  std::uint16_t port() const { return listener_.port; }
  /// Until one of these descriptors can be read; which, in the order given. Empty: the server ends.
  std::vector<bool> readable(const std::vector<int>& descriptors) const;

 private:
  void serve();

  std::function<void(int)> answer_;
  LoopbackListener listener_;
  UniqueFd stop_;
  std::jthread thread_;
};

}  // namespace ferry::test
