// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/fetch/http.h"

#include <algorithm>
#include <curl/curl.h>
#include <new>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/http/curl_request.h"
#include "common/text/text.h"
#include "kata-manager/artifacts/image_reference.h"

namespace ferry::kata {
namespace {

struct FreeUrl {
  void operator()(CURLU* url) const { ::curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, FreeUrl>;

constexpr int kOk = 200;
constexpr int kPartial = 206;
constexpr std::size_t kMostHeaders = 200;  // more headers count as an attack

// The state of one request during libcurl's callbacks.
struct Exchange {
  const HttpRequest* request = nullptr;
  const CurlRequest* curl = nullptr;
  HttpReply reply = {};
  bool head_ended = false;
  std::optional<Error> failure = {};

  bool take_header(std::string_view text) {
    const std::string_view line = trimmed(text);
    if (line.starts_with("HTTP/")) {  // each reply begins anew, "100 Continue" too
      reply.headers.clear();
      head_ended = false;
    } else if (line.empty()) {
      head_ended = true;
    } else if (const auto colon = line.find(':'); colon != std::string_view::npos) {
      if (reply.headers.size() >= kMostHeaders) return false;
      reply.headers.emplace(lower(trimmed(line.substr(0, colon))), trimmed(line.substr(colon + 1)));
    }
    return true;
  }

  bool take_body(std::string_view chunk) {
    reply.status = curl->status();
    if (request->body && (reply.status == kOk || reply.status == kPartial)) {
      auto taken = request->body(reply, chunk);
      if (!taken) failure = std::move(taken).error();
      return !failure;
    }
    if (reply.text.size() + chunk.size() > request->most_text) {
      failure = {.code = make_error_code(Errc::refused),
                 .message = fmt::format("the answer has more than {} bytes, the limit", request->most_text),
                 .hint = {}};
      return false;
    }
    reply.text += chunk;
    return true;
  }
};

Result<Url> parsed_url(const std::string& text) {
  Url url(::curl_url());
  if (url == nullptr) throw std::bad_alloc();
  if (::curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK)
    return fail(Errc::malformed_host, fmt::format("'{}' is no URL", text));
  return url;
}

std::string part(const Url& url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (::curl_url_get(url.get(), which, &text, flags) != CURLUE_OK) return {};
  std::string out(text);
  ::curl_free(text);
  return out;
}

}  // namespace

std::string HttpReply::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

HttpClient::HttpClient(const FetchRequest& settings)
    : settings_(settings), curl_(std::make_unique<CurlRequest>()) {}

HttpClient::~HttpClient() = default;

Result<HttpReply> HttpClient::perform(const HttpRequest& request) {
  const auto origin = HttpOrigin::of(request.url);
  if (!origin) return fail(origin.error());
  CurlRequest& curl = *curl_;
  Exchange exchange{.request = &request, .curl = &curl};
  curl.begin(request.url, settings_.patience.connect);
  // After a failed request libcurl keeps an HTTP/2 connection. If that is dead, each retry would wait for
  // it, so HTTP/1.1 is used.
  curl.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl.set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(settings_.patience.slow_bytes));
  curl.set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(settings_.patience.slow.count()));
  for (const std::string& header : request.headers) curl.add_header(header);
  curl.receive(exchange);
  const std::string no_proxy = fmt::format("{}", fmt::join(settings_.no_proxy, ","));
  if (!settings_.proxy.empty()) curl.set(CURLOPT_PROXY, settings_.proxy.c_str());
  if (!no_proxy.empty()) curl.set(CURLOPT_NOPROXY, no_proxy.c_str());
  // A proxy cannot reach this host's loopback.
  if (origin->is_loopback()) curl.set(CURLOPT_NOPROXY, "*");
  curl.trust(settings_.authorities, true);
  curl.sign_in(request.username, request.password);
  if (request.form) curl.send(*request.form);

  const CURLcode code = ::curl_easy_perform(curl.handle());
  if (exchange.failure) return fail(std::move(*exchange.failure));
  if (code != CURLE_OK) {
    Error error = curl.failure(code).during(origin->text());
    if (code == CURLE_SSL_CACERT_BADFILE) error.code = make_error_code(Errc::invalid_config);
    if (code == CURLE_PEER_FAILED_VERIFICATION)
      error.hint = "name the authority that signed its certificate, if it is yours";
    return fail(std::move(error));
  }
  // libcurl treats a head that was cut after its first line as whole, and its missing body as complete.
  if (!exchange.head_ended)
    return fail(Errc::unreachable, fmt::format("{}: cut off in the head of its answer", origin->text()));
  exchange.reply.status = curl.status();
  exchange.reply.retry_after = curl.retry_after();
  return std::move(exchange.reply);
}

Result<HttpOrigin> HttpOrigin::of(const std::string& url) {
  auto parsed = parsed_url(url);
  if (!parsed) return fail(std::move(parsed).error());
  HttpOrigin origin{.scheme = part(*parsed, CURLUPART_SCHEME),
                    .host = lower(part(*parsed, CURLUPART_HOST)),
                    .port = part(*parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  if ((origin.scheme != "http" && origin.scheme != "https") || origin.host.empty())
    return fail(Errc::malformed_host, fmt::format("'{}' is no URL of http or https", url));
  if (!part(*parsed, CURLUPART_USER).empty() || !part(*parsed, CURLUPART_PASSWORD).empty())
    return fail(Errc::malformed_host, fmt::format("a URL of {} has credentials in it", origin.host));
  return origin;
}

bool HttpOrigin::is_loopback() const {
  return ferry::kata::is_loopback(host);
}

Result<std::string> resolve_url(const std::string& base, const std::string& location) {
  auto url = parsed_url(base);
  if (!url) return fail(std::move(url).error());
  if (::curl_url_set(url->get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK)
    return fail(Errc::malformed_host, fmt::format("'{}' is no URL", location));
  std::string whole = part(*url, CURLUPART_URL);
  if (auto origin = HttpOrigin::of(whole); !origin) return fail(std::move(origin).error());
  return whole;
}

namespace {

constexpr std::string_view kBlanks = " \t";

bool is_token(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return is_alphanumeric(c) || kMarks.find(c) != std::string_view::npos;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool at_end() const { return text_.empty(); }
  void skip(std::string_view signs) {
    text_.remove_prefix(std::min(text_.find_first_not_of(signs), text_.size()));
  }
  bool take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  std::string token() {
    std::string out(text_.begin(), std::ranges::find_if_not(text_, is_token));
    text_.remove_prefix(out.size());
    return out;
  }
  std::optional<std::string> value() {
    if (!take('"')) {
      auto word = token();
      return word.empty() ? std::nullopt : std::optional(std::move(word));
    }
    std::string out;
    while (!text_.empty()) {
      char c = text_.front();
      text_.remove_prefix(1);
      if (c == '"') return out;
      if (c == '\\') {
        if (text_.empty()) break;
        c = text_.front();
        text_.remove_prefix(1);
      }
      out.push_back(c);
    }
    return std::nullopt;  // the quote does not end
  }

 private:
  std::string_view text_;
};

}  // namespace

std::vector<AuthChallenge> parse_auth_challenges(std::string_view header) {
  std::vector<AuthChallenge> out;
  Reader reader(header);
  for (reader.skip(" \t,"); !reader.at_end(); reader.skip(" \t,")) {
    std::string word = reader.token();
    if (word.empty()) return out;
    reader.skip(kBlanks);
    // A word before '=' is a parameter of the current challenge; any other word begins a challenge.
    if (!reader.take('=')) {
      out.push_back({.scheme = lower(word), .parameters = {}});
      continue;
    }
    reader.skip(kBlanks);
    auto value = reader.value();
    if (!value || out.empty()) return out;
    out.back().parameters.emplace(lower(word), std::move(*value));
  }
  return out;
}

}  // namespace ferry::kata
