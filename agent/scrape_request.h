// SPDX-License-Identifier: Apache-2.0
// What a client of the metrics asks, from its bytes: as much of HTTP/1.1 as a scrape needs, and strictly that
// (RFC 9112). Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// The most bytes of a request, its headers included.
inline constexpr std::size_t kMostRequestBytes = 8 * 1024;

struct ScrapeRequest {
  enum class Progress {
    incomplete,  ///< more bytes are to come
    complete,
    refused,  ///< `status` says why; whatever comes after it is not read
  };
  Progress progress = Progress::incomplete;
  int status = 0;           ///< of `refused`: 400, 413, 431, 505
  std::string method = {};  ///< "GET"
  std::string path = {};    ///< "/metrics", without a query
  std::optional<std::string>
      token;  ///< that of "Authorization: Bearer TOKEN"; absent: none, or of another kind
};

/// What the bytes that a connection began with are. A request has no body.
ScrapeRequest read_scrape_request(std::string_view bytes);

/// What is answered; the whole of it. The connection ends with it.
std::string http_answer(int status, std::string_view content_type, std::string_view body);

}  // namespace ferry
