// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/scratch_directory.h"

namespace ferry::test {

/// cert.pem and key.pem in the folder, signed by themselves and good for one name: "IP:127.0.0.1",
/// "DNS:registry.example".
void make_certificate(const ScratchDirectory& folder, const std::string& name);

/// `openssl s_server` with the folder's certificate; each file of the folder is an answer with its head.
class TlsServer {
 public:
  explicit TlsServer(const ScratchDirectory& folder);
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;
  TlsServer(TlsServer&&) = delete;
  TlsServer& operator=(TlsServer&&) = delete;
  ~TlsServer();

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  std::uint16_t port_;
  int pid_;
};

}  // namespace ferry::test
