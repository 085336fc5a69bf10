// SPDX-License-Identifier: Apache-2.0
// Serves metrics over HTTP: GET /metrics, with a token if one is configured, and GET /healthz. A connection
// has a single request. libmicrohttpd speaks HTTP and TLS 1.2 and 1.3; this file bounds its connections
// (docs/adr/0033-libmicrohttpd-serves-the-metrics.md).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// Only the loop's thread may use it. There are at most kMostConnections. If another client comes, the oldest
/// connection of an address that has more than kMostOfOneAddress ends, whatever it does. Without such an
/// address the client waits until a connection ends, at most about `to_stall` while others make no progress:
/// then all that take nothing of their answers end, and if there are none, all that send nothing of their
/// requests. A client that takes its answer, however slowly, keeps its time.
class MetricsListener : Pinned {
 public:
  static constexpr std::size_t kMostConnections = 16;
  /// Limit while others need room: enough for a pair of Prometheus servers behind the same address.
  static constexpr std::size_t kMostOfOneAddress = 4;
  /// Limit in bytes of a request, headers included.
  static constexpr std::size_t kMostRequestBytes = 8 * 1024;

  struct Settings {
    ListenAddress address = {};
    std::filesystem::path certificate = {};                        ///< PEM; empty: no TLS
    std::filesystem::path key = {};                                ///< of the certificate
    std::filesystem::path token = {};                              ///< empty: each client is answered
    std::chrono::milliseconds to_ask = std::chrono::seconds(10);   ///< for the whole request, TLS included
    std::chrono::milliseconds to_take = std::chrono::seconds(30);  ///< for the whole answer
    std::chrono::milliseconds to_stall = std::chrono::seconds(1);  ///< without progress, if others need room
  };

  /// Begins to listen. `metrics` returns the content of each answer. The loop must outlive this object.
  /// Errc::usage: a token would cross the network without TLS, or the certificate or its key is missing.
  /// Errors: a file cannot be read now, or the address cannot be used.
  static Result<std::unique_ptr<MetricsListener>> open(EventLoop& loop, Settings settings,
                                                       std::function<std::string()> metrics);
  ~MetricsListener();

  /// The port in use, also if the settings leave it open.
  std::uint16_t port() const { return port_; }
  std::size_t connections() const { return connections_.size(); }

 private:
  struct Callbacks;
  struct StopServer {
    void operator()(MHD_Daemon* server) const noexcept;
  };
  using Server = std::unique_ptr<MHD_Daemon, StopServer>;
  struct Connection {
    int socket = -1;  ///< the server's, which closes it
    std::string address;
    EventLoop::Clock::time_point since = {};     ///< when it was accepted
    bool is_answered = false;                    ///< its answer is being sent
    EventLoop::Timer deadline = {};              ///< of the request or of the answer
    std::optional<std::uint64_t> progress = {};  ///< bytes until the last look_for_progress()
  };
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
  void pause_accepting();
  void wait_for_room();
  void look_for_progress();
  void end_one_of_a_crowd();
  void limit(Connection& connection, std::chrono::milliseconds time);
  void closed(int socket);
  bool answer(MHD_Connection* client, std::string_view path, std::string_view method);
  Answer answer_to(MHD_Connection* client, std::string_view path, std::string_view method);
  std::string own_token();

  EventLoop& loop_;
  const Settings settings_;
  const std::function<std::string()> metrics_;
  kube::CredentialReader certificate_;
  kube::CredentialReader key_;
  kube::CredentialReader token_;
  std::string loaded_;             ///< the certificate and the key of `server_`
  std::string certificate_error_;  ///< last logged error of the certificate or its key
  std::string token_error_;        ///< last logged error of the token file
  std::string refusal_;            ///< last logged error of a client that the library refused
  std::string server_error_;       ///< first message of the library since start_server()
  UniqueFd socket_;
  std::uint16_t port_ = 0;
  EventLoop::Timer pause_;
  bool waits_for_room_ = false;          ///< no client is accepted until a connection ends
  EventLoop::Timer progress_;            ///< the next look_for_progress()
  EventLoop::Timer run_;                 ///< the server has more to do without any event
  std::vector<Connection> connections_;  ///< oldest first
  Server server_;
};

}  // namespace ferry::agent
