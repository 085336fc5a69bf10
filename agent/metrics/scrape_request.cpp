// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "agent/metrics/metrics_listener.h"
#include "common/text/text.h"

namespace ferry::agent {
namespace {

constexpr int kBadRequest = 400;
constexpr int kTooLarge = 413;
constexpr int kHeadersTooLarge = 431;
constexpr int kVersionNotSupported = 505;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_token(std::string_view text) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return is_letter(c) || is_digit(c) || kOthers.find(c) != std::string_view::npos;
  });
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t";
  const auto begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

ScrapeRequest refused(int status) {
  ScrapeRequest out;
  out.progress = ScrapeRequest::Progress::refused;
  out.status = status;
  return out;
}

/// The headers that count.
struct Headers {
  unsigned hosts = 0;
  bool has_body = false;
  unsigned authorizations = 0;
  std::optional<std::string> token;
};

// False: the line is no header.
bool read_header(std::string_view line, Headers& out) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return false;
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  const bool plain = std::ranges::all_of(
      value, [](char c) { return c == '\t' || (static_cast<unsigned char>(c) >= ' ' && c != '\x7f'); });
  if (!plain) return false;
  if (name == "host") ++out.hosts;
  if (name == "transfer-encoding" || (name == "content-length" && value != "0")) out.has_body = true;
  if (name != "authorization") return true;
  ++out.authorizations;
  const auto space = value.find(' ');
  if (space != std::string_view::npos && lower(value.substr(0, space)) == "bearer")
    out.token = std::string(trimmed(value.substr(space)));
  return true;
}

// False: the line is no request line. `version`: the text after HTTP/.
bool read_request_line(std::string_view line, ScrapeRequest& out, std::string& version) {
  constexpr std::string_view kHttp = " HTTP/";
  const auto space = line.find(' ');
  const auto http = line.rfind(kHttp);
  if (space == std::string_view::npos || http == std::string_view::npos || http <= space) return false;
  version = line.substr(http + kHttp.size());
  if (version.size() != 3 || !is_digit(version[0]) || version[1] != '.' || !is_digit(version[2]))
    return false;
  out.method = line.substr(0, space);
  const std::string_view target = line.substr(space + 1, http - space - 1);
  if (!is_token(out.method) || !target.starts_with('/')) return false;
  if (!std::ranges::all_of(target, [](char c) { return c > ' ' && c < '\x7f'; })) return false;
  out.path = target.substr(0, target.find('?'));
  return true;
}

std::string_view reason(int status) {
  constexpr std::array<std::pair<int, std::string_view>, 9> kReasons = {
      {{200, "OK"},
       {kBadRequest, "Bad Request"},
       {401, "Unauthorized"},
       {404, "Not Found"},
       {405, "Method Not Allowed"},
       {kTooLarge, "Content Too Large"},
       {kHeadersTooLarge, "Request Header Fields Too Large"},
       {503, "Service Unavailable"},
       {kVersionNotSupported, "HTTP Version Not Supported"}}};
  const auto* const found = std::ranges::find(kReasons, status, &std::pair<int, std::string_view>::first);
  return found == kReasons.end() ? std::string_view() : found->second;
}

}  // namespace

ScrapeRequest read_scrape_request(std::string_view bytes) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  constexpr std::string_view kLineEnd = "\r\n";
  const auto end = bytes.substr(0, kMostRequestBytes).find(kEnd);
  if (end == std::string_view::npos) {
    if (bytes.size() >= kMostRequestBytes) return refused(kHeadersTooLarge);
    // Bytes that do not begin like a request cannot become one, as from a TLS client.
    const bool begins = std::ranges::all_of(bytes.substr(0, bytes.find(' ')), is_letter);
    return begins ? ScrapeRequest() : refused(kBadRequest);
  }
  std::string_view rest = bytes.substr(0, end + kLineEnd.size());
  ScrapeRequest out;
  std::string version;
  Headers headers;
  for (bool first = true; !rest.empty(); first = false) {
    const auto line_end = rest.find(kLineEnd);
    const std::string_view line = rest.substr(0, line_end);
    rest.remove_prefix(line_end + kLineEnd.size());
    if (!(first ? read_request_line(line, out, version) : read_header(line, headers)))
      return refused(kBadRequest);
  }
  if (!version.starts_with("1.")) return refused(kVersionNotSupported);
  if (headers.authorizations > 1 || headers.hosts > 1 || (headers.hosts == 0 && version != "1.0"))
    return refused(kBadRequest);
  if (headers.has_body) return refused(kTooLarge);
  out.progress = ScrapeRequest::Progress::complete;
  out.token = std::move(headers.token);
  return out;
}

std::string http_answer(int status, std::string_view content_type, std::string_view body) {
  constexpr int kUnauthorized = 401;
  constexpr int kMethodNotAllowed = 405;
  std::string more;
  if (status == kUnauthorized) more = "WWW-Authenticate: Bearer\r\n";
  if (status == kMethodNotAllowed) more = "Allow: GET\r\n";
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n{}Connection: "
      "close\r\n\r\n{}",
      status, reason(status), content_type, body.size(), more, body);
}

}  // namespace ferry::agent
