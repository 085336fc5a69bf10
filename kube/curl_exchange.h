// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <curl/curl.h>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "common/event_loop.h"
#include "kube/api_transport.h"
#include "kube/cluster_access.h"
#include "kube/curl_pool.h"

namespace ferry {

/// The credentials of a ClusterAccess at the moment of a request.
struct CredentialsNow {
  std::string authorities;  ///< PEM; empty: the system's
  std::string certificate;
  std::string key;
  std::string token;
};

/// A request, and its answer so far.
class CurlExchange {
 public:
  using Clock = EventLoop::Clock;

  CurlExchange(ApiTransport::Call call, ApiRequest request, ApiListener listener);
  CurlExchange(const CurlExchange&) = delete;
  CurlExchange& operator=(const CurlExchange&) = delete;
  CurlExchange(CurlExchange&&) = delete;
  CurlExchange& operator=(CurlExchange&&) = delete;
  ~CurlExchange();

  /// Sets libcurl's options. Errc::failed: the request is invalid.
  Result<> prepare(const ClusterAccess& access, const CredentialsNow& credentials);
  /// Adds the request to the pool, and keeps the pool alive.
  void begin(std::shared_ptr<CurlPool> pool);
  const std::shared_ptr<CurlPool>& pool() const { return pool_; }

  ApiTransport::Call call() const { return call_; }
  CURL* handle() const { return easy_; }
  const ApiListener& listener() const { return listener_; }
  /// Takes no more bytes.
  void cancel() { cancelled_ = true; }

  /// The time at which the request is late, as known now: a byte may move it. Absent: never.
  std::optional<Clock::time_point> late_at() const;
  /// The error of a late request.
  Error too_late() const;
  /// The result for the listener.
  Result<ApiReply> outcome(CURLcode how);

  /// The transport's timer for late_at().
  EventLoop::Timer watchdog{};
  /// Runs when the answer begins: from then on late_at() may be earlier.
  EventLoop::Job begun;

 private:
  static std::size_t take_header(const char* bytes, std::size_t size, std::size_t count, void* exchange);
  static std::size_t take_body(const char* bytes, std::size_t size, std::size_t count, void* exchange);
  void take_any();
  bool take(std::string_view bytes);
  void add_header(const std::string& line);
  void set_credentials(const ClusterAccess& access, const CredentialsNow& credentials);
  Error error(std::error_code code, std::string_view why) const;

  struct FreeList {
    void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
  };
  using List = std::unique_ptr<curl_slist, FreeList>;

  ApiTransport::Call call_;
  ApiRequest request_;
  ApiListener listener_;
  CURL* easy_;
  List headers_;
  List connect_to_;
  std::string server_;
  std::array<char, CURL_ERROR_SIZE> why_{};
  std::shared_ptr<CurlPool> pool_;

  Clock::time_point began_ = Clock::now();
  std::optional<Clock::time_point> last_byte_;
  std::string body_;
  bool too_large_ = false;
  bool cancelled_ = false;
};

}  // namespace ferry
