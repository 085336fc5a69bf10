// SPDX-License-Identifier: Apache-2.0
// persistenced-standin: has GPUs open and closes them on request, as nvidia-persistenced does.
//
// usage: persistenced-standin SOCKET LOG [--status N | --silent] ADDRESS=NODE...
// It serves the protocol of nvidia-persistenced at SOCKET, and opens each NODE at its start. An order for
// ADDRESS closes or opens the node and adds "ADDRESS on|off" to LOG. --status: it answers N and does nothing.
// --silent: it never answers. A line on standard output says that it listens. ABI:
// host/usage/nvidia_driver.h.
#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <map>
#include <rpc/rpc.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/unique_fd.h"

namespace {

constexpr rpcprog_t kProgram = 35006;
constexpr rpcvers_t kVersion = 1;
constexpr rpcproc_t kSetPersistenceMode = 1;
constexpr long kNoSuchGpu = 2;
constexpr long kDriverFailed = 3;

struct Daemon {
  std::map<std::string, std::string> nodes;       ///< by address
  std::map<std::string, ferry::UniqueFd> opened;  ///< by address
  std::string log;
  std::string fixed_status;
  bool silent = false;

  bool open(const std::string& address) {
    ferry::UniqueFd fd(::open(nodes.at(address).c_str(), O_RDWR | O_CLOEXEC));
    const bool is_open = fd.valid();
    if (is_open) opened[address] = std::move(fd);
    return is_open;
  }
  long set(const std::string& address, bool on) {
    std::ofstream(log, std::ios::app) << address << (on ? " on\n" : " off\n");
    if (!fixed_status.empty()) return std::stol(fixed_status);
    if (!nodes.contains(address)) return kNoSuchGpu;
    if (!on) opened.erase(address);
    return on && !opened.contains(address) && !open(address) ? kDriverFailed : 0;
  }
};

Daemon& daemon_of_this_process() {
  static Daemon daemon;
  return daemon;
}

using Order = std::array<long, 5>;  // domain, bus, slot, function, mode

bool_t decode(XDR* stream, Order* order) {
  for (long& word : *order)
    if (!XDR_GETLONG(stream, &word)) return FALSE;
  return TRUE;
}
bool_t encode(XDR* stream, const long* status) {
  return XDR_PUTLONG(stream, status);
}

template <typename T>
xdrproc_t untyped(bool_t (*procedure)(XDR*, T*)) {
  return reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(procedure));
}

void serve(svc_req* request, SVCXPRT* transport) {
  Order order{};
  if (request->rq_proc != kSetPersistenceMode) return svcerr_noproc(transport);
  if (!svc_getargs(transport, untyped(decode), reinterpret_cast<char*>(&order)))
    return svcerr_decode(transport);
  const auto [domain, bus, slot, function, mode] = order;
  Daemon& daemon = daemon_of_this_process();
  if (daemon.silent) return;
  long status = daemon.set(fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, slot, function), mode != 0);
  svc_sendreply(transport, untyped(encode), reinterpret_cast<char*>(&status));
}

int complain(std::string_view what) {
  std::cerr << "persistenced-standin: " << what << "\n";
  return EXIT_FAILURE;
}

int run(std::span<char* const> words) {
  constexpr std::size_t kFixed = 2;
  if (words.size() < kFixed) return complain("usage: SOCKET LOG [--status N | --silent] ADDRESS=NODE...");
  Daemon& daemon = daemon_of_this_process();
  daemon.log = words[1];
  for (std::size_t i = kFixed; i < words.size(); ++i) {
    const std::string word = words[i];
    if (word == "--silent") {
      daemon.silent = true;
    } else if (word == "--status" && i + 1 < words.size()) {
      daemon.fixed_status = words[++i];
    } else {
      const auto address = word.substr(0, word.find('='));
      daemon.nodes[address] = word.substr(address.size() + 1);
      if (!daemon.open(address)) return complain(daemon.nodes[address] + " cannot be opened");
    }
  }
  // The daemon clears its umask, so that its socket is for all users.
  ::umask(0);
  const int listening = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string_view(words[0]).copy(address.sun_path, sizeof(address.sun_path) - 1);
  ::unlink(address.sun_path);
  if (::bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listening, SOMAXCONN) != 0)
    return complain("it cannot listen");
  SVCXPRT* transport = svc_vc_create(listening, 0, 0);
  if (transport == nullptr || !svc_reg(transport, kProgram, kVersion, serve, nullptr))
    return complain("it cannot serve");
  std::cout << "it listens" << std::endl;
  svc_run();
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  return run(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
}
