// SPDX-License-Identifier: Apache-2.0
// Serves metrics over HTTP: GET /metrics, with a token if one is configured, and GET /healthz. A connection
// has a single request. libmicrohttpd speaks HTTP and TLS 1.2 and 1.3, and bounds the connections
// (docs/adr/0045-the-library-bounds-the-connections-of-the-metrics.md).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "kube/credential_file.h"

struct MHD_Connection;
struct MHD_Daemon;

namespace ferry::agent {

/// A numeric address of this machine to listen on; names are not resolved.
struct ListenAddress {
  std::string host;  ///< IPv6 without brackets; "::" and "0.0.0.0" are all addresses
  std::uint16_t port = 0;
  bool operator==(const ListenAddress&) const = default;

  /// Parses "127.0.0.1:9417" or "[::]:9417"; "localhost" is 127.0.0.1. Errc::usage: a part is wrong, and the
  /// message names it.
  static Result<ListenAddress> parse(std::string_view text);
  bool is_loopback() const;
  std::string text() const;  ///< in the form that parse() takes
};

/// Only the loop's thread may use it. While kMostConnections are open, the kernel keeps further clients
/// waiting until a connection ends. A further connection of an address that has kMostOfOneAddress ends at
/// once.
class MetricsListener : Pinned {
 public:
  static constexpr std::size_t kMostConnections = 16;
  /// Enough for a pair of Prometheus servers behind the same address.
  static constexpr std::size_t kMostOfOneAddress = 4;
  /// Limit in bytes of a request, headers included.
  static constexpr std::size_t kMostRequestBytes = 8 * 1024;

  struct Settings {
    ListenAddress address = {};
    std::filesystem::path certificate = {};               ///< PEM; empty: no TLS
    std::filesystem::path key = {};                       ///< of the certificate
    std::filesystem::path token = {};                     ///< empty: each client is answered
    std::chrono::seconds idle = std::chrono::seconds(5);  ///< a connection without a byte ends after it
  };

  /// Begins to listen. `metrics` returns the content of each answer. The loop must outlive this object.
  /// Errc::usage: a token would cross the network without TLS, or the certificate or its key is missing.
  /// Errors: a file cannot be read now, or the address cannot be used.
  static Result<std::unique_ptr<MetricsListener>> open(EventLoop& loop, Settings settings,
                                                       std::function<std::string()> metrics);
  ~MetricsListener();

  /// The port in use, also if the settings leave it open.
  std::uint16_t port() const { return port_; }
  std::size_t connections() const { return clients_.size(); }

 private:
  struct Callbacks;
  struct StopServer {
    void operator()(MHD_Daemon* server) const noexcept;
  };
  using Server = std::unique_ptr<MHD_Daemon, StopServer>;
  struct Answer {
    unsigned status;
    std::string body;
    const char* content_type;
  };

  MetricsListener(EventLoop& loop, Settings settings, std::function<std::string()> metrics);
  Result<> begin();
  Result<> renew_server();
  Result<Server> start_server(std::string certificate, std::string key);
  void run_server();
  void accept_client();
  bool answer(MHD_Connection* client, std::string_view path, std::string_view method);
  Answer answer_to(MHD_Connection* client, std::string_view path, std::string_view method);
  Result<std::string> read_token();

  EventLoop& loop_;
  const Settings settings_;
  const std::function<std::string()> metrics_;
  kube::CredentialReader certificate_;
  kube::CredentialReader key_;
  kube::CredentialReader token_;
  std::string loaded_;             ///< the certificate and the key of `server_`
  std::string certificate_error_;  ///< last logged error of the certificate or its key
  std::string refusal_;            ///< last logged error of a client
  std::string token_error_;        ///< last logged error of the token file
  std::string server_error_;       ///< first message of the library since start_server()
  UniqueFd socket_;
  std::uint16_t port_ = 0;
  EventLoop::Timer run_;    ///< the next run_server() without any event
  EventLoop::Timer pause_;  ///< no client is taken until then; Timer(): each is
  std::set<int> clients_;   ///< sockets of the server, which closes them
  Server server_;
};

}  // namespace ferry::agent
