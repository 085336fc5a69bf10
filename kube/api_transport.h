// SPDX-License-Identifier: Apache-2.0
// Requests to one API server and their answers, without meaning and without a second try. Above it all runs
// in one thread, over the real server or over one in memory with a clock that tests turn.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/pinned.h"
#include "common/result.h"

namespace ferry::kube {

struct ApiRequest {
  std::string method = "GET";
  std::string path;  ///< from the root, with the query: "/api/v1/nodes?limit=1"; escaped by the caller
  std::string content_type = {};  ///< `body`'s; empty without a body
  std::string body = {};
  /// Time for the whole answer. 0: no limit, for a watch; then the answer has half a minute to begin, and
  /// `silence` ends a dead connection after that.
  std::chrono::milliseconds deadline{30'000};
  /// Time until the connection stands, shared by all addresses of the server's name, so that a dead address
  /// does not use up the deadline.
  std::chrono::milliseconds connect{10'000};
  /// The longest time without a byte once the answer has begun. 0: no limit.
  std::chrono::milliseconds silence{0};
};

struct ApiReply {
  int status = 0;
  std::string body;  ///< without the bytes that ApiListener::received got
  std::optional<std::chrono::seconds> retry_after = {};
};

struct ApiListener {
  /// Takes the body of a 200 as it comes, cut anywhere. Absent: the body is in ApiReply::body.
  std::function<void(std::string_view bytes)> received = {};
  /// Runs once, whatever happened, and last. Any HTTP status is an answer. Errors: Errc::unreachable (no
  /// connection, cut off, late: another try may help); Errc::failed (the server's certificate is not trusted,
  /// our credentials cannot be read); ApiErrc::too_large (the answer is above the limit).
  std::function<void(Result<ApiReply>)> ended;
};

class ApiTransport : Pinned {
 public:
  using Call = std::uint64_t;

  virtual ~ApiTransport() = default;

  /// Begins a request. The listener is never called within this call.
  virtual Call send(ApiRequest request, ApiListener listener) = 0;
  /// The call's listener hears nothing more. Allowed within a listener, and for a call that has ended.
  virtual void cancel(Call call) = 0;
};

}  // namespace ferry::kube
