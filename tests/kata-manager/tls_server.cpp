// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/tls_server.h"

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "common/process/spawn.h"
#include "tests/support/loopback.h"
#include "tests/support/must.h"

namespace ferry::test {
void make_certificate(const ScratchDirectory& folder, const std::string& name) {
  const auto& root = folder.path();
  const int pid =
      must(spawn("openssl",
                 {"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                  "-nodes", "-days", "2", "-subj", "/CN=ferry test", "-addext", "subjectAltName=" + name,
                  "-keyout", (root / "key.pem").string(), "-out", (root / "cert.pem").string()},
                 {}));
  if (reap(pid) != 0) throw std::runtime_error("openssl makes no certificate");
}

TlsServer::TlsServer(const ScratchDirectory& folder)
    : port_(free_port()),
      pid_(must(
          spawn("sh",
                {"sh", "-c",
                 R"(cd "$0" && exec openssl s_server -HTTP -quiet -accept "$1" -cert cert.pem -key key.pem)",
                 folder.path().string(), address()},
                {}))) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!connected_to_loopback(port_).valid()) {
    if (std::chrono::steady_clock::now() > until)
      throw std::runtime_error("openssl s_server does not answer");
    std::this_thread::yield();
  }
}

TlsServer::~TlsServer() {
  ::kill(pid_, SIGKILL);
  reap(pid_);
}

}  // namespace ferry::test
