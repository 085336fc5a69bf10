// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "common/event_loop.h"

namespace ferry {

/// Connections of libcurl and the requests on them, driven by the loop, which sleeps while nothing comes.
/// Calls that libcurl forbids within its own callbacks are made after it has returned.
class CurlPool : public std::enable_shared_from_this<CurlPool> {
 public:
  /// Runs when a request has ended and left the pool. May add and remove requests, and release the pool.
  using Ended = std::function<void(CURL* request, CURLcode how)>;

  /// `loop` must outlive this.
  CurlPool(EventLoop& loop, Ended ended);
  CurlPool(const CurlPool&) = delete;
  CurlPool& operator=(const CurlPool&) = delete;
  CurlPool(CurlPool&&) = delete;
  CurlPool& operator=(CurlPool&&) = delete;
  ~CurlPool();

  /// The request stays the caller's, which removes it before freeing it.
  void add(CURL* request);
  /// A request that was never added or has ended is no error. Not within libcurl's callbacks: see busy().
  void remove(CURL* request);
  /// True within a callback of libcurl.
  bool busy() const { return busy_; }
  /// Runs `job` when libcurl has returned, before an end is reported.
  void when_idle(EventLoop::Job job) { waiting_.push_back(std::move(job)); }

 private:
  static int take_socket(CURL* request, curl_socket_t socket, int what, void* pool, void* of_socket);
  static int take_timer(CURLM* multi, long milliseconds, void* pool);
  void act(curl_socket_t socket, int events);
  void tell_ends();

  EventLoop& loop_;
  Ended ended_;
  CURLM* multi_;
  EventLoop::Timer timer_{};
  std::set<curl_socket_t> watched_;
  bool busy_ = false;
  std::vector<EventLoop::Job> waiting_;
};

}  // namespace ferry
