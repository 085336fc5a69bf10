// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/metrics/metrics_listener.h"

namespace ferry::agent {
namespace {

using Progress = ScrapeRequest::Progress;

std::string request(const std::string& headers = {}, const std::string& line = "GET /metrics HTTP/1.1") {
  return line + "\r\nHost: node7:9417\r\n" + headers + "\r\n";
}

TEST(ScrapeRequest, IsWhatPrometheusSends) {
  const ScrapeRequest read = read_scrape_request(request(
      "User-Agent: Prometheus/2.42.0\r\nAccept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n"
      "Accept-Encoding: gzip\r\nAuthorization: Bearer abc.def\r\n"
      "X-Prometheus-Scrape-Timeout-Seconds: 10\r\n",
      "GET /metrics?debug=1 HTTP/1.1"));
  EXPECT_EQ(read.progress, Progress::complete);
  EXPECT_EQ(read.method, "GET");
  EXPECT_EQ(read.path, "/metrics");
  EXPECT_EQ(read.token, "abc.def");
}

TEST(ScrapeRequest, IsIncompleteUntilItsLastByte) {
  const std::string whole = request("Authorization: Bearer t\r\n");
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(read_scrape_request(whole.substr(0, size)).progress, Progress::incomplete) << size;
  EXPECT_EQ(read_scrape_request(whole).progress, Progress::complete);
  EXPECT_EQ(read_scrape_request(whole + "GET /more").progress, Progress::complete);
}

TEST(ScrapeRequest, OfAnOlderClientNeedsNoHost) {
  EXPECT_EQ(read_scrape_request("GET /healthz HTTP/1.0\r\n\r\n").progress, Progress::complete);
}

TEST(ScrapeRequest, OfAnotherFormIsRefused) {
  for (const auto& [bytes, status] :
       {std::pair<std::string, int>{"GET /metrics HTTP/1.1\r\n\r\n", 400},  // no Host
        {request("Host: b\r\n"), 400},
        {request("", "GET  /metrics HTTP/1.1"), 400},
        {request("", "GET metrics HTTP/1.1"), 400},
        {request("", "GET http://node7/metrics HTTP/1.1"), 400},
        {request("", "GET /met\trics HTTP/1.1"), 400},
        {request("", "GET /a /b HTTP/1.1"), 400},
        {request("", "GET /metrics"), 400},
        {request("", "GET /metrics HTTP/11"), 400},
        {request("", "GET /metrics HTTP/x.y"), 400},
        {request("", " GET /metrics HTTP/1.1"), 400},
        {request("", "G\x01T /metrics HTTP/1.1"), 400},
        {request("", ""), 400},
        {request("", "GET /metrics HTTP/2.0"), 505},
        {request(" folded: a\r\n"), 400},
        {request("No-Colon\r\n"), 400},
        {request(": empty\r\n"), 400},
        {request("Spaced : a\r\n"), 400},
        {request("A: b\nC: d\r\n"), 400},
        {request(std::string("A: b\0c\r\n", 8)), 400},
        {request("A: \x7f\r\n"), 400},
        {request("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"), 400},
        {request("Content-Length: 1\r\n"), 413},
        {request("Content-Length: -0\r\n"), 413},
        {request("Transfer-Encoding: chunked\r\n"), 413},
        {"\x16\x03\x01\x02", 400},  // TLS
        {std::string("\0", 1), 400},
        {request("A: " + std::string(kMostRequestBytes, 'a') + "\r\n"), 431},
        {std::string(kMostRequestBytes, 'a'), 431}}) {
    const ScrapeRequest read = read_scrape_request(bytes);
    EXPECT_EQ(read.progress, Progress::refused) << bytes;
    EXPECT_EQ(read.status, status) << bytes;
  }
}

TEST(ScrapeRequest, AnEmptyBodyIsNone) {
  EXPECT_EQ(read_scrape_request(request("Content-Length: 0\r\n")).progress, Progress::complete);
}

TEST(ScrapeRequest, OnlyABearerHasAToken) {
  for (const auto& [header, token] : {std::pair<std::string, std::string>{"Bearer a", "a"},
                                      {"bearer   a.b  ", "a.b"},
                                      {"BEARER a b", "a b"},
                                      {"Bearer", "none"},
                                      {"Basic YTpi", "none"},
                                      {"", "none"}}) {
    const ScrapeRequest read = read_scrape_request(request("aUTHORIZATION: " + header + "\r\n"));
    EXPECT_EQ(read.progress, Progress::complete) << header;
    EXPECT_EQ(read.token.value_or("none"), token) << header;
  }
}

TEST(HttpAnswer, IsWhole) {
  EXPECT_EQ(http_answer(200, "text/plain", "ok\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nCache-Control: no-store\r\n"
            "Connection: close\r\n\r\nok\n");
  EXPECT_THAT(http_answer(401, "text/plain", ""), testing::HasSubstr("\r\nWWW-Authenticate: Bearer\r\n"));
  EXPECT_THAT(http_answer(405, "text/plain", ""), testing::HasSubstr("\r\nAllow: GET\r\n"));
}

}  // namespace
}  // namespace ferry::agent
