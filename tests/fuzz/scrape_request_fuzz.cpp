// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/metrics_listener.h"
#include "tests/fuzz/fuzz.h"

// What a client of the metrics sends.
void ferry::fuzz::one_input(std::string_view text) {
  using Progress = agent::ScrapeRequest::Progress;
  const agent::ScrapeRequest request = agent::read_scrape_request(text);
  switch (request.progress) {
    case Progress::incomplete:
      return require(text.size() < agent::kMostRequestBytes, "what is too long is refused");
    case Progress::refused:
      return require(request.status >= 400 && request.status < 600, "a refusal has a status");
    case Progress::complete:
      break;
  }
  require(request.path.starts_with('/'), "a path begins at the root");
  for (const char c : request.path + request.method) require(c > ' ' && c < '\x7f', "and can be printed");
  // The same bytes with more behind them are the same request.
  const agent::ScrapeRequest more = agent::read_scrape_request(std::string(text) + "GET / HTTP/1.1\r\n\r\n");
  require(more.progress == Progress::complete && more.path == request.path && more.token == request.token,
          "what comes after a request changes nothing of it");
}
