// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tls_front.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <sys/socket.h>
#include <utility>

#include <fmt/format.h>

namespace ferry::test {
namespace {

constexpr std::string_view kEndOfHead = "\r\n\r\n";

/// A header's value; empty: there is none.
std::string header(std::string_view head, std::string_view name) {
  std::istringstream lines{std::string(head)};
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || colon != name.size()) continue;
    const bool same = std::equal(name.begin(), name.end(), line.begin(),
                                 [](char a, char b) { return std::tolower(a) == std::tolower(b); });
    if (!same) continue;
    const auto begin = line.find_first_not_of(' ', colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of("\r ") + 1 - begin);
  }
  return {};
}

}  // namespace

struct TlsFront::Context {
  Context(const std::string& certificate, const std::string& key) : of(::SSL_CTX_new(::TLS_server_method())) {
    if (of == nullptr || ::SSL_CTX_use_certificate_file(of, certificate.c_str(), SSL_FILETYPE_PEM) != 1 ||
        ::SSL_CTX_use_PrivateKey_file(of, key.c_str(), SSL_FILETYPE_PEM) != 1)
      throw std::runtime_error("no TLS with " + certificate);
    ::SSL_CTX_set_mode(of, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  Context(Context&&) = delete;
  Context& operator=(Context&&) = delete;
  ~Context() { ::SSL_CTX_free(of); }
  SSL_CTX* of;
};

struct TlsFront::Connection {
  Connection(UniqueFd socket, SSL_CTX* context) : fd(std::move(socket)), tls(::SSL_new(context)) {
    ::SSL_set_fd(tls, fd.get());
    ::SSL_set_accept_state(tls);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  Connection(Connection&&) = delete;
  Connection& operator=(Connection&&) = delete;
  ~Connection() { ::SSL_free(tls); }

  UniqueFd fd;
  SSL* tls;
  std::string in;
  std::string out;
  std::optional<kube::ApiTransport::Call> call;  ///< that is not answered yet
  bool streams = false;                          ///< its answer has begun
};

TlsFront::TlsFront(EventLoop& loop, kube::ApiTransport& behind, const std::string& certificate,
                   const std::string& key)
    : loop_(loop),
      behind_(behind),
      context_(std::make_unique<Context>(certificate, key)),
      listener_(SOCK_NONBLOCK) {
  loop_.watch(listener_.fd.get(), [this] { accept_all(); });
}

TlsFront::~TlsFront() {
  while (!connections_.empty()) close(connections_.begin()->first);
  loop_.forget(listener_.fd.get());
}

void TlsFront::accept_all() {
  for (;;) {
    UniqueFd socket(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    ++moved_;
    // What is said is to be there at once, not when the client has acknowledged what was said before.
    const int now = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &now, sizeof(now));
    const Id id = ++accepted_;
    connections_.emplace(id, std::make_unique<Connection>(std::move(socket), context_->of));
    drive(id);
  }
}

void TlsFront::drive(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  if (!read(connection)) return close(id);
  take_request(id);
  if (!connections_.contains(id)) return;
  if (!flush(connection)) return close(id);
  const bool writes = !connection.out.empty() || ::SSL_want(connection.tls) == SSL_WRITING;
  loop_.watch(connection.fd.get(), {.read = true, .write = writes},
              [this, id](EventLoop::Readiness) { drive(id); });
}

// False, as from the next: the connection has ended.
bool TlsFront::read(Connection& connection) {
  std::array<char, 16'384> bytes{};
  for (;;) {
    ::ERR_clear_error();
    const int count = ::SSL_read(connection.tls, bytes.data(), static_cast<int>(bytes.size()));
    if (count > 0) {
      moved_ += static_cast<std::size_t>(count);
      connection.in.append(bytes.data(), static_cast<std::size_t>(count));
      continue;
    }
    const int why = ::SSL_get_error(connection.tls, count);
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
  }
}

bool TlsFront::flush(Connection& connection) {
  while (!connection.out.empty()) {
    ::ERR_clear_error();
    const int count =
        ::SSL_write(connection.tls, connection.out.data(), static_cast<int>(connection.out.size()));
    if (count <= 0) {
      const int why = ::SSL_get_error(connection.tls, count);
      return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
    }
    moved_ += static_cast<std::size_t>(count);
    connection.out.erase(0, static_cast<std::size_t>(count));
  }
  return true;
}

void TlsFront::take_request(Id id) {
  Connection& connection = *connections_.at(id);
  const auto end = connection.in.find(kEndOfHead);
  if (connection.call || end == std::string::npos) return;
  const std::string head = connection.in.substr(0, end);
  const std::string length = header(head, "content-length");
  const std::size_t body = length.empty() ? 0 : std::stoul(length);
  const std::size_t whole = end + kEndOfHead.size() + body;
  if (connection.in.size() < whole) return;
  kube::ApiRequest request;
  std::istringstream(head) >> request.method >> request.path;
  request.content_type = header(head, "content-type");
  request.body = connection.in.substr(whole - body, body);
  connection.in.erase(0, whole);
  begin(id, std::move(request));
}

void TlsFront::begin(Id id, kube::ApiRequest request) {
  kube::ApiListener listener;
  listener.ended = [this, id](const Result<kube::ApiReply>& reply) { ended(id, reply); };
  if (request.path.find("watch=1") != std::string::npos) {
    request.deadline = {};
    listener.received = [this, id](std::string_view bytes) {
      Connection& connection = *connections_.at(id);
      const char* const first =
          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
      const std::string head = std::exchange(connection.streams, true) ? "" : first;
      say(id, head + fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
    };
  }
  connections_.at(id)->call = behind_.send(std::move(request), std::move(listener));
}

void TlsFront::say(Id id, const std::string& bytes) {
  connections_.at(id)->out += bytes;
  loop_.post([this, id] { drive(id); });
}

void TlsFront::ended(Id id, const Result<kube::ApiReply>& reply) {
  Connection& connection = *connections_.at(id);
  connection.call.reset();
  if (!reply) return loop_.post([this, id] { close(id); });
  if (std::exchange(connection.streams, false)) return say(id, "0\r\n\r\n");
  std::string head =
      fmt::format("HTTP/1.1 {} Some\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
                  reply->status, reply->body.size());
  if (const auto after = reply->retry_after) head += fmt::format("Retry-After: {}\r\n", after->count());
  say(id, head + "\r\n" + reply->body);
}

std::size_t TlsFront::calls() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(connections_, [](const auto& entry) { return entry.second->call.has_value(); }));
}

void TlsFront::close(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const auto kept = std::move(found->second);
  connections_.erase(found);
  loop_.forget(kept->fd.get());
  if (const auto call = kept->call) behind_.cancel(*call);
  ++moved_;
}

}  // namespace ferry::test
