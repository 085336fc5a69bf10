// SPDX-License-Identifier: Apache-2.0
// Serves metrics over HTTP: GET /metrics, with a token if one is configured, and GET /healthz. A connection
// has a single request.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "kube/credential_file.h"

using SSL = struct ssl_st;
using SSL_CTX = struct ssl_ctx_st;

namespace ferry::agent {

// Parses a request for metrics: only the part of HTTP/1.1 that a scrape needs, and strictly (RFC 9112). Pure.

/// Limit in bytes of a request, headers included.
inline constexpr std::size_t kMostRequestBytes = 8 * 1024;

struct ScrapeRequest {
  enum class Progress {
    incomplete,  ///< more bytes are needed
    complete,
    refused,  ///< `status` says why; later bytes are not read
  };
  Progress progress = Progress::incomplete;
  int status = 0;                    ///< of `refused`: 400, 413, 431, 505
  std::string method = {};           ///< "GET"
  std::string path = {};             ///< "/metrics", without a query
  std::optional<std::string> token;  ///< bearer token; absent: none
};

/// Parses the bytes from the start of a connection. A request has no body.
ScrapeRequest read_scrape_request(std::string_view bytes);

/// The complete answer, after which the connection ends.
std::string http_answer(int status, std::string_view content_type, std::string_view body);

// A TLS server without a socket: it converts bytes to bytes. TLS 1.2 and 1.3, by OpenSSL.

/// A single connection. It keeps the parameters of its handshake to its end.
class TlsSession {
 public:
  explicit TlsSession(const std::shared_ptr<SSL_CTX>& context);

  /// Takes the client's bytes and appends the decrypted ones to `plain`. Errors: the client's TLS is not
  /// accepted; to_send() then has the alert.
  Result<> receive(std::string_view bytes, std::string& plain);
  /// Encrypts `plain` for the client. Only after receive() has returned data.
  void say(std::string_view plain);
  /// Ends the server's side; nothing may follow.
  void finish();
  /// The bytes to send to the client now.
  std::string to_send();

 private:
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
};

/// The server's certificate and key, from files that may be replaced.
class TlsFiles {
 public:
  TlsFiles(std::filesystem::path certificate, std::filesystem::path key);

  /// Context of a new connection, from the present files. If these do not match, the last pair stays, which
  /// is logged. Errors: there has been no valid pair.
  Result<std::shared_ptr<SSL_CTX>> now();

 private:
  Result<std::shared_ptr<SSL_CTX>> load();

  kube::CredentialReader certificate_;
  kube::CredentialReader key_;
  std::string loaded_;  ///< the files that `context_` was made of
  std::shared_ptr<SSL_CTX> context_;
  std::string told_;
};

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

/// For the loop's thread only. There are at most kMostConnections, each with a bounded request and a bounded
/// time. If another client comes, a connection makes room for it. The first choice is the oldest of an
/// address that has more than kMostOfOneAddress, whatever it does. Next is a client that takes nothing of its
/// answer, then a client that is slow to ask. A client that takes its answer, however slowly, keeps its time.
/// A new client does not make room for the next while others are being answered. Without such a connection
/// the client waits.
class MetricsListener : Pinned {
 public:
  static constexpr std::size_t kMostConnections = 16;
  /// Limit while others need room: enough for a pair of Prometheus servers behind the same address.
  static constexpr std::size_t kMostOfOneAddress = 4;

  struct Settings {
    ListenAddress address = {};
    std::filesystem::path certificate = {};                        ///< PEM; empty: no TLS
    std::filesystem::path key = {};                                ///< of the certificate
    std::filesystem::path token = {};                              ///< empty: each client is answered
    std::chrono::milliseconds to_ask = std::chrono::seconds(10);   ///< for the whole request, TLS included
    std::chrono::milliseconds to_take = std::chrono::seconds(30);  ///< for the whole answer
    std::chrono::milliseconds to_stall = std::chrono::seconds(1);  ///< without progress, if others need room
    std::chrono::milliseconds to_end = std::chrono::seconds(1);    ///< to close after the answer
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
  struct Connection;
  using Number = std::uint64_t;
  using Connections = std::map<Number, std::unique_ptr<Connection>>;

  MetricsListener(EventLoop& loop, Settings settings, std::function<std::string()> metrics);
  Result<> begin();
  void accept_all();
  void pause_accepting();
  void wait_for_room();
  void go_on_accepting();
  Connections::iterator who_gives_way();
  void take(UniqueFd socket, std::string address);
  void ready(Number number);
  bool receive(Connection& connection);
  bool send(Connection& connection);
  void answer(Connection& connection, const ScrapeRequest& request);
  std::string answer_to(const ScrapeRequest& request);
  std::string own_token();
  void wait(Number number, Connection& connection);
  void look_for_progress(Number number);
  void end(Number number);

  EventLoop& loop_;
  const Settings settings_;
  const std::function<std::string()> metrics_;
  std::optional<TlsFiles> tls_;
  kube::CredentialReader token_;
  std::string told_;  ///< last logged error of the token file
  UniqueFd socket_;
  std::uint16_t port_ = 0;
  EventLoop::Timer pause_;
  bool waits_for_room_ = false;  ///< no connection is accepted until there is room
  Number last_ = 0;
  Connections connections_;  ///< oldest first
};

}  // namespace ferry::agent
