// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/fetch/http.h"

#include <algorithm>
#include <fstream>
#include <sys/socket.h>

#include <gmock/gmock.h>

#include "tests/kata-manager/tls_server.h"
#include "tests/support/http_standin.h"
#include "tests/support/loopback.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using test::HttpAnswer;
using test::must;
using test::ReceivedRequest;
using testing::HasSubstr;

std::string certificate_in(const test::ScratchDirectory& folder) {
  std::ifstream in(folder.path() / "cert.pem");
  return {std::istreambuf_iterator<char>(in), {}};
}

Result<HttpReply> ask(const std::string& url, const std::string& authorities = {}) {
  const FetchRequest settings{.name = {}, .url = {}, .authorities = authorities};
  HttpClient client(settings);
  return client.perform({.url = url});
}

TEST(Tls, IsSpokenWithWhomAnAuthoritySignedFor) {
  const test::ScratchDirectory folder;
  test::make_certificate(folder, "IP:127.0.0.1");
  folder.file("page", "HTTP/1.0 200 OK\r\n\r\ntext");
  const test::TlsServer server(folder);
  EXPECT_EQ(must(ask("https://" + server.address() + "/page", certificate_in(folder))).text, "text");
  const auto unknown = ask("https://" + server.address() + "/");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, Errc::failed);
  EXPECT_THAT(unknown.error().message, HasSubstr("certificate"));
  EXPECT_THAT(unknown.error().hint, HasSubstr("authority"));
}

TEST(Tls, IsNotSpokenWithSomebodyElse) {
  const test::ScratchDirectory folder;
  test::make_certificate(folder, "DNS:registry.example");
  const test::TlsServer server(folder);
  const auto other = ask("https://" + server.address() + "/", certificate_in(folder));
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, Errc::failed);
}

TEST(Tls, HasAuthoritiesThatCanBeRead) {
  const test::ScratchDirectory folder;
  test::make_certificate(folder, "IP:127.0.0.1");
  const test::TlsServer server(folder);
  const auto got = ask("https://" + server.address() + "/", "no certificate");
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().code, Errc::invalid_config) << got.error().message;
}

// The client offers no HTTP/2: libcurl would ask a dead connection of it again and again
// (RealRegistry.MayFallSilentAnywhere).
TEST(Tls, IsSpokenForHttp1Alone) {
  std::string hello(4096, '\0');
  {
    const test::LoopbackServer server([&](int connection) {
      hello.resize(
          static_cast<std::size_t>(std::max<ssize_t>(::recv(connection, hello.data(), hello.size(), 0), 0)));
    });
    EXPECT_FALSE(ask("https://127.0.0.1:" + std::to_string(server.port()) + "/").has_value());
  }
  EXPECT_THAT(hello, HasSubstr("\x08http/1.1"));
  EXPECT_THAT(hello, testing::Not(HasSubstr("\x02h2")));
}

TEST(Http, KeepsHeadersOfTheLastAnswerOnly) {
  const test::HttpStandin server([](const ReceivedRequest&) {
    return HttpAnswer{.headers = {"X-One: a ", "x-one:b", "X-Empty:"}, .body = "text"};
  });
  const HttpReply reply = must(ask("http://" + server.address() + "/"));
  EXPECT_EQ(reply.header("x-one"), "a");
  EXPECT_EQ(reply.headers.count("x-one"), 2U);
  EXPECT_EQ(reply.header("x-empty"), "");
  EXPECT_EQ(reply.text, "text");
  EXPECT_THAT(server.seen().front().header("user-agent"), HasSubstr("ferry/"));
}

TEST(Http, IsNoHttpOfOtherKinds) {
  for (const char* url :
       {"", "127.0.0.1", "file:///etc/passwd", "ftp://127.0.0.1/", "http://", "http://u:p@127.0.0.1/"})
    EXPECT_EQ(ask(url).error().code, Errc::malformed_host) << url;
}

TEST(Http, ResolvesWhereARedirectLeads) {
  EXPECT_EQ(must(resolve_url("https://a.example/v2/x?y=1", "/z")), "https://a.example/z");
  EXPECT_EQ(must(resolve_url("https://a.example/v2/x", "https://b.example/q?r=%20")),
            "https://b.example/q?r=%20");
  EXPECT_EQ(must(resolve_url("https://a.example/v2/x", "//b.example/q")), "https://b.example/q");
  EXPECT_EQ(must(HttpOrigin::of("HTTPS://A.Example/x")), must(HttpOrigin::of("https://a.example:443/y")));
  EXPECT_NE(must(HttpOrigin::of("https://a.example/")), must(HttpOrigin::of("http://a.example/")));
  EXPECT_NE(must(HttpOrigin::of("https://a.example/")), must(HttpOrigin::of("https://a.example:444/")));
}

}  // namespace
}  // namespace ferry::kata
