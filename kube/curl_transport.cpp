// SPDX-License-Identifier: Apache-2.0
#include "kube/curl_transport.h"

#include <algorithm>
#include <curl/curl.h>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/event_loop.h"
#include "common/http/curl_request.h"
#include "common/pinned.h"
#include "kube/api_error.h"
#include "kube/credential_file.h"

namespace ferry::kube {
namespace {

using std::chrono::milliseconds;

// Connections kept open while unused. HTTP/2 needs one; without it there are as many as requests at once, and
// few of them are kept.
constexpr long kMostConnections = 8;

constexpr int kOk = 200;
// Time for an answer to begin if the whole has no deadline.
constexpr milliseconds kBegins{30'000};
// Keepalive notices a dead peer, or a middlebox that forgot the connection, beside ApiRequest::silence.
constexpr long kKeepaliveSeconds = 30;
constexpr long kUploadBytes = 16L << 10U;  // our bodies are small; libcurl's default is four times that

std::string duration(milliseconds time) {
  constexpr milliseconds kSecond{1000};
  return time % kSecond == milliseconds(0) ? fmt::format("{} s", time / kSecond)
                                           : fmt::format("{} ms", time.count());
}

}  // namespace

/// Connections of libcurl and the requests on them, driven by the loop, which sleeps while nothing comes.
/// Calls that libcurl forbids within its own callbacks are made after it has returned.
class CurlPool : public std::enable_shared_from_this<CurlPool>, Pinned {
 public:
  /// Runs when a request has ended and left the pool. May add and remove requests, and release the pool.
  using Ended = std::function<void(CURL* request, CURLcode how)>;

  /// `loop` must outlive this.
  CurlPool(EventLoop& loop, Ended ended)
      : loop_(loop), ended_(std::move(ended)), multi_(::curl_multi_init()) {
    if (multi_ == nullptr) throw std::bad_alloc();
    ::curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, take_socket);
    ::curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
    ::curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, take_timer);
    ::curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
    ::curl_multi_setopt(multi_, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
    ::curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, kMostConnections);
  }
  ~CurlPool() {
    ::curl_multi_cleanup(multi_);
    loop_.cancel(timer_);
    for (const curl_socket_t socket : watched_) loop_.forget(socket);
  }

  /// The request stays the caller's, which removes it before freeing it.
  void add(CURL* request) { ::curl_multi_add_handle(multi_, request); }
  /// A request that was never added or has ended is no error. Not within libcurl's callbacks: see busy().
  void remove(CURL* request) { ::curl_multi_remove_handle(multi_, request); }
  /// True within a callback of libcurl.
  bool busy() const { return busy_; }
  /// Runs `job` when libcurl has returned, before an end is reported.
  void when_idle(EventLoop::Job job) { waiting_.push_back(std::move(job)); }

 private:
  static int take_socket(CURL* /*request*/, curl_socket_t socket, int what, void* pool, void* /*of_socket*/) {
    auto& self = *static_cast<CurlPool*>(pool);
    if (what == CURL_POLL_REMOVE) {
      self.watched_.erase(socket);
      self.loop_.forget(socket);
      return 0;
    }
    self.watched_.insert(socket);
    self.loop_.watch(socket,
                     {.read = what == CURL_POLL_IN || what == CURL_POLL_INOUT,
                      .write = what == CURL_POLL_OUT || what == CURL_POLL_INOUT},
                     [&self, socket](EventLoop::Readiness ready) {
                       self.act(socket,
                                (ready.read ? CURL_CSELECT_IN : 0) | (ready.write ? CURL_CSELECT_OUT : 0));
                     });
    return 0;
  }
  static int take_timer(CURLM* /*multi*/, long wait, void* pool) {
    auto& self = *static_cast<CurlPool*>(pool);
    self.loop_.cancel(self.timer_);
    self.timer_ = {};
    if (wait < 0) return 0;
    self.timer_ = self.loop_.at(EventLoop::Clock::now() + milliseconds(wait),
                                [&self] { self.act(CURL_SOCKET_TIMEOUT, 0); });
    return 0;
  }
  void act(curl_socket_t socket, int events) {
    const auto kept = shared_from_this();
    int running = 0;
    busy_ = true;
    ::curl_multi_socket_action(multi_, socket, events, &running);
    busy_ = false;
    for (const auto& job : std::exchange(waiting_, {})) job();
    report_ends();
  }
  void report_ends() {
    int left = 0;
    while (const CURLMsg* message = ::curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      CURL* const request = message->easy_handle;
      const CURLcode how = message->data.result;    // NOLINT(cppcoreguidelines-pro-type-union-access)
      ::curl_multi_remove_handle(multi_, request);  // frees the message
      ended_(request, how);
    }
  }

  EventLoop& loop_;
  Ended ended_;
  CURLM* multi_;
  EventLoop::Timer timer_{};
  std::set<curl_socket_t> watched_;
  bool busy_ = false;
  std::vector<EventLoop::Job> waiting_;
};

/// A request, and its answer so far.
class CurlExchange : Pinned {
 public:
  using Clock = EventLoop::Clock;

  CurlExchange(ApiTransport::Call call, ApiRequest request, ApiListener listener)
      : call_(call), request_(std::move(request)), listener_(std::move(listener)) {}
  ~CurlExchange() {
    if (pool_ != nullptr) pool_->remove(curl_.handle());
  }

  /// Sets libcurl's options. `access`: see CurlTransport::access_now(). Errc::failed: the request is invalid.
  Result<> prepare(const ClusterAccess& access) {
    server_ = access.server.text();
    // Refuses requests that could lead to another server or add a header.
    const bool is_path = request_.path.starts_with('/') &&
                         std::ranges::all_of(request_.path, [](char c) { return c > ' ' && c < '\x7F'; });
    const bool is_method = !request_.method.empty() &&
                           std::ranges::all_of(request_.method, [](char c) { return c >= 'A' && c <= 'Z'; });
    constexpr std::string_view kBreaks("\r\n\0", 3);
    if (!is_path || !is_method || request_.content_type.find_first_of(kBreaks) != std::string::npos)
      return fail(error(Errc::failed, "it is no request"));

    // libcurl checks the certificate for the URL's host, so the certificate's name is in the URL.
    ServerAddress named = access.server;
    if (!access.tls_server_name.empty()) named.host = access.tls_server_name;
    curl_.begin(named.text() + request_.path, request_.connect);
    if (!access.tls_server_name.empty()) {
      append(connect_to_, fmt::format("::{}", access.server.authority()));
      curl_.set(CURLOPT_CONNECT_TO, connect_to_.get());
      curl_.add_header("Host: " + access.server.authority());
    }
    curl_.set(CURLOPT_PATH_AS_IS, 1L);
    curl_.set(CURLOPT_PROTOCOLS_STR, access.server.tls ? "https" : "http");
    curl_.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2TLS));
    // Waits for the one connection instead of opening another. TLS negotiates HTTP/2. Without TLS there is
    // HTTP/1.1, where a request would wait for the end of a watch.
    curl_.set(CURLOPT_PIPEWAIT, access.server.tls ? 1L : 0L);
#if LIBCURL_VERSION_NUM >= 0x075700
    // Without this option the end of a request waits for the thread that asks a silent DNS server.
    curl_.set(CURLOPT_QUICK_EXIT, 1L);
#endif
    curl_.set(CURLOPT_TCP_KEEPIDLE, kKeepaliveSeconds);
    curl_.set(CURLOPT_TCP_KEEPINTVL, kKeepaliveSeconds / 3);
    curl_.set(CURLOPT_UPLOAD_BUFFERSIZE, kUploadBytes);
    // The proxy is chosen already; without these, libcurl would read the environment.
    curl_.set(CURLOPT_PROXY, access.proxy.c_str());
    curl_.set(CURLOPT_NOPROXY, "");
    curl_.set(CURLOPT_PRIVATE, this);
    curl_.receive(*this);

    set_credentials(access);
    // A compressed stream would arrive when the compressor flushes it.
    const bool is_a_stream = listener_.received && request_.deadline == milliseconds(0);
    if (access.compressed && !is_a_stream) curl_.set(CURLOPT_ACCEPT_ENCODING, "gzip");
    curl_.add_header("Accept: application/json");
    curl_.set(CURLOPT_CUSTOMREQUEST, request_.method.c_str());
    if (!request_.body.empty() || request_.method == "POST") {
      curl_.send(request_.body);
      curl_.add_header("Content-Type:" + (request_.content_type.empty() ? "" : " " + request_.content_type));
      curl_.add_header("Expect:");  // no extra round trip for a small body
    }
    return {};
  }
  /// Adds the request to the pool, and keeps the pool alive.
  void begin(std::shared_ptr<CurlPool> pool) {
    pool_ = std::move(pool);
    pool_->add(curl_.handle());
  }
  const std::shared_ptr<CurlPool>& pool() const { return pool_; }

  ApiTransport::Call call() const { return call_; }
  const ApiListener& listener() const { return listener_; }
  /// Takes no more bytes.
  void cancel() { cancelled_ = true; }

  /// The time at which the request is late, as known now: a byte may move it. Absent: never.
  std::optional<Clock::time_point> late_at() const {
    const bool has_deadline = request_.deadline > milliseconds(0);
    std::optional<Clock::time_point> at;
    if (has_deadline || !last_byte_) at = began_ + (has_deadline ? request_.deadline : kBegins);
    if (request_.silence > milliseconds(0) && last_byte_) {
      const auto silent = *last_byte_ + request_.silence;
      at = at ? std::min(*at, silent) : silent;
    }
    return at;
  }
  /// The error of a late request.
  Error too_late() const {
    const bool has_deadline = request_.deadline > milliseconds(0);
    if (has_deadline && Clock::now() >= began_ + request_.deadline)
      return error(Errc::unreachable, "no whole answer within " + duration(request_.deadline));
    return error(Errc::unreachable, last_byte_ ? "nothing more for " + duration(request_.silence)
                                               : "no answer within " + duration(kBegins));
  }
  /// The result for the listener.
  Result<ApiReply> outcome(CURLcode how) {
    if (too_large_)
      return fail(
          error(make_error_code(ApiErrc::too_large),
                fmt::format("the answer has more than {} bytes, the limit", CurlTransport::kMostBody)));
    if (how != CURLE_OK) {
      const Error reason = curl_.failure(how);
      Error out = error(reason.code, reason.message);
      if (how == CURLE_PEER_FAILED_VERIFICATION || how == CURLE_SSL_CACERT_BADFILE)
        out.hint =
            "the authority, also of a proxy with https://, is certificate-authority of the kubeconfig, or "
            "ca.crt of the pod";
      if (how == CURLE_SSL_CERTPROBLEM)
        out.hint = "it is client-certificate and client-key of the kubeconfig";
      return fail(std::move(out));
    }
    ApiReply reply;
    reply.status = curl_.status();
    reply.body = std::move(body_);
    if (const auto wait = curl_.retry_after(); wait.count() > 0) reply.retry_after = wait;
    return reply;
  }

  /// The transport's timer for late_at().
  EventLoop::Timer watchdog{};
  /// Runs when the answer begins: from then on late_at() may be earlier.
  EventLoop::Job begun;

  /// CurlRequest calls these.
  bool take_header(std::string_view /*line*/) {
    const bool first = !last_byte_;
    last_byte_ = Clock::now();
    if (first && !cancelled_) begun();
    return true;
  }
  bool take_body(std::string_view bytes) {
    if (cancelled_) return false;
    take_header({});  // the answer goes on
    if (listener_.received && curl_.status() == kOk) {
      listener_.received(bytes);
      return !cancelled_;
    }
    too_large_ = bytes.size() > CurlTransport::kMostBody - body_.size();
    if (!too_large_) body_ += bytes;
    return !too_large_;
  }

 private:
  // Credentials are bytes: libcurl reuses a connection only for a request with the same ones.
  void set_credentials(const ClusterAccess& access) {
    curl_.trust(access.authorities.text);
    // Only the same authorities sign for a proxy with https://, as in Go's clients.
    if (!access.authorities.text.empty()) {
      const curl_blob authorities = curl_blob_of(access.authorities.text);
      curl_.set(CURLOPT_PROXY_CAINFO_BLOB, &authorities);
      curl_.set(CURLOPT_PROXY_CAPATH, nullptr);
    }
    if (!access.certificate.text.empty()) {
      const curl_blob certificate = curl_blob_of(access.certificate.text);
      const curl_blob key = curl_blob_of(access.key.text);
      curl_.set(CURLOPT_SSLCERT_BLOB, &certificate);
      curl_.set(CURLOPT_SSLKEY_BLOB, &key);
      curl_.set(CURLOPT_KEYPASSWD, "");  // an encrypted key is an error, not a prompt
    }
    if (!access.token.text.empty())
      curl_.add_header("Authorization: Bearer " + access.token.text);
    else
      curl_.sign_in(access.username, access.password);
  }
  Error error(std::error_code code, std::string_view why) const {
    return {.code = code,
            .message = fmt::format("{}: {} {}: {}", server_, request_.method, request_.path, why),
            .hint = {}};
  }

  ApiTransport::Call call_;
  ApiRequest request_;
  ApiListener listener_;
  CurlList connect_to_;
  std::string server_;
  std::shared_ptr<CurlPool> pool_;

  Clock::time_point began_ = Clock::now();
  std::optional<Clock::time_point> last_byte_;
  std::string body_;
  bool too_large_ = false;
  bool cancelled_ = false;
  CurlRequest curl_;  // the last member, so that it ends before what it points to
};

CurlTransport::CurlTransport(EventLoop& loop, ClusterAccess access)
    : loop_(loop),
      access_(std::move(access)),
      authorities_(access_.authorities),
      certificate_(access_.certificate),
      key_(access_.key),
      token_(access_.token) {}

CurlTransport::~CurlTransport() {
  for (const auto& [call, exchange] : calls_) loop_.cancel(exchange->watchdog);
}

/// The access, with the present content of each credential as its text.
Result<ClusterAccess> CurlTransport::access_now() {
  ClusterAccess now = access_;
  for (const auto& [reader, into] :
       {std::pair{&authorities_, &now.authorities}, std::pair{&certificate_, &now.certificate},
        std::pair{&key_, &now.key}, std::pair{&token_, &now.token}}) {
    const auto text = reader->now();
    if (!text) return fail(Error(text.error()).during(access_.server.text()));
    into->text = **text;
  }
  if (access_.token.empty()) return now;
  auto token = token_of(now.token.text);
  if (!token) {
    auto error = std::move(token).error().during(now.token.file.empty() ? "token" : now.token.file.string());
    return fail(std::move(error).during(access_.server.text()));
  }
  now.token.text = std::move(*token);
  return now;
}

std::shared_ptr<CurlPool> CurlTransport::pool() {
  if (pool_ == nullptr) {
    pool_ = std::make_shared<CurlPool>(loop_, [this](CURL* request, CURLcode how) {
      char* of_request = nullptr;
      ::curl_easy_getinfo(request, CURLINFO_PRIVATE, &of_request);
      end(reinterpret_cast<CurlExchange*>(of_request)->call(),
          [how](CurlExchange& exchange) { return exchange.outcome(how); });
    });
  }
  return pool_;
}

ApiTransport::Call CurlTransport::send(ApiRequest request, ApiListener listener) {
  const Call call = ++last_call_;
  auto& exchange =
      *(calls_[call] = std::make_unique<CurlExchange>(call, std::move(request), std::move(listener)));
  const auto access = access_now();
  if (const auto ready = access ? exchange.prepare(*access) : Result<>(fail(access.error())); !ready) {
    exchange.watchdog = loop_.at(EventLoop::Clock::now(), [this, call, error = ready.error()] {
      end(call, [&](CurlExchange&) { return fail(Error(error)); });
    });
    return call;
  }
  exchange.begun = [this, &exchange] { watch_over(exchange); };
  watch_over(exchange);
  if (const auto now = pool(); now->busy()) {
    now->when_idle([this, call] { begin(call); });
  } else {
    begin(call);
  }
  return call;
}

void CurlTransport::begin(Call call) {
  if (const auto found = calls_.find(call); found != calls_.end()) found->second->begin(pool());
}

void CurlTransport::watch_over(CurlExchange& exchange) {
  const auto at = exchange.late_at();
  loop_.cancel(exchange.watchdog);
  exchange.watchdog = {};
  if (at) exchange.watchdog = loop_.at(*at, [this, call = exchange.call()] { look_after(call); });
}

void CurlTransport::look_after(Call call) {
  CurlExchange& exchange = *calls_.at(call);
  const auto at = exchange.late_at();
  if (!at || *at > EventLoop::Clock::now()) return watch_over(exchange);
  // Over HTTP/2 libcurl keeps the connection; if it is dead, every later request would wait in vain.
  if (exchange.pool() == pool_) pool_.reset();
  end(call, [](CurlExchange& late) { return fail(late.too_late()); });
}

CurlTransport::Exchange CurlTransport::take(Call call) {
  auto found = calls_.extract(call);
  if (found.empty()) return nullptr;
  loop_.cancel(found.mapped()->watchdog);
  return std::move(found.mapped());
}

void CurlTransport::end(Call call, const std::function<Result<ApiReply>(CurlExchange&)>& outcome) {
  // The exchange lives until its listener has returned, since the listener may use it.
  if (const Exchange exchange = take(call)) exchange->listener().ended(outcome(*exchange));
}

void CurlTransport::cancel(Call call) {
  Exchange exchange = take(call);
  if (exchange == nullptr) return;
  exchange->cancel();
  // The exchange must outlive a libcurl call in progress, perhaps of the request's own listener.
  if (const auto pool = exchange->pool(); pool != nullptr && pool->busy())
    pool->when_idle([kept = std::shared_ptr<CurlExchange>(std::move(exchange))] {});
}

}  // namespace ferry::kube
