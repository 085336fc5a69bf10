// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "common/event_loop.h"

namespace ferry {

/// Connections of libcurl's, and the requests on them, driven by the loop: it sleeps while nothing comes.
/// What libcurl must not be asked from within its own calls is done when it has returned.
class CurlPool : public std::enable_shared_from_this<CurlPool> {
 public:
  /// Hears of a request's end, when it is no longer in here. May add, remove, and let go of the pool.
  using Ended = std::function<void(CURL* request, CURLcode how)>;

  /// `loop` outlives it.
  CurlPool(EventLoop& loop, Ended ended);
  CurlPool(const CurlPool&) = delete;
  CurlPool& operator=(const CurlPool&) = delete;
  CurlPool(CurlPool&&) = delete;
  CurlPool& operator=(CurlPool&&) = delete;
  ~CurlPool();

  /// The request stays the caller's, who removes it before freeing it.
  void add(CURL* request);
  /// What was never added or has ended is no error. Not from within libcurl: see busy().
  void remove(CURL* request);
  /// Within a callback of a request's.
  bool busy() const { return busy_; }
  /// Runs `job` when libcurl has returned, before anybody hears of an end.
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
