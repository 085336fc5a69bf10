// SPDX-License-Identifier: Apache-2.0
#include "kube/curl_pool.h"

#include <new>
#include <utility>

namespace ferry {
namespace {

// Connections kept open while unused. HTTP/2 needs one; without it there are as many as requests at once, and
// few of them are kept.
constexpr long kMostConnections = 8;

}  // namespace

CurlPool::CurlPool(EventLoop& loop, Ended ended)
    : loop_(loop), ended_(std::move(ended)), multi_(::curl_multi_init()) {
  if (multi_ == nullptr) throw std::bad_alloc();
  ::curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, take_socket);
  ::curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
  ::curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, take_timer);
  ::curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
  ::curl_multi_setopt(multi_, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
  ::curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, kMostConnections);
}

CurlPool::~CurlPool() {
  ::curl_multi_cleanup(multi_);
  loop_.cancel(timer_);
  for (const curl_socket_t socket : watched_) loop_.forget(socket);
}

void CurlPool::add(CURL* request) {
  ::curl_multi_add_handle(multi_, request);
}

void CurlPool::remove(CURL* request) {
  ::curl_multi_remove_handle(multi_, request);
}

int CurlPool::take_socket(CURL* /*request*/, curl_socket_t socket, int what, void* pool,
                          void* /*of_socket*/) {
  auto& self = *static_cast<CurlPool*>(pool);
  if (what == CURL_POLL_REMOVE) {
    self.watched_.erase(socket);
    self.loop_.forget(socket);
    return 0;
  }
  self.watched_.insert(socket);
  self.loop_.watch(socket,
                   {.read = what == CURL_POLL_IN || what == CURL_POLL_INOUT,
                    .write = what == CURL_POLL_OUT || what == CURL_POLL_INOUT},
                   [&self, socket](EventLoop::Readiness ready) {
                     self.act(socket,
                              (ready.read ? CURL_CSELECT_IN : 0) | (ready.write ? CURL_CSELECT_OUT : 0));
                   });
  return 0;
}

int CurlPool::take_timer(CURLM* /*multi*/, long milliseconds, void* pool) {
  auto& self = *static_cast<CurlPool*>(pool);
  self.loop_.cancel(self.timer_);
  self.timer_ = {};
  if (milliseconds < 0) return 0;
  self.timer_ = self.loop_.at(EventLoop::Clock::now() + std::chrono::milliseconds(milliseconds),
                              [&self] { self.act(CURL_SOCKET_TIMEOUT, 0); });
  return 0;
}

void CurlPool::act(curl_socket_t socket, int events) {
  const auto kept = shared_from_this();
  int running = 0;
  busy_ = true;
  ::curl_multi_socket_action(multi_, socket, events, &running);
  busy_ = false;
  for (const auto& job : std::exchange(waiting_, {})) job();
  tell_ends();
}

void CurlPool::tell_ends() {
  int left = 0;
  while (const CURLMsg* message = ::curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURL* const request = message->easy_handle;
    const CURLcode how = message->data.result;    // NOLINT(cppcoreguidelines-pro-type-union-access)
    ::curl_multi_remove_handle(multi_, request);  // frees the message
    ended_(request, how);
  }
}

}  // namespace ferry
