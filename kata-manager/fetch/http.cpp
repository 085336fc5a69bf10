// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/fetch/http.h"

#include <array>
#include <curl/curl.h>
#include <new>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "common/version.h"
#include "kata-manager/artifacts/image_reference.h"

namespace ferry::kata {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

struct FreeUrl {
  void operator()(CURLU* url) const { ::curl_url_cleanup(url); }
};
struct FreeList {
  void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
};
using Url = std::unique_ptr<CURLU, FreeUrl>;
using List = std::unique_ptr<curl_slist, FreeList>;

// The state of one request during libcurl's callbacks.
struct Exchange {
  const HttpRequest* request = nullptr;
  CURL* curl = nullptr;
  HttpReply reply;
  bool head_ended = false;
  std::optional<Error> failure;
};

constexpr int kOk = 200;
constexpr int kPartial = 206;
constexpr std::size_t kMostHeaders = 200;  // more headers count as an attack

std::size_t take_header(const char* bytes, std::size_t size, std::size_t count, void* to) {
  auto& exchange = *static_cast<Exchange*>(to);
  const std::string_view line = trimmed({bytes, size * count});
  if (line.starts_with("HTTP/")) {  // each reply begins anew, "100 Continue" too
    exchange.reply.headers.clear();
    exchange.head_ended = false;
  } else if (line.empty()) {
    exchange.head_ended = true;
  } else if (const auto colon = line.find(':'); colon != std::string_view::npos) {
    if (exchange.reply.headers.size() >= kMostHeaders) return 0;
    exchange.reply.headers.emplace(lower(trimmed(line.substr(0, colon))), trimmed(line.substr(colon + 1)));
  }
  return size * count;
}

std::size_t take_body(const char* bytes, std::size_t size, std::size_t count, void* to) {
  auto& exchange = *static_cast<Exchange*>(to);
  const std::string_view chunk(bytes, size * count);
  long status = 0;
  ::curl_easy_getinfo(exchange.curl, CURLINFO_RESPONSE_CODE, &status);
  exchange.reply.status = static_cast<int>(status);
  if (exchange.request->body && (status == kOk || status == kPartial)) {
    if (auto taken = exchange.request->body(exchange.reply, chunk); !taken) {
      exchange.failure = std::move(taken).error();
      return 0;
    }
    return chunk.size();
  }
  if (exchange.reply.text.size() + chunk.size() > exchange.request->most_text) {
    exchange.failure = {
        .code = make_error_code(Errc::refused),
        .message = fmt::format("the answer has more than {} bytes, the limit", exchange.request->most_text),
        .hint = {}};
    return 0;
  }
  exchange.reply.text += chunk;
  return chunk.size();
}

Errc code_of(CURLcode code) {
  switch (static_cast<int>(code)) {
    case CURLE_SSL_CACERT_BADFILE:
      return Errc::invalid_config;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_WRITE_ERROR:
    case CURLE_OUT_OF_MEMORY:
      return Errc::failed;
    default:
      return Errc::unreachable;
  }
}

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

struct HttpClient::Easy {
  CURL* curl = nullptr;
};

HttpClient::HttpClient(HttpSetup setup) : setup_(std::move(setup)), easy_(std::make_unique<Easy>()) {
  static const CURLcode kReady = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  easy_->curl = kReady == CURLE_OK ? ::curl_easy_init() : nullptr;
  if (easy_->curl == nullptr) throw std::bad_alloc();
}

HttpClient::~HttpClient() {
  ::curl_easy_cleanup(easy_->curl);
}

Result<HttpReply> HttpClient::perform(const HttpRequest& request) {
  CURL* const curl = easy_->curl;
  const auto origin = HttpOrigin::of(request.url);
  if (!origin) return fail(origin.error());
  ::curl_easy_reset(curl);  // keeps connections open
  Exchange exchange{.request = &request, .curl = curl, .reply = {}, .failure = {}};
  std::array<char, CURL_ERROR_SIZE> why{};
  List headers;
  for (const std::string& header : request.headers) {
    curl_slist* longer = ::curl_slist_append(headers.get(), header.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    (void)headers.release();
    headers.reset(longer);
  }

  ::curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  ::curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  // After a failed request libcurl keeps an HTTP/2 connection. If that is dead, each retry would wait for
  // it, so HTTP/1.1 is used.
  ::curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  ::curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  ::curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  ::curl_easy_setopt(curl, CURLOPT_USERAGENT, (std::string("ferry/") + kVersion).c_str());
  ::curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
  ::curl_easy_setopt(curl, CURLOPT_HEADERDATA, &exchange);
  ::curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
  ::curl_easy_setopt(curl, CURLOPT_WRITEDATA, &exchange);
  ::curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why.data());
  ::curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(setup_.patience.connect.count()));
  ::curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(setup_.patience.slow_bytes));
  ::curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(setup_.patience.slow.count()));
  ::curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
  ::curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
  ::curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
  const std::string no_proxy = fmt::format("{}", fmt::join(setup_.no_proxy, ","));
  if (!setup_.proxy.empty()) ::curl_easy_setopt(curl, CURLOPT_PROXY, setup_.proxy.c_str());
  if (!no_proxy.empty()) ::curl_easy_setopt(curl, CURLOPT_NOPROXY, no_proxy.c_str());
  // A proxy cannot reach this host's loopback.
  if (origin->is_loopback()) ::curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  if (!setup_.authorities.empty()) {
    // The system's certificates stay trusted, by their folder.
    curl_blob blob{
        .data = setup_.authorities.data(), .len = setup_.authorities.size(), .flags = CURL_BLOB_NOCOPY};
    ::curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &blob);
  }
  if (!request.username.empty() || !request.password.empty()) {
    ::curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    ::curl_easy_setopt(curl, CURLOPT_USERNAME, request.username.c_str());
    ::curl_easy_setopt(curl, CURLOPT_PASSWORD, request.password.c_str());
  }
  if (request.form) {
    ::curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.form->size()));
    ::curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.form->c_str());
  }

  const CURLcode code = ::curl_easy_perform(curl);
  if (exchange.failure) return fail(std::move(*exchange.failure));
  if (code != CURLE_OK) {
    const std::string_view said = why.front() != '\0' ? why.data() : ::curl_easy_strerror(code);
    return fail(code_of(code), fmt::format("{}: {}", origin->text(), said),
                code == CURLE_PEER_FAILED_VERIFICATION
                    ? "name the authority that signed its certificate, if it is yours"
                    : "");
  }
  // libcurl treats a head that was cut after its first line as whole, and its missing body as complete.
  if (!exchange.head_ended)
    return fail(Errc::unreachable, fmt::format("{}: cut off in the head of its answer", origin->text()));
  long status = 0;
  ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  exchange.reply.status = static_cast<int>(status);
  curl_off_t seconds = 0;
  ::curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &seconds);
  exchange.reply.retry_after = std::chrono::seconds(seconds);
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

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}
bool is_token(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kMarks.find(c) != std::string_view::npos;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool at_end() const { return text_.empty(); }
  void skip_blanks() {
    while (!text_.empty() && is_blank(text_.front())) text_.remove_prefix(1);
  }
  void skip_commas() {
    while (!text_.empty() && (is_blank(text_.front()) || text_.front() == ',')) text_.remove_prefix(1);
  }
  bool take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  std::string token() {
    std::size_t size = 0;
    while (size < text_.size() && is_token(text_[size])) ++size;
    std::string out(text_.substr(0, size));
    text_.remove_prefix(size);
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
  for (reader.skip_commas(); !reader.at_end(); reader.skip_commas()) {
    std::string word = reader.token();
    if (word.empty()) return out;
    reader.skip_blanks();
    // A word before '=' is a parameter of the current challenge; any other word begins a challenge.
    if (!reader.take('=')) {
      out.push_back({.scheme = lower(word), .parameters = {}});
      continue;
    }
    reader.skip_blanks();
    auto value = reader.value();
    if (!value || out.empty()) return out;
    out.back().parameters.emplace(lower(word), std::move(*value));
  }
  return out;
}

}  // namespace ferry::kata
