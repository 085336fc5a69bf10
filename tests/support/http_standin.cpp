// SPDX-License-Identifier: Apache-2.0
#include "tests/support/http_standin.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <sys/socket.h>
#include <utility>

#include <fmt/format.h>

namespace ferry::test {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin);
}

constexpr char kTlsHandshake = 0x16;

// The head's lines; what is behind it stays in `text`.
ReceivedRequest parse_head(const std::string& head) {
  ReceivedRequest seen;
  const auto first_end = head.find("\r\n");
  const auto method_end = head.find(' ');
  const auto path_end = head.find(' ', method_end + 1);
  seen.method = head.substr(0, method_end);
  seen.path = head.substr(method_end + 1, path_end - method_end - 1);
  for (std::size_t at = first_end + 2; at < head.size();) {
    const auto end = std::min(head.find("\r\n", at), head.size());
    const std::string line = head.substr(at, end - at);
    if (const auto colon = line.find(':'); colon != std::string::npos)
      seen.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
    at = end + 2;
  }
  return seen;
}

}  // namespace

HttpStandin::HttpStandin(std::function<HttpAnswer(const ReceivedRequest&)> handler)
    : handler_(std::move(handler)), server_([this](int connection) { answer(connection); }) {}

std::vector<ReceivedRequest> HttpStandin::seen() const {
  const std::lock_guard guard(mutex_);
  return seen_;
}

void HttpStandin::answer(int connection) {
  std::string text;
  std::array<char, 4096> buffer{};
  std::size_t whole = std::string::npos;  // of head and body
  ReceivedRequest seen;
  while (text.size() < whole) {
    if (server_.readable({connection}).empty()) return;
    const ssize_t n = ::recv(connection, buffer.data(), buffer.size(), 0);
    if (n <= 0) return;
    text.append(buffer.data(), static_cast<std::size_t>(n));
    if (text.front() == kTlsHandshake) return;
    const auto head = text.find("\r\n\r\n");
    if (whole != std::string::npos || head == std::string::npos) continue;
    seen = parse_head(text.substr(0, head));
    const std::string length = seen.header("content-length");
    whole = head + 4 + (length.empty() ? 0 : std::stoul(length));
  }
  seen.body = text.substr(text.find("\r\n\r\n") + 4);
  {
    const std::lock_guard guard(mutex_);
    seen_.push_back(seen);
  }
  const HttpAnswer answer = handler_(seen);
  std::string head = fmt::format("HTTP/1.1 {} As the test says\r\nConnection: close\r\n", answer.status);
  for (const std::string& header : answer.headers) head += header + "\r\n";
  const std::string body = answer.body.substr(0, answer.sent);
  if (answer.chunked) {
    head += "Transfer-Encoding: chunked\r\n\r\n";
    if (!body.empty()) head += fmt::format("{:x}\r\n{}\r\n", body.size(), body);
    if (answer.sent >= answer.body.size()) head += "0\r\n\r\n";
  } else {
    head += fmt::format("Content-Length: {}\r\n\r\n", answer.body.size()) + body;
  }
  send_all(connection, head);
  // The client gives up first: it closes, and that can be read.
  if (answer.stalls) (void)server_.readable({connection});
}

}  // namespace ferry::test
