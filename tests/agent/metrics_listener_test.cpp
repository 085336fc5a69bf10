// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/metrics_listener.h"

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <optional>
#include <poll.h>
#include <stop_token>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/metrics/metrics_server.h"
#include "tests/kube/certificates.h"
#include "tests/support/log_of.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::HasSubstr;
using testing::StartsWith;

// ---- where

TEST(ListenAddress, IsANumberAndAPort) {
  EXPECT_EQ(must(ListenAddress::parse("127.0.0.1:9417")), (ListenAddress{"127.0.0.1", 9417}));
  EXPECT_EQ(must(ListenAddress::parse("localhost:1")), (ListenAddress{"127.0.0.1", 1}));
  EXPECT_EQ(must(ListenAddress::parse("[::]:65535")), (ListenAddress{"::", 65535}));
  EXPECT_EQ(must(ListenAddress::parse("[fd00::1]:9417")).text(), "[fd00::1]:9417");
  for (const char* bad : {"", "9417", ":9417", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
                          "127.0.0.1:-1", "127.0.0.1:9417x", "node7:9417", "::1:9417", "[::1:9417", "[]:9417",
                          "[127.0.0.1]:9417", "256.0.0.1:9417", "[fe80::1%eth0]:9417"}) {
    const auto parsed = ListenAddress::parse(bad);
    ASSERT_FALSE(parsed.has_value()) << bad;
    EXPECT_EQ(parsed.error().code, Errc::usage) << bad;
  }
}

TEST(ListenAddress, IsThisMachineAlone) {
  for (const char* text : {"127.0.0.1:1", "127.8.9.1:1", "[::1]:1", "localhost:1"})
    EXPECT_TRUE(must(ListenAddress::parse(text)).is_loopback()) << text;
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:127.0.0.1]:1"})
    EXPECT_FALSE(must(ListenAddress::parse(text)).is_loopback()) << text;
}

// ---- clients

/// `buffer`: how much of the server's words the kernel keeps while nobody reads them; 0: as it likes. `from`:
/// the client's address is 127.0.0.FROM.
UniqueFd connect_to(std::uint16_t port, int buffer = 0, std::size_t from = 1) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (buffer > 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + static_cast<std::uint32_t>(from));
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
  place.sin_port = htons(port);
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return socket;
}

void send_all(const UniqueFd& socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;  // the other end has had enough
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

/// Until the server closes.
std::string receive_all(const UniqueFd& socket) {
  std::string out;
  std::array<char, 4096> piece{};
  while (true) {
    const ssize_t count = ::recv(socket.get(), piece.data(), piece.size(), 0);
    EXPECT_FALSE(count < 0 && errno == EAGAIN) << "the listener has neither answered nor hung up";
    if (count <= 0) return out;
    out.append(piece.data(), static_cast<std::size_t>(count));
  }
}

std::string get(const std::string& path, const std::string& headers = {}) {
  return "GET " + path + " HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n";
}

/// A listener whose loop runs in a thread of its own, as long as it lives.
class Served {
 public:
  explicit Served(MetricsListener::Settings settings, std::string metrics = "ferry_build_info 1\n") {
    settings.address = {"127.0.0.1", 0};
    listener_ = must(MetricsListener::open(*loop_, std::move(settings), [this, metrics = std::move(metrics)] {
      ++asked_;
      return metrics;
    }));
    port_ = listener_->port();
    thread_ = std::jthread([this](const std::stop_token& stop) { loop_->run(stop); });
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  Served(Served&&) = delete;
  Served& operator=(Served&&) = delete;
  ~Served() {
    thread_.request_stop();
    thread_.join();
  }

  std::uint16_t port() const { return port_; }
  int asked() const { return asked_; }
  std::string ask(const std::string& bytes) const {
    const UniqueFd socket = connect_to(port_);
    send_all(socket, bytes);
    return receive_all(socket);
  }

 private:
  std::unique_ptr<EventLoop> loop_ = must(EventLoop::create());
  std::atomic<int> asked_ = 0;
  std::unique_ptr<MetricsListener> listener_;
  std::uint16_t port_ = 0;
  std::jthread thread_;
};

// ---- plain

TEST(MetricsListener, AnswersWhatItKnows) {
  const Served served({});
  const std::string metrics = served.ask(get("/metrics"));
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 OK\r\n"));
  for (const char* header : {"Content-Type: text/plain; version=0.0.4; charset=utf-8", "Content-Length: 19",
                             "Cache-Control: no-store", "Connection: close"})
    EXPECT_THAT(metrics, HasSubstr("\r\n" + std::string(header) + "\r\n"));
  EXPECT_THAT(metrics, testing::EndsWith("\r\n\r\nferry_build_info 1\n"));
  EXPECT_THAT(served.ask(get("/healthz")), testing::EndsWith("\r\n\r\nok\n"));
  EXPECT_EQ(served.asked(), 1);
  EXPECT_THAT(served.ask(get("/")), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(served.ask(get("/metrics/x")), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(served.ask(get("/metrics?debug=1")), StartsWith("HTTP/1.1 200 "));
  const std::string post = served.ask("POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(post, HasSubstr("\r\nAllow: GET\r\n"));
}

// The library reads the requests; what it refuses never becomes an answer with metrics.
TEST(MetricsListener, ARequestOfAnotherFormIsRefused) {
  const Served served({});
  for (const auto& [bytes, status] :
       {std::pair<std::string, std::string>{"GET /metrics HTTP/1.1\r\n\r\n", "400"},  // no Host
        {"GET /metrics HTTP/2.0\r\nHost: a\r\n\r\n", "505"},
        {get("/metrics", "No-Colon\r\n"), "400"},
        {get("/metrics", "Content-Length: 1\r\n"), "413"},
        {get("/metrics", "Content-Length: -1\r\n"), "400"},
        {get("/metrics", "Transfer-Encoding: chunked\r\n"), "413"},
        {get("/" + std::string(MetricsListener::kMostRequestBytes, 'a')), "414"},
        {get("/metrics", "A: " + std::string(MetricsListener::kMostRequestBytes, 'a') + "\r\n"), "431"}})
    EXPECT_THAT(served.ask(bytes), StartsWith("HTTP/1.1 " + status + " ")) << bytes;
  EXPECT_EQ(served.asked(), 0);
  EXPECT_THAT(served.ask(get("/metrics", "Content-Length: 0\r\n")), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(served.ask("GET /healthz HTTP/1.0\r\n\r\n"), HasSubstr(" 200 "));
}

TEST(MetricsListener, BytesThatAreNoRequestGetNoAnswer) {
  const Served served({.idle = 1s});
  for (const std::string& bytes :
       {std::string("\x16\x03\x01\x02"), std::string("\0", 1), std::string("\r\n")})
    EXPECT_EQ(served.ask(bytes), "") << bytes;
}

TEST(MetricsListener, ARequestMayComeInPieces) {
  const Served served({});
  const UniqueFd socket = connect_to(served.port());
  for (const char c : get("/metrics")) send_all(socket, std::string_view(&c, 1));
  EXPECT_THAT(receive_all(socket), StartsWith("HTTP/1.1 200 "));
}

TEST(MetricsListener, ALargeAnswerComesWhole) {
  const Served served({}, std::string(4U << 20U, 'x'));
  EXPECT_GT(served.ask(get("/metrics")).size(), 4U << 20U);
}

TEST(MetricsListener, WhoSendsTooMuchStillHearsWhy) {
  const Served served({});
  const UniqueFd socket = connect_to(served.port());
  send_all(socket, "GET /metrics HTTP/1.1\r\nA: " + std::string(20'000, 'a'));
  ::shutdown(socket.get(), SHUT_WR);
  EXPECT_THAT(receive_all(socket), StartsWith("HTTP/1.1 431 "));
}

TEST(MetricsListener, WhoNeverStopsSendingIsCutOff) {
  const Served served({.idle = 1h});
  const UniqueFd socket = connect_to(served.port());
  send_all(socket, "GET /metrics HTTP/1.1\r\nA: " + std::string(16U << 20U, 'a'));  // as long as it is taken
  receive_all(socket);
  EXPECT_THAT(served.ask(get("/metrics")), StartsWith("HTTP/1.1 200 "));
}

TEST(MetricsListener, WhoSaysNothingIsCutOff) {
  const Served served({.idle = 1s});
  const UniqueFd silent = connect_to(served.port());
  EXPECT_EQ(receive_all(silent), "");
  const UniqueFd slow = connect_to(served.port());
  send_all(slow, "GET /met");
  EXPECT_EQ(receive_all(slow), "");
}

TEST(MetricsListener, ManySilentOnesKeepNobodyOut) {
  const Served served({.idle = 1s});
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < 3 * MetricsListener::kMostConnections; ++i) {
    silent.push_back(connect_to(served.port(), 0, i + 2));
    send_all(silent.back(), "GET ");
  }
  EXPECT_THAT(served.ask(get("/metrics")), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(receive_all(silent.front()), "");  // the oldest has made room
}

// More than the server's kernel takes for a client that reads nothing.
constexpr std::size_t kLargeAnswer = 8U << 20U;
constexpr int kSmallBuffer = 4096;

/// It has asked, and its answer begins, or it was hung up on.
UniqueFd who_is_being_answered(std::uint16_t port, int buffer, std::size_t from) {
  UniqueFd socket = connect_to(port, buffer, from);
  send_all(socket, get("/metrics"));
  pollfd begins{.fd = socket.get(), .events = POLLIN, .revents = 0};
  constexpr int kPatience = 20'000;
  EXPECT_EQ(::poll(&begins, 1, kPatience), 1);
  return socket;
}

TEST(MetricsListener, ThoseWhoTakeNothingOfTheirAnswersKeepNobodyOut) {
  const Served served({.idle = 3s}, std::string(kLargeAnswer, 'x'));
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < MetricsListener::kMostConnections; ++i)
    silent.push_back(who_is_being_answered(served.port(), kSmallBuffer, i + 2));
  ASSERT_THAT(served.ask(get("/healthz")), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(served.ask(get("/metrics")), testing::SizeIs(testing::Gt(kLargeAnswer)));
  EXPECT_LT(receive_all(silent.front()).size(), kLargeAnswer);  // the oldest has made room
}

/// A client that is slow, in a thread of its own, until the test makes it take the rest at once.
class SlowReader {
 public:
  explicit SlowReader(std::uint16_t port, std::size_t from = 1)
      : socket_(who_is_being_answered(port, kBuffer, from)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { read(stop); });
  }
  /// How much came, all in all.
  std::size_t hurry() {
    thread_.request_stop();
    thread_.join();
    return taken_ + receive_all(socket_).size();
  }

 private:
  // So slow that the server's kernel has room for the rest only now and then.
  static constexpr int kBuffer = 1 << 16;
  static constexpr int kPauseMs = 5;

  void read(const std::stop_token& stop) {
    std::array<char, 4096> piece{};
    while (!stop.stop_requested()) {
      const ssize_t count = ::recv(socket_.get(), piece.data(), piece.size(), 0);
      if (count <= 0) return;
      taken_ += static_cast<std::size_t>(count);
      ::poll(nullptr, 0, kPauseMs);
    }
  }

  UniqueFd socket_;
  std::size_t taken_ = 0;
  std::jthread thread_;
};

TEST(MetricsListener, ManySlowReadersAtOneAddressKeepNobodyElseOut) {
  const Served served({.idle = 1h}, std::string(kLargeAnswer, 'x'));
  SlowReader other(served.port(), 2);
  std::vector<std::unique_ptr<SlowReader>> slow;
  for (std::size_t i = 0; i < 2 * MetricsListener::kMostConnections; ++i)
    slow.push_back(std::make_unique<SlowReader>(served.port(), 3));
  EXPECT_THAT(served.ask(get("/metrics")), testing::SizeIs(testing::Gt(kLargeAnswer)));
  EXPECT_GT(other.hurry(), kLargeAnswer);
  EXPECT_GT(slow.front()->hurry(), kLargeAnswer);
  EXPECT_EQ(slow.back()->hurry(), 0U) << "one too many of its address";
}

TEST(MetricsListener, ManyWhoAskNothingAtOneAddressKeepNobodyElseOut) {
  const Served served({.idle = 1h});
  const UniqueFd honest = connect_to(served.port());
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < 3 * MetricsListener::kMostConnections; ++i)
    silent.push_back(connect_to(served.port(), 0, 2));
  EXPECT_EQ(receive_all(silent.back()), "") << "one too many of its address";
  send_all(honest, get("/metrics"));
  EXPECT_THAT(receive_all(honest), StartsWith("HTTP/1.1 200 "));
}

TEST(MetricsListener, EndsWithConnectionsOpen) {
  auto loop = must(EventLoop::create());
  auto listener =
      must(MetricsListener::open(*loop, {.address = {"127.0.0.1", 0}}, [] { return std::string(); }));
  const UniqueFd socket = connect_to(listener->port());
  std::stop_source stop;
  loop->at(EventLoop::Clock::now() + 20ms, [&stop] { stop.request_stop(); });
  loop->run(stop.get_token());
  EXPECT_EQ(listener->connections(), 1U);
  listener.reset();
  EXPECT_EQ(receive_all(socket), "");
}

TEST(ShownMetricsTest, WaitsForASecretAndForAPort) {
  const test::ScratchDirectory scratch;
  auto loop = must(EventLoop::create());
  auto taken =
      must(MetricsListener::open(*loop, {.address = {"127.0.0.1", 0}}, [] { return std::string(); }));
  const test::LogOf log;
  MetricsServer shown(
      *loop, {.address = {"127.0.0.1", taken->port()}, .token = scratch.path() / "token"},
      [] { return std::string(); }, 5ms);
  must(shown.begin());
  EXPECT_EQ(shown.listener(), nullptr);
  const auto pass = [&](auto done) {
    std::stop_source stop;
    const auto end = EventLoop::Clock::now() + 10s;
    std::function<void()> look = [&] {
      if (done() || EventLoop::Clock::now() > end) return static_cast<void>(stop.request_stop());
      loop->at(EventLoop::Clock::now() + 1ms, look);
    };
    look();
    loop->run(stop.get_token());
    return done();
  };
  EXPECT_TRUE(pass([&] { return log.text().find("token") != std::string::npos; }));
  scratch.file("token", "s3cret\n");
  EXPECT_TRUE(pass([&] { return log.text().find("127.0.0.1") != std::string::npos; })) << log.text();
  EXPECT_EQ(shown.listener(), nullptr);
  taken.reset();
  EXPECT_TRUE(pass([&] { return shown.listener() != nullptr; })) << log.text();
  MetricsServer never(*loop, {.address = {"127.0.0.1", 0}, .key = scratch.path() / "key"},
                      [] { return std::string(); });
  EXPECT_FALSE(never.begin().has_value()) << "no time mends that";
}

// ---- who may

TEST(MetricsListener, ATokenIsNeededWhereThereIsOne) {
  const test::ScratchDirectory scratch;
  scratch.file("token", "s3cret\n");
  const Served served({.token = scratch.path() / "token"});
  const std::string refused = served.ask(get("/metrics"));
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(refused, HasSubstr("\r\nWWW-Authenticate: Bearer\r\n"));
  for (const char* header : {"Bearer", "Bearer ", "Bea", "", "Basic s3cret", "s3cret", "Bearer s3cret x"})
    EXPECT_THAT(served.ask(get("/metrics", std::string("Authorization: ") + header + "\r\n")),
                StartsWith("HTTP/1.1 401 "))
        << header;
  EXPECT_THAT(served.ask(get("/metrics", "Authorization: Bearer s3cre\r\n")), StartsWith("HTTP/1.1 401 "));
  EXPECT_EQ(served.asked(), 0);
  EXPECT_THAT(served.ask(get("/metrics", "Authorization: Bearer s3cret\r\n")), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(served.ask(get("/metrics", "aUTHORIZATION: bEARER   s3cret \r\n")),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(served.ask(get("/healthz")), StartsWith("HTTP/1.1 200 "));
}

TEST(MetricsListener, AnotherTokenInTheFileCountsAtOnce) {
  const test::ScratchDirectory scratch;
  scratch.file("token", "old");
  const Served served({.token = scratch.path() / "token"});
  scratch.file("new", "newer");
  std::filesystem::rename(scratch.path() / "new", scratch.path() / "token");
  EXPECT_THAT(served.ask(get("/metrics", "Authorization: Bearer old\r\n")), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(served.ask(get("/metrics", "Authorization: Bearer newer\r\n")), StartsWith("HTTP/1.1 200 "));
  // Without one nobody gets in, with an empty one neither.
  scratch.file("token", "");
  EXPECT_THAT(served.ask(get("/metrics", "Authorization: Bearer \r\n")), StartsWith("HTTP/1.1 503 "));
  scratch.remove("token");
  EXPECT_THAT(served.ask(get("/metrics", "Authorization: Bearer newer\r\n")), StartsWith("HTTP/1.1 503 "));
}

class MetricsListenerRefuses : public testing::Test {
 protected:
  std::string why(MetricsListener::Settings settings) {
    const auto opened = MetricsListener::open(*loop_, std::move(settings), [] { return std::string(); });
    return opened ? "opened" : opened.error().message;
  }
  std::unique_ptr<EventLoop> loop_ = must(EventLoop::create());
  const test::ScratchDirectory scratch_;
  const std::filesystem::path file_ = scratch_.path() / "a";
};

TEST_F(MetricsListenerRefuses, ATokenThatWouldGoInTheClear) {
  scratch_.file("a", "token");
  EXPECT_THAT(why({.address = {"0.0.0.0", 0}, .token = file_}), HasSubstr("unencrypted"));
  EXPECT_THAT(why({.address = {"::", 0}, .token = file_}), HasSubstr("unencrypted"));
  EXPECT_EQ(why({.address = {"127.0.0.1", 0}, .token = file_}), "opened");
}

TEST_F(MetricsListenerRefuses, HalfACertificate) {
  EXPECT_THAT(why({.address = {"127.0.0.1", 0}, .certificate = file_}), HasSubstr("go together"));
  EXPECT_THAT(why({.address = {"127.0.0.1", 0}, .key = file_}), HasSubstr("go together"));
}

TEST_F(MetricsListenerRefuses, FilesThatCannotBeUsed) {
  EXPECT_THAT(why({.address = {"127.0.0.1", 0}, .token = file_}), HasSubstr("No such file"));
  EXPECT_THAT(why({.address = {"127.0.0.1", 0}, .certificate = file_, .key = file_}),
              HasSubstr("No such file"));
  scratch_.file("a", " \n");
  EXPECT_THAT(why({.address = {"127.0.0.1", 0}, .token = file_}), HasSubstr("the token is empty"));
  EXPECT_THAT(why({.address = {"127.0.0.1", 0}, .certificate = file_, .key = file_}),
              StartsWith("metrics: the certificate and its key: "));
}

TEST_F(MetricsListenerRefuses, APortThatAnotherHas) {
  const Served other({});
  EXPECT_THAT(why({.address = {"127.0.0.1", other.port()}}), HasSubstr("Address already in use"));
}

// ---- TLS

/// A client that trusts one authority; what it was answered, or why not.
std::string ask_by_tls(std::uint16_t port, const std::filesystem::path& authority, const std::string& bytes,
                       int newest = TLS1_3_VERSION, const char* ciphers = nullptr) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(::SSL_CTX_new(::TLS_client_method()),
                                                                  &SSL_CTX_free);
  ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  ::SSL_CTX_load_verify_locations(context.get(), authority.c_str(), nullptr);
  ::SSL_CTX_set_max_proto_version(context.get(), newest);
  ::SSL_CTX_set_min_proto_version(context.get(), TLS1_VERSION);
  ::SSL_CTX_set_security_level(context.get(), 0);
  if (ciphers != nullptr) ::SSL_CTX_set_cipher_list(context.get(), ciphers);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(::SSL_new(context.get()), &SSL_free);
  const UniqueFd socket = connect_to(port);
  ::SSL_set_fd(ssl.get(), socket.get());
  if (::SSL_connect(ssl.get()) != 1) return "no TLS";
  ::SSL_write(ssl.get(), bytes.data(), static_cast<int>(bytes.size()));
  std::string out;
  std::array<char, 4096> piece{};
  while (true) {
    const int count = ::SSL_read(ssl.get(), piece.data(), static_cast<int>(piece.size()));
    if (count <= 0) {
      // The end was said, not only made.
      if (::SSL_get_error(ssl.get(), count) != SSL_ERROR_ZERO_RETURN) out += "cut off";
      return out;
    }
    out.append(piece.data(), static_cast<std::size_t>(count));
  }
}

class MetricsListenerTls : public testing::Test {
 protected:
  MetricsListenerTls() {
    test::make_authority(scratch_, "first");
    test::make_certificate(scratch_, "server", "first", "IP:127.0.0.1");
  }
  std::filesystem::path file(const std::string& name) const { return scratch_.path() / name; }
  MetricsListener::Settings settings() const {
    return {.certificate = file("server.pem"), .key = file("server.key")};
  }

  const test::ScratchDirectory scratch_;
};

TEST_F(MetricsListenerTls, IsSpoken) {
  const Served served(settings(), std::string(1U << 20U, 'x'));
  for (const int newest : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const std::string answer = ask_by_tls(served.port(), file("first.pem"), get("/metrics"), newest);
    EXPECT_THAT(answer.substr(0, 100), StartsWith("HTTP/1.1 200 "));
    EXPECT_GT(answer.size(), 1U << 20U);
    EXPECT_THAT(answer.substr(answer.size() - 8), "xxxxxxxx");
  }
  EXPECT_EQ(ask_by_tls(served.port(), file("first.pem"), get("/metrics"), TLS1_1_VERSION), "no TLS");
}

TEST_F(MetricsListenerTls, HasNoWeakCiphers) {
  const Served served(settings());
  const auto answer = [&](const char* cipher) {
    return ask_by_tls(served.port(), file("first.pem"), get("/healthz"), TLS1_2_VERSION, cipher);
  };
  for (const char* good : {"ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256",
                           "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"})
    EXPECT_THAT(answer(good), StartsWith("HTTP/1.1 200 ")) << good;
  for (const char* weak :
       {"ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384:ECDHE-RSA-AES256-SHA384",
        "DHE-RSA-AES256-SHA256", "AES128-SHA:AES256-SHA256", "AES128-GCM-SHA256:AES256-GCM-SHA384"})
    EXPECT_EQ(answer(weak), "no TLS") << weak;
}

TEST_F(MetricsListenerTls, WhoSpeaksNoneIsNotAnswered) {
  const Served served(settings());
  const std::string answer = served.ask(get("/metrics"));
  EXPECT_EQ(answer.find("HTTP"), std::string::npos);
  EXPECT_EQ(served.asked(), 0);
}

TEST_F(MetricsListenerTls, WhoNeverEndsTheHandshakeIsCutOff) {
  auto quick = settings();
  quick.idle = 1s;
  const Served served(quick);
  const UniqueFd socket = connect_to(served.port());
  send_all(socket, std::string("\x16\x03\x01\x02\x00", 5));
  EXPECT_EQ(receive_all(socket).find("HTTP"), std::string::npos) << "an alert of TLS at most";
}

TEST_F(MetricsListenerTls, AnotherCertificateInTheFilesCountsAtOnce) {
  const Served served(settings());
  EXPECT_THAT(ask_by_tls(served.port(), file("first.pem"), get("/healthz")), StartsWith("HTTP/1.1 200 "));
  test::make_authority(scratch_, "second");
  test::make_certificate(scratch_, "next", "second", "IP:127.0.0.1");
  std::filesystem::rename(file("next.pem"), file("server.pem"));
  // The key is not that of it yet: the old pair is good until then.
  EXPECT_THAT(ask_by_tls(served.port(), file("first.pem"), get("/healthz")), StartsWith("HTTP/1.1 200 "));
  std::filesystem::rename(file("next.key"), file("server.key"));
  EXPECT_THAT(ask_by_tls(served.port(), file("second.pem"), get("/healthz")), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(ask_by_tls(served.port(), file("first.pem"), get("/healthz")), "no TLS");
  scratch_.remove("server.pem");
  EXPECT_THAT(ask_by_tls(served.port(), file("second.pem"), get("/healthz")), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MetricsListenerTls, AKeyWithAPassPhraseIsRefusedAndNobodyIsAsked) {
  test::encrypt_key(scratch_, "server", "locked.key");
  auto loop = must(EventLoop::create());
  const auto opened = MetricsListener::open(
      *loop, {.address = {"127.0.0.1", 0}, .certificate = file("server.pem"), .key = file("locked.key")},
      [] { return std::string(); });
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error().message, StartsWith("metrics: the certificate and its key: "));
}

}  // namespace
}  // namespace ferry::agent
