// SPDX-License-Identifier: Apache-2.0
// Requests to one API server and its answers, as they come and go: no meaning, no second try. Above it
// everything runs in one thread, over the real thing or over a server in memory with a clock that tests turn.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

struct ApiRequest {
  std::string method = "GET";
  std::string path;  ///< from the root, with the query: "/api/v1/nodes?limit=1"; escaped by the caller
  std::string content_type = {};  ///< of `body`; empty where there is none
  std::string body = {};
  /// For all of the answer. 0: none, since a watch goes on; then `silence` is what ends a dead connection,
  /// once the answer has begun, for which half a minute is enough.
  std::chrono::milliseconds deadline{30'000};
  /// Until the connection stands, whatever addresses of the server's name are tried for it: they share this,
  /// so that one that is down does not use up the deadline.
  std::chrono::milliseconds connect{10'000};
  /// The longest time without a byte once the answer has begun. 0: any.
  std::chrono::milliseconds silence{0};
};

struct ApiReply {
  int status = 0;
  std::string body;  ///< empty of what ApiListener::received has had
  std::optional<std::chrono::seconds> retry_after = {};
};

struct ApiListener {
  /// Takes the body of a 200 as it comes, cut anywhere. Absent: it is in ApiReply::body.
  std::function<void(std::string_view bytes)> received = {};
  /// Once, whatever happened, and nothing after it. Any HTTP status is an answer; the errors are
  /// Errc::unreachable (no connection, cut off, no answer by the deadline: another try may help),
  /// Errc::failed (the server's certificate is not trusted, our own credentials cannot be read) and
  /// ApiErrc::too_large (the answer is larger than an answer may be).
  std::function<void(Result<ApiReply>)> ended;
};

class ApiTransport {
 public:
  using Call = std::uint64_t;

  ApiTransport() = default;
  ApiTransport(const ApiTransport&) = delete;
  ApiTransport& operator=(const ApiTransport&) = delete;
  ApiTransport(ApiTransport&&) = delete;
  ApiTransport& operator=(ApiTransport&&) = delete;
  virtual ~ApiTransport() = default;

  /// Begins a request. The listener is never called from within this.
  virtual Call send(ApiRequest request, ApiListener listener) = 0;
  /// Its listener hears nothing more. Allowed from within a listener, and for a call that has ended.
  virtual void cancel(Call call) = 0;
};

}  // namespace ferry
