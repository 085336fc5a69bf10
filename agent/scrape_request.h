// SPDX-License-Identifier: Apache-2.0
// Parses a request for metrics: only the part of HTTP/1.1 that a scrape needs, and strictly (RFC 9112). Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ferry {

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

}  // namespace ferry
