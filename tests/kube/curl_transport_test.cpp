// SPDX-License-Identifier: Apache-2.0
#include "kube/curl_transport.h"

#include <algorithm>
#include <atomic>
#include <curl/curl.h>
#include <dlfcn.h>
#include <netdb.h>
#include <sys/resource.h>
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kube/api_error.h"
#include "tests/kube/transport_fixture.h"

namespace {

constexpr std::string_view kSilentName = "silent.example";
std::atomic<int> asked_in_vain{0};
std::atomic<bool> dns_is_silent{false};

}  // namespace

// In place of the C library's, for libcurl too: a name whose DNS server does not answer.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (node == nullptr || node != kSilentName) return real(node, service, hints, found);
  ++asked_in_vain;
  while (dns_is_silent) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  --asked_in_vain;
  return EAI_AGAIN;
}

namespace ferry::kube {
namespace {

using std::chrono::milliseconds;
using test::ApiStandin;
using test::must;
using test::ReceivedApiRequest;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class CurlTransportTest : public test::TransportTest {
 protected:
  CurlTransportTest() { open(access_to(server_)); }
  ApiStandin server_{with_tls()};
};

std::string lines(int count) {
  std::string out;
  for (int n = 0; n < count; ++n) out += "{\"n\":" + std::to_string(n) + "}\n";
  return out;
}

TEST_F(CurlTransportTest, AsksForJson) {
  const Heard heard = get("/echo?limit=1&continue=a%2Fb");
  EXPECT_EQ(heard.status(), 200) << heard.message();
  EXPECT_EQ(nlohmann::json::parse(heard.body()).at("path"), "/echo?limit=1&continue=a%2Fb");
  const ReceivedApiRequest seen = server_.seen().at(0);
  EXPECT_EQ(seen.method, "GET");
  EXPECT_EQ(seen.header("accept"), "application/json");
  EXPECT_THAT(seen.header("user-agent"), testing::StartsWith("ferry/"));
  EXPECT_EQ(seen.header("host"), "127.0.0.1:" + std::to_string(server_.port()));
  EXPECT_EQ(seen.header("authorization"), "");
  EXPECT_EQ(seen.header("content-type"), "");
}

#if LIBCURL_VERSION_NUM >= 0x075700
TEST_F(CurlTransportTest, DoesNotWaitForADnsServerThatIsSilent) {
  ClusterAccess access = access_to(server_);
  access.server.host = kSilentName;
  open(std::move(access));
  dns_is_silent = true;
  const auto begin = std::chrono::steady_clock::now();
  // Whoever waits for it is let go, and found out by the time.
  std::jthread rescue([](const std::stop_token& stop) {
    for (int i = 0; i < 1'000 && !stop.stop_requested(); ++i) std::this_thread::sleep_for(milliseconds(5));
    dns_is_silent = false;
  });
  const Heard heard = ask({.path = "/echo", .deadline = milliseconds(1'000)});
  EXPECT_EQ(heard.error(), Errc::unreachable) << heard.message();
  EXPECT_EQ(asked_in_vain, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  rescue.request_stop();
  rescue.join();
  while (asked_in_vain > 0) std::this_thread::yield();
}
#endif

TEST_F(CurlTransportTest, SendsABodyWithItsType) {
  const std::string body = R"({"metadata":{"labels":{"a":"b"}}})";
  EXPECT_EQ(
      ask({.method = "PATCH", .path = "/echo", .content_type = "application/merge-patch+json", .body = body})
          .status(),
      200);
  EXPECT_EQ(ask({.method = "POST", .path = "/echo"}).status(), 200);
  EXPECT_EQ(ask({.method = "DELETE", .path = "/echo"}).status(), 200);
  const auto seen = server_.seen();
  ASSERT_THAT(seen, SizeIs(3));
  EXPECT_EQ(seen[0].method, "PATCH");
  EXPECT_EQ(seen[0].header("content-type"), "application/merge-patch+json");
  EXPECT_EQ(seen[0].header("expect"), "");
  EXPECT_EQ(seen[0].body, body);
  EXPECT_EQ(seen[1].method, "POST");
  EXPECT_EQ(seen[1].header("content-length"), "0");
  EXPECT_EQ(seen[2].method, "DELETE");
  EXPECT_EQ(seen[2].header("content-type"), "");
  EXPECT_THAT(seen, Each(Field(&ReceivedApiRequest::connection, 1))) << "one connection is enough";
}

TEST_F(CurlTransportTest, GivesAStreamAsItComesHoweverItIsCut) {
  const Heard heard = ask({.path = "/watch?lines=300", .deadline = milliseconds(0)}, true);
  EXPECT_EQ(heard.status(), 200) << heard.message();
  EXPECT_EQ(heard.received, lines(300));
  EXPECT_GT(heard.pieces, 10);
  EXPECT_EQ(heard.body(), "");
  EXPECT_EQ(get("/watch?lines=300").body(), lines(300));
}

TEST_F(CurlTransportTest, GivesTheBodyOfARefusalWithIt) {
  const Heard refused = ask({.path = "/status?code=429&after=7"}, true);
  EXPECT_EQ(refused.status(), 429);
  EXPECT_EQ(refused.received, "");
  EXPECT_EQ(refused.body(), R"({"kind":"Status"})");
  EXPECT_EQ(must(refused.end.value_or(ApiReply{})).retry_after, std::chrono::seconds(7));
  EXPECT_EQ(must(get("/status?code=503").end.value_or(ApiReply{})).retry_after, std::nullopt);
  const auto far = get("/status?code=503&after=99999999999").end.value_or(ApiReply{});
  EXPECT_EQ(must(far).retry_after, std::chrono::hours(24));
}

TEST_F(CurlTransportTest, IsLedNowhereByAnAnswer) {
  const ApiStandin other(with_tls());
  ClusterAccess access = access_to(server_);
  access.token.text = "secret";
  open(access);
  const std::string to = "https://127.0.0.1:" + std::to_string(other.port()) + "/echo";
  EXPECT_EQ(get("/redirect?to=" + to).status(), 307);
  EXPECT_THAT(other.seen(), IsEmpty());
  EXPECT_THAT(server_.seen(), SizeIs(1));
}

TEST_F(CurlTransportTest, IsLedNowhereByAPath) {
  for (const char* path :
       {"", "echo", "@127.0.0.2/echo", ".evil.example/", "/a b", "/a\r\nX-Other: b", "/\xc3\xa4"})
    EXPECT_EQ(get(path).error(), Errc::failed) << path;
  EXPECT_EQ(ask({.method = "GET / HTTP/1.1\r\nX: ", .path = "/echo"}).error(), Errc::failed);
  EXPECT_EQ(ask({.method = "POST", .path = "/echo", .content_type = "a\r\nX: y", .body = "b"}).error(),
            Errc::failed);
  EXPECT_THAT(server_.seen(), IsEmpty());
}

TEST_F(CurlTransportTest, WaitsForAnAnswerUntilItsDeadline) {
  for (const char* path : {"/silent", "/stall"}) {
    const auto begin = EventLoop::Clock::now();
    const Heard late = ask({.path = path, .deadline = milliseconds(60)});
    ASSERT_EQ(late.error(), Errc::unreachable) << path;
    EXPECT_THAT(late.message(), HasSubstr(std::string(path) + ": no whole answer within 60 ms"));
    EXPECT_GE(EventLoop::Clock::now() - begin, milliseconds(60));
    EXPECT_LT(EventLoop::Clock::now() - begin, std::chrono::seconds(10));
  }
  EXPECT_EQ(get("/echo").status(), 200);
}

TEST_F(CurlTransportTest, EndsAStreamThatHasFallenSilent) {
  const Heard silent =
      ask({.path = "/stall", .deadline = milliseconds(0), .silence = milliseconds(1000)}, true);
  EXPECT_EQ(silent.error(), Errc::unreachable);
  EXPECT_EQ(silent.received, "begun\n");
  EXPECT_THAT(silent.message(), HasSubstr("nothing more for 1 s"));
}

TEST_F(CurlTransportTest, LetsAStreamBeSilentForLessThanThat) {
  Heard heard;
  send({.path = "/hold", .deadline = milliseconds(0), .silence = std::chrono::seconds(25)}, heard, true);
  run_until([&] { return heard.received == "begun\n"; });
  const auto until = EventLoop::Clock::now() + milliseconds(50);
  run_until([&] { return EventLoop::Clock::now() > until; });
  EXPECT_FALSE(heard.end.has_value());
  EXPECT_EQ(get("/release").status(), 200);
  run_until([&] { return heard.end.has_value(); });
  EXPECT_EQ(heard.received, "begun\ndone\n");
  EXPECT_EQ(heard.status(), 200);
}

TEST_F(CurlTransportTest, DoesNotTakeHalfAnAnswerForOne) {
  for (const char* path : {"/half", "/half-chunk", "/no-answer"}) {
    EXPECT_EQ(get(path).error(), Errc::unreachable) << path;
    EXPECT_EQ(ask({.path = path}, true).error(), Errc::unreachable) << path;
  }
  EXPECT_EQ(get("/junk").error(), Errc::failed) << "it is another protocol";
  EXPECT_EQ(get("/echo").status(), 200);
}

TEST_F(CurlTransportTest, SaysThatNobodyIsThere) {
  ClusterAccess access;
  {
    const ApiStandin gone(with_tls());
    access = access_to(gone);
  }
  open(access);
  const Heard heard = get("/echo");
  EXPECT_EQ(heard.error(), Errc::unreachable);
  EXPECT_THAT(heard.message(), AllOf(HasSubstr(access.server.text()), HasSubstr("GET /echo")));
}

TEST_F(CurlTransportTest, IsSentNoMoreThanAnAnswerMayBe) {
  const std::string limit = std::to_string(CurlTransport::kMostBody);
  EXPECT_EQ(get("/large?bytes=" + limit).body().size(), CurlTransport::kMostBody);
  for (const std::string& path : {"/large?bytes=1" + limit, "/packed?bytes=" + limit + "0"}) {
    const Heard heard = get(path);
    EXPECT_EQ(heard.error(), ApiErrc::too_large) << path;
    EXPECT_THAT(heard.message(), HasSubstr(limit + " bytes, the limit")) << path;
  }
}

TEST_F(CurlTransportTest, TakesACompressedAnswerWhereItMay) {
  EXPECT_EQ(get("/packed?bytes=5").body(), "xxxxx");
  EXPECT_EQ(ask({.path = "/packed?bytes=5"}, true).received, "xxxxx") << "a list ends";
  EXPECT_EQ(ask({.path = "/packed?bytes=5", .deadline = std::chrono::milliseconds(0)}, true).received,
            "plain")
      << "a stream is not to be held back";
  ClusterAccess access = access_to(server_);
  access.compressed = false;
  open(access);
  EXPECT_EQ(get("/packed?bytes=5").body(), "plain");
}

TEST_F(CurlTransportTest, PutsThePathOfTheServerBeforeOurs) {
  ClusterAccess access = access_to(server_);
  access.server.path = "/below";
  open(access);
  EXPECT_EQ(get("/echo").status(), 200);
  EXPECT_EQ(server_.seen().at(0).path, "/below/echo");
}

// ---- who hears what, and from where calls may come

TEST_F(CurlTransportTest, SaysNothingFromWithinSend) {
  std::vector<Heard> heard(2);
  send({.path = "/echo"}, heard[0]);
  send({.path = "no path"}, heard[1]);
  EXPECT_FALSE(heard[0].end.has_value());
  EXPECT_FALSE(heard[1].end.has_value());
  run_until([&] { return heard[0].end && heard[1].end; });
}

TEST_F(CurlTransportTest, SaysNothingOfWhatWasCancelled) {
  std::vector<Heard> heard(3);
  transport_->cancel(send({.path = "/echo"}, heard[0]));
  transport_->cancel(send({.path = "no path"}, heard[1]));
  const auto held = send({.path = "/hold", .deadline = milliseconds(0)}, heard[2], true);
  run_until([&] { return !heard[2].received.empty(); });
  transport_->cancel(held);
  transport_->cancel(held);
  EXPECT_EQ(get("/release").status(), 200);
  for (const Heard& each : heard) EXPECT_FALSE(each.end.has_value());
  EXPECT_EQ(heard[2].received, "begun\n");
}

TEST_F(CurlTransportTest, MayBeCancelledFromWithinAnyListener) {
  // Three streams: the first that begins cancels another and itself, and asks for something else.
  std::vector<ApiTransport::Call> calls(3);
  std::vector<std::string> said;
  Heard after;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    ApiListener listener;
    listener.received = [&, i, owned = std::string(100, 'x')](std::string_view) {
      said.emplace_back("received");
      transport_->cancel(calls.at((i + 1) % calls.size()));
      transport_->cancel(calls.at(i));
      if (said.size() == 1) send({.path = "/echo"}, after);
      EXPECT_EQ(owned.size(), 100U) << "what a listener owns outlives its call";
    };
    listener.ended = [&](const Result<ApiReply>&) { said.emplace_back("ended"); };
    calls[i] = transport_->send({.path = "/stall", .deadline = milliseconds(0)}, std::move(listener));
  }
  run_until([&] { return after.end && said.size() == 2; });
  EXPECT_EQ(after.status(), 200) << after.message();
  EXPECT_THAT(said, ElementsAre("received", "received"));
}

TEST_F(CurlTransportTest, MayBeAskedFromWithinAnEnd) {
  Heard second;
  Heard third;
  ApiTransport::Call first = 0;
  const auto held = send({.path = "/stall", .deadline = milliseconds(0)}, third, true);
  first = transport_->send({.path = "/echo"}, {.ended = [&](const Result<ApiReply>&) {
                             transport_->cancel(first);
                             transport_->cancel(held);
                             send({.path = "/echo"}, second);
                           }});
  run_until([&] { return second.end.has_value(); });
  EXPECT_EQ(second.status(), 200);
  EXPECT_FALSE(third.end.has_value());
}

TEST_F(CurlTransportTest, LeavesNobodyCalledWhenItGoes) {
  Heard open_stream;
  Heard never;
  send({.path = "/stall", .deadline = milliseconds(30)}, open_stream, true);
  run_until([&] { return !open_stream.received.empty() || open_stream.end; });
  send({.path = "no path"}, never);
  send({.path = "/echo"}, never);
  transport_.reset();
  bool later = false;
  loop_->at(EventLoop::Clock::now() + milliseconds(60), [&] { later = true; });
  run_until([&] { return later; });
  EXPECT_FALSE(never.end.has_value());
}

TEST_F(CurlTransportTest, AnswersFiftyAtOnceBesideAStream) {
  std::vector<Heard> heard(50);
  Heard stream;
  send({.path = "/hold", .deadline = milliseconds(0)}, stream, true);
  for (std::size_t i = 0; i < heard.size(); ++i) send({.path = "/echo?i=" + std::to_string(i)}, heard[i]);
  run_until(
      [&] { return std::ranges::all_of(heard, [](const Heard& each) { return each.end.has_value(); }); });
  for (std::size_t i = 0; i < heard.size(); ++i) {
    ASSERT_EQ(heard[i].status(), 200) << heard[i].message();
    EXPECT_EQ(nlohmann::json::parse(heard[i].body()).at("path"), "/echo?i=" + std::to_string(i));
  }
  EXPECT_EQ(get("/release").status(), 200);
  run_until([&] { return stream.end.has_value(); });
  EXPECT_EQ(stream.received, "begun\ndone\n");
}

TEST_F(CurlTransportTest, SleepsWhileNothingComes) {
  Heard heard;
  send({.path = "/hold", .deadline = milliseconds(0), .silence = std::chrono::seconds(25)}, heard, true);
  run_until([&] { return heard.received == "begun\n"; });
  const auto times_slept = [] {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;  // NOLINT(cppcoreguidelines-pro-type-union-access): glibc's way to name it
  };
  const auto before = times_slept();
  loop_->at(EventLoop::Clock::now() + milliseconds(500), [&] { loop_->finish(); });
  loop_->run(std::stop_token());
  EXPECT_LE(times_slept() - before, 5);
}

// ---- HTTP/2

class Http2Test : public test::TransportTest {
 protected:
  Http2Test() { open(access_to(server_)); }
  ApiStandin server_{with_tls("server", {"--http2"})};
};

TEST_F(Http2Test, PutsAllRequestsOnOneConnection) {
  std::vector<Heard> heard(50);
  for (Heard& each : heard) send({.path = "/"}, each);
  run_until(
      [&] { return std::ranges::all_of(heard, [](const Heard& each) { return each.end.has_value(); }); });
  for (const Heard& each : heard) EXPECT_EQ(each.body(), "connection 1") << each.message();
  EXPECT_EQ(get("/").body(), "connection 1");
}

TEST_F(Http2Test, LeavesAConnectionThatDoesNotAnswer) {
  EXPECT_EQ(get("/").body(), "connection 1");
  Heard waiting;
  send({.method = "PATCH", .path = "/", .body = "x", .deadline = std::chrono::seconds(20)}, waiting);
  EXPECT_EQ(ask({.method = "PATCH", .path = "/", .body = "x", .deadline = milliseconds(60)}).error(),
            Errc::unreachable);
  ASSERT_EQ(get("/").body(), "connection 2");
  EXPECT_EQ(get("/").body(), "connection 2");
  EXPECT_FALSE(waiting.end.has_value()) << "what is under way is not given up";
}

}  // namespace
}  // namespace ferry::kube
