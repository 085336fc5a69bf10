// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "tests/support/loopback.h"

namespace ferry::test {

/// Between a client and a server of the loopback: passes on what they say, TLS too, and fails where a test
/// wants it to. One connection at a time.
class FaultyWire {
 public:
  enum class Fault {
    end,      ///< the connection is closed, as by a server that ends
    reset,    ///< it is reset, and what was not read of it is lost
    silence,  ///< nothing more comes, until the client turns away
  };

  explicit FaultyWire(std::uint16_t server);

  std::string address() const { return "127.0.0.1:" + std::to_string(listens_.port()); }
  /// Once, when the server has said so many bytes more.
  void fail_after(std::uint64_t bytes, Fault fault);
  /// How many bytes the server has said in all.
  std::uint64_t said() const;

 private:
  void pass(int client);
  bool pass_answer(int client, int server);
  bool fails(int client);

  struct Planned {
    std::uint64_t left;
    Fault fault;
  };

  std::uint16_t server_;
  mutable std::mutex mutex_;
  std::optional<Planned> planned_;
  std::uint64_t said_ = 0;
  LoopbackServer listens_;
};

}  // namespace ferry::test
