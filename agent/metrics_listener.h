// SPDX-License-Identifier: Apache-2.0
// Who may ask for the metrics, and is answered: GET /metrics, with the token where one is needed, and
// GET /healthz. One request a connection.
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

#include "agent/scrape_request.h"
#include "agent/tls_server.h"
#include "common/event_loop.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "kube/credential_file.h"

namespace ferry {

/// Where to listen: an address of this machine by its number, no name.
struct ListenAddress {
  std::string host;  ///< IPv6 without brackets; "::" and "0.0.0.0" are all addresses
  std::uint16_t port = 0;
  bool operator==(const ListenAddress&) const = default;

  /// Of "127.0.0.1:9417" or "[::]:9417"; "localhost" is 127.0.0.1. Errc::usage: which part is wrong.
  static Result<ListenAddress> parse(std::string_view text);
  bool is_loopback() const;
  std::string text() const;  ///< as parse() takes it
};

/// One thread, the loop's. However clients behave, there are no more than kMostConnections of them, each with
/// a bounded request and a bounded time. Where one comes too many, the oldest connection of an address that
/// has more than kMostOfOneAddress gives way to it, whatever that client does. Where no address has more,
/// whoever takes nothing of its answer gives way, then whoever is slow to ask; a client that takes its
/// answer, however slowly, keeps its time, and one that has just come is not sent away for the next while
/// others are being answered. One that finds no room waits for it.
class MetricsListener {
 public:
  static constexpr std::size_t kMostConnections = 16;
  /// While others need the room. A pair of Prometheus behind one address has twice as many.
  static constexpr std::size_t kMostOfOneAddress = 4;

  struct Settings {
    ListenAddress address = {};
    std::filesystem::path certificate = {};                        ///< PEM; empty: no TLS
    std::filesystem::path key = {};                                ///< with the certificate
    std::filesystem::path token = {};                              ///< empty: whoever asks is answered
    std::chrono::milliseconds to_ask = std::chrono::seconds(10);   ///< for the whole request, TLS included
    std::chrono::milliseconds to_take = std::chrono::seconds(30);  ///< for the whole answer
    std::chrono::milliseconds to_stall = std::chrono::seconds(1);  ///< in it, while others need the room
    std::chrono::milliseconds to_end = std::chrono::seconds(1);    ///< to close after it
  };

  /// Listens from here on. `metrics` gives what is shown, whenever it is asked. The loop must outlive this.
  /// Errc::usage: a token would go over the network without TLS, or one of certificate and key is missing.
  /// Errors: a file cannot be read now, the address is not to be had.
  static Result<std::unique_ptr<MetricsListener>> open(EventLoop& loop, Settings settings,
                                                       std::function<std::string()> metrics);
  MetricsListener(const MetricsListener&) = delete;
  MetricsListener& operator=(const MetricsListener&) = delete;
  MetricsListener(MetricsListener&&) = delete;
  MetricsListener& operator=(MetricsListener&&) = delete;
  ~MetricsListener();

  /// What it listens on, where the settings left that open.
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
  CredentialReader token_;
  std::string told_;  ///< why the token cannot be read
  UniqueFd socket_;
  std::uint16_t port_ = 0;
  EventLoop::Timer pause_;
  bool waits_for_room_ = false;  ///< and takes no connection until there is some
  Number last_ = 0;
  Connections connections_;  ///< the oldest first
};

}  // namespace ferry
