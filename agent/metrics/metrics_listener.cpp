// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/metrics_listener.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <strings.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "agent/metrics/metric_families.h"
#include "common/text/text.h"

namespace ferry::agent {
namespace {

constexpr const char* kPlainText = "text/plain; charset=utf-8";
// Without CBC, which TLS 1.2 does not authenticate as a whole, and without key exchanges that keep no
// secrecy.
constexpr const char* kTlsPriorities =
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-AES-128-CBC:-AES-256-CBC:-CAMELLIA-128-CBC:"
    "-CAMELLIA-256-CBC:-3DES-CBC:-RSA";

// Pause after the process ran out of file descriptors.
constexpr auto kNoDescriptors = std::chrono::seconds(1);
constexpr int kBacklog = 16;

bool is_number(const std::string& host, int family) {
  in6_addr room{};
  return ::inet_pton(family, host.c_str(), &room) == 1;
}

/// The value of a header that the client sent; empty: none.
std::string_view header(MHD_Connection* client, const char* name) {
  const char* const value = ::MHD_lookup_connection_value(client, MHD_HEADER_KIND, name);
  return value == nullptr ? "" : value;
}

/// The token of an Authorization header; empty: none.
std::string_view bearer_token(std::string_view value) {
  constexpr std::string_view kScheme = "bearer ";
  if (::strncasecmp(value.data(), kScheme.data(), std::min(value.size(), kScheme.size())) != 0) return {};
  const auto begin = value.find_first_not_of(' ', kScheme.size());
  if (begin == std::string_view::npos) return {};
  return value.substr(begin, value.find_last_not_of(" \t") - begin + 1);
}

/// Logs an error unless it was the last one.
void log_once(std::string& last, const char* effect, const Error& error) {
  if (std::exchange(last, error.message) != error.message)
    spdlog::error("metrics: {}: {}", effect, error.message);
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

/// Called by the library, from run_server() and when it stops. `self`: the listener.
struct MetricsListener::Callbacks {
  static void log(void* self, const char* format, va_list arguments) {
    constexpr std::size_t kMost = 512;
    std::array<char, kMost> text{};
    static_cast<void>(::vsnprintf(text.data(), text.size(), format, arguments));
    std::string line(text.data());
    line.erase(line.find_last_not_of(".\n") + 1);
    spdlog::debug("metrics: {}", line);
    auto& first = static_cast<MetricsListener*>(self)->server_error_;
    if (first.empty()) first = std::move(line);
  }

  static MHD_Result request(void* self, MHD_Connection* client, const char* path, const char* method,
                            const char* /*version*/, const char* /*body*/, std::size_t* /*size*/,
                            void** /*context*/) {
    return static_cast<MetricsListener*>(self)->answer(client, path, method) ? MHD_YES : MHD_NO;
  }

  static void notify(void* self, MHD_Connection* client, void** /*context*/,
                     MHD_ConnectionNotificationCode code) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-union-access): the library's interface
    const int socket = ::MHD_get_connection_info(client, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    auto& listener = *static_cast<MetricsListener*>(self);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      listener.clients_.insert(socket);
    } else {
      listener.clients_.erase(socket);
      listener.loop_.forget(socket);
    }
  }
};

void MetricsListener::StopServer::operator()(MHD_Daemon* server) const noexcept {
  ::MHD_stop_daemon(server);
}

MetricsListener::MetricsListener(EventLoop& loop, Settings settings, std::function<std::string()> metrics)
    : loop_(loop),
      settings_(std::move(settings)),
      metrics_(std::move(metrics)),
      certificate_(kube::Credential{.text = {}, .file = settings_.certificate}),
      key_(kube::Credential{.text = {}, .file = settings_.key}),
      token_(kube::Credential{.text = {}, .file = settings_.token}) {}

MetricsListener::~MetricsListener() {
  server_.reset();  // ends the connections
  loop_.cancel(run_);
  loop_.cancel(pause_);
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
  if (auto started = renew_server(); !started) return started;
  if (!settings_.token.empty()) {
    if (auto token = read_token(); !token) return fail(std::move(token).error());
  }

  const std::string operation = "listen on " + settings_.address.text();
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(settings_.address.port);
  if (const int error = ::getaddrinfo(settings_.address.host.c_str(), service.c_str(), &hints, &found);
      error != 0)
    return fail(Errc::failed, operation + ": " + ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> place(found, &::freeaddrinfo);

  UniqueFd socket(::socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return fail(error_from_errno(errno, operation));
  // Closing connections of a former process must not block the port.
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in6 bound{};  // holds either family, with the port at the same place
  socklen_t size = sizeof(bound);
  if (::bind(socket.get(), place->ai_addr, place->ai_addrlen) != 0 || ::listen(socket.get(), kBacklog) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return fail(error_from_errno(errno, operation));
  port_ = ntohs(bound.sin6_port);
  socket_ = std::move(socket);

  // For the end of an answer, which the server has left to the kernel. The sockets of clients inherit it.
  const auto idle = static_cast<unsigned>(std::chrono::milliseconds(settings_.idle).count());
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &idle, sizeof(idle));
  loop_.watch(socket_.get(), [this] { accept_client(); });
  return {};
}

/// Starts the server, or another one if its certificate or key was replaced. The other one ends all
/// connections. If the files do not match, the former server stays.
Result<> MetricsListener::renew_server() {
  const auto certificate = certificate_.now();
  if (!certificate) return fail(certificate.error());
  const auto key = key_.now();
  if (!key) return fail(key.error());
  std::string both = **certificate + '\0' + **key;
  if (server_ && both == loaded_) return {};
  auto server = start_server(**certificate, **key);
  if (!server) return fail(std::move(server).error());
  if (server_) spdlog::info("metrics: the server's certificate has been replaced");
  loaded_ = std::move(both);
  server_ = std::move(*server);
  return {};
}

/// Both are empty without TLS. The server does not use epoll(7): in that mode the library (0.9.75) never
/// sleeps while it waits for the bytes of a handshake.
Result<MetricsListener::Server> MetricsListener::start_server(std::string certificate, std::string key) {
  const bool tls = !settings_.certificate.empty();
  std::string versions = kTlsPriorities;
  std::vector<MHD_OptionItem> options;
  if (tls) {
    options = {{.option = MHD_OPTION_HTTPS_MEM_CERT, .value = 0, .ptr_value = certificate.data()},
               {.option = MHD_OPTION_HTTPS_MEM_KEY, .value = 0, .ptr_value = key.data()},
               {.option = MHD_OPTION_HTTPS_PRIORITIES, .value = 0, .ptr_value = versions.data()}};
  }
  options.push_back({.option = MHD_OPTION_END, .value = 0, .ptr_value = nullptr});
  server_error_.clear();
  const unsigned flags = MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET | (tls ? unsigned{MHD_USE_TLS} : 0U);
  Server server(::MHD_start_daemon(
      flags, 0, nullptr, nullptr, &Callbacks::request, this, MHD_OPTION_EXTERNAL_LOGGER, &Callbacks::log,
      this, MHD_OPTION_NOTIFY_CONNECTION, &Callbacks::notify, this, MHD_OPTION_CONNECTION_LIMIT,
      static_cast<unsigned>(kMostConnections), MHD_OPTION_PER_IP_CONNECTION_LIMIT,
      static_cast<unsigned>(kMostOfOneAddress), MHD_OPTION_CONNECTION_TIMEOUT,
      static_cast<unsigned>(settings_.idle.count()), MHD_OPTION_CONNECTION_MEMORY_LIMIT, kMostRequestBytes,
      MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, options.data(), MHD_OPTION_END));
  if (server) return server;
  if (!tls) return fail(Errc::failed, "the HTTP server does not start: " + server_error_);
  return fail(
      Errc::failed, "the certificate and its key: " + server_error_,
      "PEM files: the server's certificate first, then those that signed it; the key without a pass phrase");
}

/// Lets the server do all that does not block, and waits for what it needs next.
void MetricsListener::run_server() {
  ::MHD_run(server_.get());
  fd_set read{};
  fd_set write{};
  fd_set except{};
  ::MHD_get_fdset(server_.get(), &read, &write, &except, nullptr);
  for (const int client : clients_) {
    loop_.watch(client, {.read = FD_ISSET(client, &read), .write = FD_ISSET(client, &write)},
                [this](EventLoop::Readiness) { run_server(); });
  }
  if (clients_.size() < kMostConnections && pause_ == EventLoop::Timer())
    loop_.watch(socket_.get(), [this] { accept_client(); });
  else
    loop_.forget(socket_.get());
  MHD_UNSIGNED_LONG_LONG wait = 0;
  loop_.cancel(run_);
  if (::MHD_get_timeout(server_.get(), &wait) == MHD_YES)
    run_ = loop_.at(EventLoop::Clock::now() + std::chrono::milliseconds(wait), [this] { run_server(); });
}

void MetricsListener::accept_client() {
  sockaddr_storage client{};
  socklen_t size = sizeof(client);
  auto* const address = reinterpret_cast<sockaddr*>(&client);
  const int socket = ::accept4(socket_.get(), address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) {
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
    spdlog::warn("metrics: no connection is taken: {}", error_from_errno(errno, "accept").message);
    loop_.forget(socket_.get());  // or the loop would report it again and again
    pause_ = loop_.at(EventLoop::Clock::now() + kNoDescriptors, [this] {
      pause_ = {};
      run_server();
    });
    return;
  }
  if (auto renewed = renew_server(); renewed)
    certificate_error_.clear();
  else
    log_once(certificate_error_, "the certificate stays as it was", renewed.error());
  ::MHD_run(server_.get());  // clients that have gone no longer count
  // The library closes a client that is one too many of its address.
  if (::MHD_add_connection(server_.get(), socket, address, size) == MHD_YES)
    refusal_.clear();
  else
    log_once(refusal_, "a client is refused",
             {.code = make_error_code(Errc::refused),
              .message =
                  "its address has 4 connections already, or the process has no memory or descriptors left"});
  run_server();
}

/// False: the connection has to be closed.
bool MetricsListener::answer(MHD_Connection* client, std::string_view path, std::string_view method) {
  Answer answer = answer_to(client, path, method);
  const std::unique_ptr<MHD_Response, decltype(&MHD_destroy_response)> response(
      ::MHD_create_response_from_buffer(answer.body.size(), answer.body.data(), MHD_RESPMEM_MUST_COPY),
      &MHD_destroy_response);
  if (!response) return false;
  const auto add = [&](const char* name, const char* value) {
    ::MHD_add_response_header(response.get(), name, value);
  };
  add(MHD_HTTP_HEADER_CONTENT_TYPE, answer.content_type);
  add(MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  add(MHD_HTTP_HEADER_CONNECTION, "close");
  if (answer.status == MHD_HTTP_UNAUTHORIZED) add(MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
  if (answer.status == MHD_HTTP_METHOD_NOT_ALLOWED) add(MHD_HTTP_HEADER_ALLOW, "GET");
  return ::MHD_queue_response(client, answer.status, response.get()) == MHD_YES;
}

MetricsListener::Answer MetricsListener::answer_to(MHD_Connection* client, std::string_view path,
                                                   std::string_view method) {
  const auto plain = [](unsigned status, const char* text) {
    return Answer{.status = status, .body = std::string(text) + "\n", .content_type = kPlainText};
  };
  const auto length = header(client, MHD_HTTP_HEADER_CONTENT_LENGTH);
  if ((!length.empty() && length != "0") || !header(client, MHD_HTTP_HEADER_TRANSFER_ENCODING).empty())
    return plain(MHD_HTTP_CONTENT_TOO_LARGE, "this is no request that is answered here");
  const bool metrics = path == "/metrics";
  if (!metrics && path != "/healthz") return plain(MHD_HTTP_NOT_FOUND, "/metrics and /healthz are here");
  if (method != MHD_HTTP_METHOD_GET) return plain(MHD_HTTP_METHOD_NOT_ALLOWED, "GET alone");
  if (!metrics) return plain(MHD_HTTP_OK, "ok");
  if (!settings_.token.empty()) {
    const auto token = read_token();
    if (!token) {
      log_once(token_error_, "requests for /metrics are refused", token.error());
      return plain(MHD_HTTP_SERVICE_UNAVAILABLE, "the token cannot be read here");
    }
    token_error_.clear();
    const auto given = bearer_token(header(client, MHD_HTTP_HEADER_AUTHORIZATION));
    // In constant time: the duration must not reveal where the tokens differ.
    if (given.size() != token->size() || ::CRYPTO_memcmp(given.data(), token->data(), given.size()) != 0)
      return plain(MHD_HTTP_UNAUTHORIZED, "a token is needed");
  }
  return {.status = MHD_HTTP_OK, .body = metrics_(), .content_type = kMetricsContentType};
}

Result<std::string> MetricsListener::read_token() {
  const auto text = token_.now();
  if (!text) return fail(text.error());
  return kube::token_of(**text);
}

}  // namespace ferry::agent
