// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/metrics_listener.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <limits>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <new>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "agent/metrics/metric_families.h"
#include "common/text/text.h"

namespace ferry::agent {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free_all)>;

// The first error in OpenSSL's queue; its texts are short and name no secret.
std::string openssl_error() {
  const unsigned long code = ::ERR_get_error();
  ::ERR_clear_error();
  const char* const reason = code == 0 ? nullptr : ::ERR_reason_error_string(code);
  return reason == nullptr ? "OpenSSL says no reason" : reason;
}

Bio reader_of(const std::string& text) {
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  return {::BIO_new_mem_buf(text.data(), static_cast<int>(std::min(text.size(), kMost))), &BIO_free_all};
}

// OpenSSL's own function would ask on the terminal.
int no_pass_phrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) {
  return -1;
}

tl::unexpected<Error> unusable(const std::string& what, const char* hint) {
  return fail(Errc::failed, what + ": " + openssl_error(), hint);
}

Result<> use_certificates(SSL_CTX* context, const std::string& text) {
  constexpr const char* kHint = "a PEM file: the server's certificate first, then those that signed it";
  const auto bio = reader_of(text);
  const std::unique_ptr<X509, decltype(&X509_free)> own(
      ::PEM_read_bio_X509_AUX(bio.get(), nullptr, no_pass_phrase, nullptr), &X509_free);
  if (!own || ::SSL_CTX_use_certificate(context, own.get()) != 1) return unusable("the certificate", kHint);
  while (X509* const next = ::PEM_read_bio_X509(bio.get(), nullptr, no_pass_phrase, nullptr)) {
    if (::SSL_CTX_add0_chain_cert(context, next) == 1) continue;
    ::X509_free(next);
    return unusable("the certificate's chain", kHint);
  }
  ::ERR_clear_error();  // the end of the file is an error too
  return {};
}

Result<> use_key(SSL_CTX* context, const std::string& text) {
  const auto bio = reader_of(text);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      ::PEM_read_bio_PrivateKey(bio.get(), nullptr, no_pass_phrase, nullptr), &EVP_PKEY_free);
  if (!key) return unusable("the key", "a PEM file without a pass phrase");
  if (::SSL_CTX_use_PrivateKey(context, key.get()) != 1 || ::SSL_CTX_check_private_key(context) != 1)
    return unusable("the key", "is it that of the certificate?");
  return {};
}

}  // namespace

TlsSession::TlsSession(const std::shared_ptr<SSL_CTX>& context) : ssl_(::SSL_new(context.get()), &SSL_free) {
  BIO* const in = ::BIO_new(::BIO_s_mem());
  BIO* const out = ::BIO_new(::BIO_s_mem());
  if (!ssl_ || in == nullptr || out == nullptr) {
    ::BIO_free(in);
    ::BIO_free(out);
    throw std::bad_alloc();
  }
  ::SSL_set_bio(ssl_.get(), in, out);
  ::SSL_set_accept_state(ssl_.get());
}

Result<> TlsSession::receive(std::string_view bytes, std::string& plain) {
  ::ERR_clear_error();
  ::BIO_write(::SSL_get_rbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size()));
  constexpr std::size_t kPiece = 4'096;
  std::array<char, kPiece> piece{};
  while (true) {
    const int count = ::SSL_read(ssl_.get(), piece.data(), static_cast<int>(piece.size()));
    if (count > 0) {
      plain.append(piece.data(), static_cast<std::size_t>(count));
      continue;
    }
    const int why = ::SSL_get_error(ssl_.get(), count);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_ZERO_RETURN) return {};
    return fail(Errc::unreachable, "TLS with a client: " + openssl_error());
  }
}

void TlsSession::say(std::string_view plain) {
  ::ERR_clear_error();
  // A memory BIO takes all bytes.
  if (!plain.empty()) ::SSL_write(ssl_.get(), plain.data(), static_cast<int>(plain.size()));
}

void TlsSession::finish() {
  ::ERR_clear_error();
  ::SSL_shutdown(ssl_.get());
}

std::string TlsSession::to_send() {
  BIO* const out = ::SSL_get_wbio(ssl_.get());
  std::string bytes(::BIO_ctrl_pending(out), '\0');
  if (!bytes.empty()) ::BIO_read(out, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

TlsFiles::TlsFiles(std::filesystem::path certificate, std::filesystem::path key)
    : certificate_(kube::Credential{.text = {}, .file = std::move(certificate)}),
      key_(kube::Credential{.text = {}, .file = std::move(key)}) {}

Result<std::shared_ptr<SSL_CTX>> TlsFiles::load() {
  const auto certificate = certificate_.now();
  if (!certificate) return fail(Error(certificate.error()));
  const auto key = key_.now();
  if (!key) return fail(Error(key.error()));
  std::string both = **certificate + '\0' + **key;
  if (context_ && both == loaded_) return context_;
  ::ERR_clear_error();
  std::shared_ptr<SSL_CTX> context(::SSL_CTX_new(::TLS_server_method()), &SSL_CTX_free);
  if (!context) return unusable("TLS", "");
  ::SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  ::SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  ::SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  if (auto used = use_certificates(context.get(), **certificate); !used) return fail(std::move(used).error());
  if (auto used = use_key(context.get(), **key); !used) return fail(std::move(used).error());
  loaded_ = std::move(both);
  return context;
}

Result<std::shared_ptr<SSL_CTX>> TlsFiles::now() {
  auto loaded = load();
  if (loaded) {
    if (context_ && context_ != *loaded) spdlog::info("metrics: the server's certificate has been replaced");
    told_.clear();
    context_ = *loaded;
    return context_;
  }
  if (!context_) return fail(std::move(loaded).error());
  if (told_ != loaded.error().message) {
    told_ = loaded.error().message;
    spdlog::error("metrics: the certificate stays as it was: {}", told_);
  }
  return context_;
}

namespace {

constexpr int kOk = 200;
constexpr int kUnauthorized = 401;
constexpr int kNotFound = 404;
constexpr int kMethodNotAllowed = 405;
constexpr int kUnavailable = 503;
constexpr const char* kPlainText = "text/plain; charset=utf-8";

// Room for a request inside TLS; a client that sends more is disconnected.
constexpr std::size_t kMostReceived = 64 * 1024;
// Pause after the process ran out of file descriptors.
constexpr auto kNoDescriptors = std::chrono::seconds(1);
constexpr int kBacklog = 16;

sockaddr_storage address_of(const ListenAddress& address, socklen_t& size) {
  sockaddr_storage out{};
  // sockaddr_storage holds either address family, as bind(2) expects.
  auto* const four = reinterpret_cast<sockaddr_in*>(&out);
  auto* const six = reinterpret_cast<sockaddr_in6*>(&out);
  if (::inet_pton(AF_INET, address.host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(address.port);
    size = sizeof(sockaddr_in);
  } else {
    out = {};
    ::inet_pton(AF_INET6, address.host.c_str(), &six->sin6_addr);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(address.port);
    size = sizeof(sockaddr_in6);
  }
  return out;
}

bool is_number(const std::string& host, int family) {
  in6_addr room{};
  return ::inet_pton(family, host.c_str(), &room) == 1;
}

Result<UniqueFd> listen_on(const ListenAddress& address, std::uint16_t& port) {
  const std::string what = "listen on " + address.text();
  socklen_t size = 0;
  auto place = address_of(address, size);
  UniqueFd socket(::socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return fail(error_from_errno(errno, what));
  // Closing connections of a former process must not block the port.
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&place), size) != 0 ||
      ::listen(socket.get(), kBacklog) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&place), &size) != 0)
    return fail(error_from_errno(errno, what));
  port = ntohs(place.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&place)->sin_port
                                          : reinterpret_cast<sockaddr_in6*>(&place)->sin6_port);
  return socket;
}

/// The client's address without its port, which differs for each of its connections.
std::string host_of(const sockaddr_storage& client) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* const number =
      client.ss_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(client).sin_addr)
          : &reinterpret_cast<const sockaddr_in6&>(client).sin6_addr;
  if (::inet_ntop(client.ss_family, number, text.data(), text.size()) == nullptr) return {};
  return text.data();
}

// Compares in constant time: the duration must not reveal where the tokens differ.
bool are_equal(const std::string& a, const std::string& b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string plain_answer(int status, std::string_view why) {
  return http_answer(status, kPlainText, std::string(why) + "\n");
}

}  // namespace

Result<ListenAddress> ListenAddress::parse(std::string_view text) {
  const auto refused = [&](const char* why) {
    return fail(Errc::usage, fmt::format("'{}' is no address to listen on: {}", text, why),
                "HOST:PORT, as in 127.0.0.1:9417 or [::]:9417");
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return refused("it has no port");
  ListenAddress out;
  out.port = whole_number<std::uint16_t>(text.substr(colon + 1)).value_or(0);
  if (out.port == 0) return refused("the port is none");
  const std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    out.host = host.substr(1, host.size() - 2);
    if (!is_number(out.host, AF_INET6)) return refused("what stands in brackets is no IPv6 address");
    return out;
  }
  out.host = host == "localhost" ? "127.0.0.1" : std::string(host);
  if (out.host.find(':') != std::string::npos) return refused("an IPv6 address stands in brackets");
  if (!is_number(out.host, AF_INET)) return refused("the host is no number, and names are not looked up");
  return out;
}

bool ListenAddress::is_loopback() const {
  constexpr std::uint32_t kNet = 127;
  constexpr unsigned kShift = 24;
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> kShift == kNet;
  in6_addr six{};
  return ::inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

std::string ListenAddress::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

struct MetricsListener::Connection {
  enum class Phase {
    asking,
    answered,  ///< the answer is being sent
    ending,    ///< all is sent; further input is discarded, so that the client receives the answer
  };
  UniqueFd socket;
  std::string address;
  std::optional<TlsSession> tls;
  Phase phase = Phase::asking;
  std::size_t received = 0;
  std::string request;
  std::string out;
  std::size_t sent = 0;  ///< bytes of `out`
  EventLoop::Timer timer;
  EventLoop::Clock::time_point to_be_taken = {};  ///< deadline of the whole answer
  std::size_t left = 0;                           ///< untaken bytes at the last check of progress
  bool stalls = false;                            ///< no progress between the last two checks
  EventLoop::Clock::time_point came = EventLoop::Clock::now();

  /// Bytes that the client has not acknowledged. The kernel's send buffer says nothing: it takes megabytes,
  /// and asks for more only once much of that is gone.
  std::size_t untaken() const {
    int queued = 0;  // ABI: tcp(7), SIOCOUTQ
    if (::ioctl(socket.get(), SIOCOUTQ, &queued) != 0) queued = 0;
    return out.size() - sent + static_cast<std::size_t>(queued);
  }
};

MetricsListener::MetricsListener(EventLoop& loop, Settings settings, std::function<std::string()> metrics)
    : loop_(loop),
      settings_(std::move(settings)),
      metrics_(std::move(metrics)),
      token_(kube::Credential{.text = {}, .file = settings_.token}) {
  if (!settings_.certificate.empty()) tls_.emplace(settings_.certificate, settings_.key);
}

MetricsListener::~MetricsListener() {
  loop_.cancel(pause_);
  while (!connections_.empty()) end(connections_.begin()->first);
  if (socket_.valid()) loop_.forget(socket_.get());
}

Result<std::unique_ptr<MetricsListener>> MetricsListener::open(EventLoop& loop, Settings settings,
                                                               std::function<std::string()> metrics) {
  if (settings.certificate.empty() != settings.key.empty())
    return fail(Errc::usage, "metrics: a certificate and its key go together", "name both, or none");
  if (!settings.token.empty() && settings.certificate.empty() && !settings.address.is_loopback()) {
    return fail(Errc::usage,
                fmt::format("metrics on {}: the token would be sent unencrypted", settings.address.text()),
                "name a certificate and its key, or listen on 127.0.0.1");
  }
  std::unique_ptr<MetricsListener> out(
      new MetricsListener(loop, std::move(settings), std::move(metrics)));  // NOLINT: private constructor
  if (auto begun = out->begin(); !begun) return fail(std::move(begun).error().during("metrics"));
  return out;
}

Result<> MetricsListener::begin() {
  if (tls_)
    if (auto context = tls_->now(); !context) return fail(std::move(context).error());
  if (!settings_.token.empty()) {
    const auto text = token_.now();
    if (!text) return fail(Error(text.error()));
    if (auto token = kube::token_of(**text); !token) return fail(std::move(token).error());
  }
  auto socket = listen_on(settings_.address, port_);
  if (!socket) return fail(std::move(socket).error());
  socket_ = std::move(*socket);
  loop_.watch(socket_.get(), [this] { accept_all(); });
  return {};
}

void MetricsListener::accept_all() {
  // The bound lets other handlers of the loop run in between.
  for (std::size_t i = 0; i < kMostConnections; ++i) {
    const bool full = connections_.size() >= kMostConnections;
    const auto gives_way = full ? who_gives_way() : connections_.end();
    if (full && gives_way == connections_.end()) return wait_for_room();
    sockaddr_storage client{};
    socklen_t size = sizeof(client);
    UniqueFd socket(
        ::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&client), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      // The loop would report the socket again and again.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause_accepting();
      return;
    }
    if (full) end(gives_way->first);
    take(std::move(socket), host_of(client));
  }
}

void MetricsListener::pause_accepting() {
  spdlog::warn("metrics: no connection is taken: {}", error_from_errno(errno, "accept").message);
  loop_.forget(socket_.get());
  pause_ = loop_.at(EventLoop::Clock::now() + kNoDescriptors,
                    [this] { loop_.watch(socket_.get(), [this] { accept_all(); }); });
}

// The kernel keeps new clients in the listen backlog meanwhile.
void MetricsListener::wait_for_room() {
  waits_for_room_ = true;
  loop_.forget(socket_.get());
}

void MetricsListener::go_on_accepting() {
  if (!waits_for_room_) return;
  waits_for_room_ = false;
  loop_.watch(socket_.get(), [this] { accept_all(); });
}

// The connection that makes room for a new client; end(): none does. An address with more than
// kMostOfOneAddress connections loses its oldest first, so that a slow client cannot occupy all places. Next
// is a client that takes nothing of its answer, then a client without an answer. While others are being
// answered, the latter must have been slow to ask: a stalled answer will soon be noticed, and makes room
// instead.
MetricsListener::Connections::iterator MetricsListener::who_gives_way() {
  std::map<std::string_view, std::size_t> of_address;
  for (const auto& [number, connection] : connections_) ++of_address[connection->address];
  const auto of_many = std::ranges::find_if(
      connections_, [&](const auto& one) { return of_address[one.second->address] > kMostOfOneAddress; });
  if (of_many != connections_.end()) return of_many;
  const auto is_answered = [](const auto& one) { return one.second->phase == Connection::Phase::answered; };
  const auto stalls = std::ranges::find_if(connections_, [&](const auto& one) {
    return is_answered(one) && one.second->stalls && one.second->untaken() == one.second->left;
  });
  if (stalls != connections_.end()) return stalls;
  constexpr int kPartOfTheTime = 4;
  const auto slow_since = EventLoop::Clock::now() - settings_.to_ask / kPartOfTheTime;
  const bool any_answered = std::ranges::any_of(connections_, is_answered);
  return std::ranges::find_if(connections_, [&](const auto& one) {
    return !is_answered(one) && (!any_answered || one.second->came < slow_since);
  });
}

void MetricsListener::take(UniqueFd socket, std::string address) {
  auto connection = std::make_unique<Connection>();
  if (tls_) {
    const auto context = tls_->now();
    if (!context) return spdlog::error("metrics: {}", context.error().message);
    connection->tls.emplace(*context);
  }
  connection->socket = std::move(socket);
  connection->address = std::move(address);
  const Number number = ++last_;
  Connection& taken = *connection;
  connections_.emplace(number, std::move(connection));
  wait(number, taken);
}

/// Starts the timer of the connection's phase, and watches its socket.
void MetricsListener::wait(Number number, Connection& connection) {
  using Phase = Connection::Phase;
  const auto now = EventLoop::Clock::now();
  loop_.cancel(connection.timer);
  if (connection.phase == Phase::answered) {
    connection.to_be_taken = now + settings_.to_take;
    connection.left = connection.untaken();
    connection.timer = loop_.at(now + std::min(settings_.to_take, settings_.to_stall),
                                [this, number] { look_for_progress(number); });
  } else {
    const auto time = connection.phase == Phase::asking ? settings_.to_ask : settings_.to_end;
    connection.timer = loop_.at(now + time, [this, number] { end(number); });
  }
  const bool writes = connection.sent < connection.out.size();
  loop_.watch(connection.socket.get(), {.read = connection.phase != Phase::answered, .write = writes},
              [this, number](EventLoop::Readiness) { ready(number); });
}

/// Checks the progress of an answer.
void MetricsListener::look_for_progress(Number number) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  const auto now = EventLoop::Clock::now();
  if (now >= connection.to_be_taken) return end(number);
  const std::size_t left = connection.untaken();
  connection.stalls = left == connection.left;
  connection.left = left;
  connection.timer = loop_.at(std::min(connection.to_be_taken, now + settings_.to_stall),
                              [this, number] { look_for_progress(number); });
  go_on_accepting();  // an answer may be stalled by now
}

void MetricsListener::ready(Number number) {
  using Phase = Connection::Phase;
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  const Phase before = connection.phase;
  const bool wrote_before = connection.sent < connection.out.size();
  if (connection.phase != Phase::answered && !receive(connection)) return end(number);
  if (!send(connection)) return end(number);
  const bool writes = connection.sent < connection.out.size();
  if (connection.phase == Phase::answered && !writes) {
    connection.phase = Phase::ending;
    ::shutdown(connection.socket.get(), SHUT_WR);
  }
  if (connection.phase != before) return wait(number, connection);
  if (writes != wrote_before)
    loop_.watch(connection.socket.get(), {.read = connection.phase != Phase::answered, .write = writes},
                [this, number](EventLoop::Readiness) { ready(number); });
}

// False: the connection has to be closed.
bool MetricsListener::receive(Connection& connection) {
  constexpr std::size_t kPiece = 4'096;
  std::array<char, kPiece> piece{};
  while (connection.phase != Connection::Phase::answered) {
    const ssize_t count = ::recv(connection.socket.get(), piece.data(), piece.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (count == 0) return false;
    connection.received += static_cast<std::size_t>(count);
    if (connection.received > kMostReceived) return false;
    if (connection.phase == Connection::Phase::ending) continue;
    const std::string_view bytes(piece.data(), static_cast<std::size_t>(count));
    if (connection.tls) {
      const auto spoken = connection.tls->receive(bytes, connection.request);
      connection.out += connection.tls->to_send();
      if (!spoken) {
        spdlog::debug("metrics: {}", spoken.error().message);
        connection.phase = Connection::Phase::answered;
        return true;
      }
    } else {
      connection.request += bytes;
    }
    if (connection.request.empty()) continue;
    const ScrapeRequest request = read_scrape_request(connection.request);
    if (request.progress != ScrapeRequest::Progress::incomplete) answer(connection, request);
  }
  return true;
}

void MetricsListener::answer(Connection& connection, const ScrapeRequest& request) {
  const std::string text = answer_to(request);
  connection.phase = Connection::Phase::answered;
  connection.request.clear();
  if (!connection.tls) {
    connection.out += text;
    return;
  }
  connection.tls->say(text);
  connection.tls->finish();
  connection.out += connection.tls->to_send();
}

// False: the connection has to be closed.
bool MetricsListener::send(Connection& connection) {
  while (connection.sent < connection.out.size()) {
    const std::string_view rest = std::string_view(connection.out).substr(connection.sent);
    const ssize_t count = ::send(connection.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    connection.sent += static_cast<std::size_t>(count);
  }
  connection.out.clear();
  connection.sent = 0;
  return true;
}

std::string MetricsListener::answer_to(const ScrapeRequest& request) {
  if (request.progress == ScrapeRequest::Progress::refused)
    return plain_answer(request.status, "this is no request that is answered here");
  const bool metrics = request.path == "/metrics";
  if (!metrics && request.path != "/healthz")
    return plain_answer(kNotFound, "/metrics and /healthz are here");
  if (request.method != "GET") return plain_answer(kMethodNotAllowed, "GET alone");
  if (!metrics) return plain_answer(kOk, "ok");
  if (!settings_.token.empty()) {
    const std::string token = own_token();
    if (token.empty()) return plain_answer(kUnavailable, "the token cannot be read here");
    if (!request.token || !are_equal(*request.token, token))
      return plain_answer(kUnauthorized, "a token is needed");
  }
  return http_answer(kOk, kMetricsContentType, metrics_());
}

// Empty: the token cannot be read.
std::string MetricsListener::own_token() {
  const auto text = token_.now();
  auto token = text ? kube::token_of(**text) : Result<std::string>(fail(Error(text.error())));
  if (token) {
    told_.clear();
    return std::move(*token);
  }
  if (told_ != token.error().message) {
    told_ = token.error().message;
    spdlog::error("metrics: nobody is answered: {}", told_);
  }
  return {};
}

void MetricsListener::end(Number number) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  const int socket = found->second->socket.get();
  loop_.cancel(found->second->timer);
  loop_.forget(socket);
  if (found->second->phase == Connection::Phase::answered) {
    // The client did not take the answer: without this option the kernel would keep retransmitting it.
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }
  connections_.erase(found);
  go_on_accepting();
}

}  // namespace ferry::agent
