// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/tls_server.h"

#include <arpa/inet.h>
#include <chrono>
#include <csignal>
#include <netinet/in.h>
#include <stdexcept>
#include <sys/socket.h>
#include <thread>

#include "common/spawn.h"
#include "common/unique_fd.h"
#include "tests/support/must.h"

namespace ferry::test {
namespace {

sockaddr_in loopback(unsigned port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  address.sin_port = ::htons(static_cast<std::uint16_t>(port));
  return address;
}

bool answers(unsigned port) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

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

unsigned free_port() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), plain, size) != 0 || ::getsockname(socket.get(), plain, &size) != 0)
    throw std::runtime_error("no port on the loopback");
  return ::ntohs(address.sin_port);
}

TlsServer::TlsServer(const ScratchDirectory& folder)
    : port_(free_port()),
      pid_(must(
          spawn("sh",
                {"sh", "-c",
                 "cd \"$0\" && exec openssl s_server -HTTP -quiet -accept \"$1\" -cert cert.pem -key key.pem",
                 folder.path().string(), address()},
                {}))) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!answers(port_)) {
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
