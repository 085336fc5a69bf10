// SPDX-License-Identifier: Apache-2.0
// What a registry can do to a client: the faults, the detours and the ways to be let in.
#include "kata-manager/fetch/registry.h"

#include <fcntl.h>

#include "kata-manager/artifacts/artifact_tree.h"
#include "tests/kata-manager/archives.h"
#include "tests/kata-manager/docker_registry.h"
#include "tests/kata-manager/faulty_wire.h"
#include "tests/kata-manager/fetching.h"
#include "tests/kata-manager/hostile_archives.h"
#include "tests/kata-manager/tls_server.h"

namespace ferry::kata {
namespace {

using test::HttpAnswer;
using test::must;
using test::ReceivedRequest;
using test::RegistryFront;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// "user:secret" and the header it becomes.
constexpr const char* kBasic = "Basic dXNlcjpzZWNyZXQ=";

enum class Behind { memory, docker };

std::unique_ptr<test::RegistryStore> behind(Behind what) {
  if (what == Behind::memory || test::DockerRegistry::program().empty())
    return std::make_unique<test::MemoryStore>();
  auto docker = std::make_unique<test::DockerRegistry>();
  docker->serve({});
  return docker;
}

/// Each is true of a registry of the test's own, and of the real program with that before it which fails.
class Registry : public test::Fetching, public testing::WithParamInterface<Behind> {
 protected:
  Registry() : Fetching(behind(GetParam())) { registry.image(layers(std::string(3'000'000, 'g'))); }

  void SetUp() override {
    if (GetParam() == Behind::docker && test::DockerRegistry::program().empty())
      GTEST_SKIP() << "no registry is named by FERRY_DOCKER_REGISTRY";
  }

  void log_in(const std::string& key,
              const std::string& entry = R"({"username":"user","password":"secret"})") {
    request.docker_config = R"({"auths":{")" + key + "\":" + entry + "}}";
  }

  bool is_blob(const ReceivedRequest& seen) const {
    return seen.path.find("/blobs/" + registry.first_blob()) != std::string::npos;
  }

  Error failure() {
    auto got = fetch();
    EXPECT_FALSE(got.has_value());
    EXPECT_FALSE(std::filesystem::exists(scratch.path() / "opt/artifacts/kata-gpu")) << "nothing is in place";
    return got ? Error{} : got.error();
  }
};

TEST_P(Registry, IsAskedAgainAfterWhatTimeMends) {
  for (const int status : {408, 429, 500, 502, 503}) {
    int left = 2;
    registry.instead = [&](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
      if (!is_blob(seen) || left == 0) return std::nullopt;
      --left;
      return HttpAnswer{.status = status};
    };
    pauses.clear();
    EXPECT_TRUE(must(fetch()).changed) << status;
    EXPECT_THAT(pauses, ElementsAre(200, 400)) << status;
    must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back));
  }
}

TEST_P(Registry, SaysWhenToAskAgain) {
  int left = 2;
  registry.instead = [&](const ReceivedRequest&) -> std::optional<HttpAnswer> {
    if (left == 0) return std::nullopt;
    return HttpAnswer{.status = 429, .headers = {left-- == 2 ? "Retry-After: 7" : "Retry-After: 86400"}};
  };
  must(fetch());
  EXPECT_THAT(pauses, ElementsAre(7000, 30000)) << "no longer than our patience";
}

TEST_P(Registry, IsGivenUpAfterSoManyTries) {
  registry.instead = [](const ReceivedRequest&) { return HttpAnswer{.status = 503}; };
  const Error error = failure();
  EXPECT_EQ(error.code, Errc::unreachable);
  EXPECT_THAT(error.message, HasSubstr("HTTP 503"));
  EXPECT_EQ(registry.seen().size(), 5U);
}

TEST_P(Registry, IsNotAskedAgainWhereItSaysNo) {
  for (const auto& [status, code] :
       {std::pair{403, Errc::failed}, {404, Errc::not_found}, {400, Errc::malformed_host}}) {
    const auto before = registry.seen().size();
    registry.instead = [&, status = status](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
      if (!is_blob(seen)) return std::nullopt;
      return HttpAnswer{.status = status,
                        .body = R"({"errors":[{"code":"DENIED","message":"not\u001b[2Jyou"}]})"};
    };
    const Error error = failure();
    EXPECT_EQ(error.code, code) << status;
    EXPECT_THAT(error.message, HasSubstr("DENIED: not [2Jyou")) << "a terminal obeys none of it";
    EXPECT_EQ(registry.seen().size(), before + 2) << "the manifest, and the first blob once";
  }
}

TEST_P(Registry, GoesOnWhereItWasCutOff) {
  int cuts = 0;
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (is_blob(seen) && cuts++ < 10) answer.sent = 300'000;
  };
  must(fetch());
  EXPECT_EQ(seen("guest.img"), std::string(3'000'000, 'g'));
  std::vector<std::string> ranges;
  for (const ReceivedRequest& one : registry.seen())
    if (is_blob(one)) ranges.push_back(one.header("range"));
  ASSERT_EQ(ranges.size(), 10U);
  EXPECT_EQ(ranges[0], "");
  EXPECT_EQ(ranges[1], "bytes=300000-");
  EXPECT_EQ(ranges[9], "bytes=2700000-");
}

TEST_P(Registry, IsGivenUpWhereItIsCutOffWithoutEnd) {
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (is_blob(seen)) answer.sent = 1000;
  };
  EXPECT_EQ(failure().code, Errc::unreachable);
  EXPECT_EQ(registry.asked("/blobs/"), 5U);
}

TEST_P(Registry, MaySendAllOfItAgain) {
  bool first = true;
  registry.instead = [&](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
    if (!is_blob(seen)) return std::nullopt;
    HttpAnswer answer{.body = std::string(3'000'000, 'g')};  // whatever range was asked for
    if (std::exchange(first, false)) answer.sent = 1'500'000;
    return answer;
  };
  must(fetch());
  EXPECT_EQ(seen("guest.img"), std::string(3'000'000, 'g'));
}

TEST_P(Registry, IsNotAskedForWhatLiesBehindTheEnd) {
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (!is_blob(seen)) return;
    answer.body += "more";
    answer.sent = 3'000'000;  // cut off behind the blob's last byte
  };
  must(fetch());
  EXPECT_EQ(seen("guest.img"), std::string(3'000'000, 'g'));
  EXPECT_EQ(registry.asked(registry.first_blob()), 1U);
}

TEST_P(Registry, IsAskedForPiecesThatDoNotFitOnceMore) {
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (!is_blob(seen)) return;
    answer.body.front() = 'x';
    if (seen.header("range").empty()) answer.sent = 1'500'000;
  };
  const Error error = failure();
  EXPECT_EQ(error.code, Errc::failed);
  EXPECT_THAT(error.message, HasSubstr("what came has the digest"));
  EXPECT_EQ(registry.asked(registry.first_blob()), 4U) << "in two pieces, twice";
}

TEST_P(Registry, MayNotSendAnotherRange) {
  bool first = true;
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (!is_blob(seen)) return;
    if (std::exchange(first, false)) answer.sent = 1'500'000;
    for (std::string& header : answer.headers)
      if (header.starts_with("Content-Range")) header = "Content-Range: bytes 7-2999999/3000000";
  };
  must(fetch());
  EXPECT_EQ(seen("guest.img"), std::string(3'000'000, 'g'));
  EXPECT_EQ(registry.asked(registry.first_blob()), 3U) << "from the beginning, without a range";
}

TEST_P(Registry, EndsABlobBeforeItsSizeWithoutSaying) {
  bool first = true;
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (!is_blob(seen)) return;
    answer.chunked = true;
    if (std::exchange(first, false)) answer.body.resize(100);
  };
  must(fetch());
  EXPECT_EQ(seen("guest.img"), std::string(3'000'000, 'g'));
}

TEST_P(Registry, IsGivenUpWhereItSendsNothing) {
  request.patience.slow = std::chrono::seconds(1);
  request.patience.tries = 2;
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (!is_blob(seen)) return;
    answer.sent = 10;
    answer.stalls = true;
  };
  const Error error = failure();
  EXPECT_EQ(error.code, Errc::unreachable);
  EXPECT_THAT(error.message, HasSubstr("too slow"));
}

TEST_P(Registry, IsNotBelievedAboutWhatItSends) {
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (is_blob(seen)) answer.body.back() = 'x';
  };
  const Error wrong = failure();
  EXPECT_EQ(wrong.code, Errc::failed);
  EXPECT_THAT(wrong.message, HasSubstr("what came has the digest sha256:"));
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (is_blob(seen)) answer.body += "more";
  };
  const Error more = failure();
  EXPECT_EQ(more.code, Errc::malformed_host);
  EXPECT_THAT(more.message, HasSubstr("more of it than its 3000000 bytes"));
}

TEST_P(Registry, IsHeldToAManifestsDigest) {
  request.url = registry.address() + "/kata/gpu@" + registry.image(layers());
  registry.spoil = [](const ReceivedRequest&, HttpAnswer& answer) { answer.body += "\n"; };
  const Error error = failure();
  EXPECT_EQ(error.code, Errc::failed);
  EXPECT_THAT(error.message, HasSubstr("what came has the digest"));
}

TEST_P(Registry, SendsNoManifestWithoutEnd) {
  request.limits.document = 1000;
  registry.spoil = [](const ReceivedRequest&, HttpAnswer& answer) { answer.body.append(1000, ' '); };
  EXPECT_EQ(failure().code, Errc::refused);
}

TEST_P(Registry, LetsInByPassword) {
  registry.instead = [](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
    if (seen.header("authorization") == kBasic) return std::nullopt;
    return HttpAnswer{.status = 401, .headers = {"WWW-Authenticate: Basic realm=\"x\""}};
  };
  const Error anonymous = failure();
  EXPECT_EQ(anonymous.code, Errc::failed);
  EXPECT_THAT(anonymous.hint, HasSubstr("there are no credentials for " + registry.address()));
  log_in(registry.address(), R"({"username":"user","password":"wrong"})");
  EXPECT_THAT(failure().hint, HasSubstr("do not let in"));
  log_in(registry.address());
  must(fetch());
  EXPECT_EQ(registry.seen().front().header("authorization"), "") << "not before it is asked for";
}

TEST_P(Registry, LetsInByToken) {
  int given = 0;
  registry.instead = [&](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
    if (seen.path.starts_with("/token")) {
      ++given;
      EXPECT_EQ(seen.path, "/token?service=the%20registry&scope=repository%3Akata%2Fgpu%3Apull");
      EXPECT_EQ(seen.header("authorization"), kBasic);
      return HttpAnswer{.body = R"({"access_token":"t)" + std::to_string(given) + R"(","expires_in":60})"};
    }
    // The first token has run out when the blobs are asked for.
    const std::string desired = seen.path.find("/blobs/") == std::string::npos ? "Bearer t1" : "Bearer t2";
    if (seen.header("authorization") == desired) return std::nullopt;
    return HttpAnswer{.status = 401,
                      .headers = {"WWW-Authenticate: Basic realm=\"x\"",
                                  "WWW-Authenticate: Bearer realm=\"http://" + registry.address() +
                                      R"(/token",service="the registry",scope="repository:kata/gpu:pull")"}};
  };
  log_in(registry.address());
  must(fetch());
  EXPECT_EQ(given, 2);
}

// As the large public ones do: nobody is let in without a token, and anybody gets one for what is public.
TEST_P(Registry, LetsAnybodyInByAToken) {
  int given = 0;
  registry.instead = [&](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
    if (seen.path.starts_with("/token")) {
      ++given;
      EXPECT_EQ(seen.method, "GET");
      EXPECT_EQ(seen.path, "/token?service=s&scope=repository%3Akata%2Fgpu%3Apull");
      EXPECT_EQ(seen.header("authorization"), "");
      return HttpAnswer{.body = R"({"token":"anybodys"})"};
    }
    if (seen.header("authorization") == "Bearer anybodys") return std::nullopt;
    return HttpAnswer{.status = 401,
                      .headers = {"WWW-Authenticate: Bearer realm=\"http://" + registry.address() +
                                  R"(/token",service="s",scope="repository:kata/gpu:pull")"}};
  };
  must(fetch());
  EXPECT_EQ(given, 1);
}

TEST_P(Registry, LetsInByIdentityToken) {
  registry.instead = [&](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
    if (seen.path == "/token") {
      EXPECT_EQ(seen.method, "POST");
      EXPECT_EQ(seen.body, "grant_type=refresh_token&client_id=ferry&service=s&scope=p&refresh_token=r%26t");
      EXPECT_EQ(seen.header("authorization"), "");
      return HttpAnswer{.body = R"({"token":"t"})"};
    }
    if (seen.header("authorization") == "Bearer t") return std::nullopt;
    return HttpAnswer{.status = 401,
                      .headers = {"WWW-Authenticate: Bearer realm=\"http://" + registry.address() +
                                  R"(/token",service="s",scope="p")"}};
  };
  log_in(registry.address(), R"({"username":"<token>","identitytoken":"r&t"})");
  must(fetch());
}

TEST_P(Registry, GivesATokenThatFitsIntoAHeader) {
  for (const char* reply :
       {R"({"token":"a\r\nX-Evil:1"})", R"({"token":""})", "{}", "[]", "no", R"({"token":5})"}) {
    registry.instead = [&](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
      if (seen.path.starts_with("/token")) return HttpAnswer{.body = reply};
      EXPECT_EQ(seen.header("x-evil"), "");
      return HttpAnswer{
          .status = 401,
          .headers = {"WWW-Authenticate: Bearer realm=\"http://" + registry.address() + "/token\""}};
    };
    EXPECT_EQ(failure().code, Errc::malformed_host) << reply;
  }
}

TEST_P(Registry, GivesATokenThatIsInNoMessage) {
  registry.instead = [&](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
    if (seen.path.starts_with("/token")) return HttpAnswer{.body = R"({"token":"hunter2)"};
    return HttpAnswer{
        .status = 401,
        .headers = {"WWW-Authenticate: Bearer realm=\"http://" + registry.address() + "/token\""}};
  };
  const Error error = failure();
  EXPECT_EQ(error.code, Errc::malformed_host);
  EXPECT_THAT(error.message, HasSubstr("parse error at byte 18"));
  EXPECT_THAT(error.message, testing::Not(HasSubstr("hunter")));
}

TEST_P(Registry, LeadsToNobodyElseInTheClear) {
  const auto lead = [&](int status, const std::string& header) {
    registry.instead = [=](const ReceivedRequest&) {
      return HttpAnswer{.status = status, .headers = {header}};
    };
  };
  request.patience.tries = 1;
  log_in(registry.address());
  lead(302, "Location: http://cdn.invalid/x");
  EXPECT_EQ(failure().code, Errc::failed);
  EXPECT_THAT(failure().message, HasSubstr("leads to http://cdn.invalid:80, without TLS"));
  lead(401, "WWW-Authenticate: Bearer realm=\"http://cdn.invalid/token\"");
  EXPECT_THAT(failure().message, HasSubstr("leads to http://cdn.invalid:80, without TLS"));
  request.registries = {{registry.address(), {"http://" + registry.address(), "http://cdn.invalid"}}};
  EXPECT_EQ(failure().code, Errc::unreachable) << "it was said that this one speaks it";
}

TEST_P(Registry, SendsElsewhereWithoutCredentials) {
  const test::HttpStandin elsewhere(
      [](const ReceivedRequest&) { return HttpAnswer{.body = std::string(3'000'000, 'g')}; });
  registry.instead = [&](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
    if (seen.header("authorization") != kBasic)
      return HttpAnswer{.status = 401, .headers = {"WWW-Authenticate: Basic realm=\"x\""}};
    if (!is_blob(seen)) return std::nullopt;
    return HttpAnswer{.status = 307,
                      .headers = {"Location: http://" + elsewhere.other_address() + "/cdn?signed=1"}};
  };
  log_in(registry.address());
  must(fetch());
  ASSERT_EQ(elsewhere.seen().size(), 1U);
  EXPECT_EQ(elsewhere.seen()[0].path, "/cdn?signed=1");
  EXPECT_EQ(elsewhere.seen()[0].header("authorization"), "");
}

TEST_P(Registry, IsNotLoggedInToByAnother) {
  const test::HttpStandin elsewhere([](const ReceivedRequest&) {
    return HttpAnswer{.status = 401, .headers = {"WWW-Authenticate: Basic realm=\"x\""}};
  });
  registry.instead = [&](const ReceivedRequest&) {
    return HttpAnswer{.status = 302, .headers = {"Location: http://" + elsewhere.address() + "/"}};
  };
  request.docker_config = R"({"auths":{"127.0.0.1":{"username":"user","password":"secret"},")" +
                          registry.address() + R"(":{"username":"user","password":"secret"}}})";
  EXPECT_EQ(failure().code, Errc::failed);
  for (const ReceivedRequest& seen : elsewhere.seen()) EXPECT_EQ(seen.header("authorization"), "");
  EXPECT_EQ(elsewhere.seen().size(), 1U);
}

TEST_P(Registry, IsNotFollowedAnywhere) {
  for (const char* location :
       {"", "ftp://127.0.0.1/x", "file:///etc/passwd", "http://user:pw@127.0.0.1/x", "/round"}) {
    registry.instead = [&](const ReceivedRequest&) {
      return HttpAnswer{.status = 302, .headers = {std::string("Location: ") + location}};
    };
    EXPECT_EQ(failure().code, Errc::malformed_host) << location;
  }
}

TEST_P(Registry, IsSparedByAMirror) {
  RegistryFront mirror;
  mirror.image(layers());
  request.url = "registry.example/kata/gpu:1";
  request.registries = {{"registry.example", {"http://" + mirror.address()}}};
  log_in("registry.example");
  must(fetch());
  EXPECT_EQ(seen("guest.img"), "guest");
  for (const ReceivedRequest& seen : mirror.seen()) EXPECT_EQ(seen.header("authorization"), "");
}

TEST_P(Registry, IsAskedWhereAMirrorFails) {
  RegistryFront broken;
  broken.image(layers(std::string(3'000'000, 'g')));
  broken.spoil = [](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (seen.path.find("/blobs/") != std::string::npos) answer.body.front() ^= 1;
  };
  const RegistryFront empty;
  request.registries = {{registry.address(), {"http://" + broken.address(), "http://" + empty.address()}}};
  const Artifact artifact = must(fetch());
  EXPECT_EQ(seen("guest.img"), std::string(3'000'000, 'g'));
  ASSERT_FALSE(artifact.notes.empty());
  EXPECT_THAT(artifact.notes[0], HasSubstr("mirror " + broken.address()));
  EXPECT_THAT(artifact.notes[0], HasSubstr("what came has the digest"));
  EXPECT_THAT(artifact.notes[1], HasSubstr("mirror " + empty.address() + ": HTTP 404"));
}

TEST_P(Registry, HasEndpointsThatCanBeRead) {
  for (const char* url : {"registry.example", "ftp://a", "https://a/?x", "https://u:p@a", "https://"}) {
    request.registries = {{registry.address(), {url}}};
    EXPECT_EQ(failure().code, Errc::usage) << url;
  }
  request.registries = {{"docker.io", {}}, {"index.docker.io", {}}};
  EXPECT_EQ(failure().code, Errc::usage) << "one registry twice";
  request.registries = {{registry.address(), {"http://" + registry.address() + "/proxy/"}}};
  EXPECT_EQ(failure().code, Errc::not_found);
  EXPECT_EQ(registry.seen().back().path, "/v2/proxy/kata/gpu/manifests/1");
}

TEST_P(Registry, IsSpokenToByTlsUnlessSaidOtherwise) {
  // The stand-in speaks none: what is seen is that nothing is asked of it in the clear.
  request.url = registry.reference();
  request.registries = {{registry.address(), {"https://" + registry.address()}}};
  request.patience.connect = std::chrono::milliseconds(300);
  request.patience.tries = 1;
  EXPECT_EQ(failure().code, Errc::unreachable);
  EXPECT_THAT(registry.seen(), IsEmpty());
}

TEST_P(Registry, LeadsFromTlsToNothingInTheClear) {
  const test::ScratchDirectory folder;
  test::make_certificate(folder, "IP:127.0.0.1");
  const test::TlsServer server(folder);
  request.url = server.address() + "/kata/gpu:1";
  request.authorities = test::Fetching::text_in(folder.path() / "cert.pem");
  request.registries = {{server.address(), {"https://" + server.address()}}};
  request.patience.tries = 1;
  const std::string here = "http://" + registry.address();
  folder.file("v2/kata/gpu/manifests/1", "HTTP/1.0 302 Found\r\nLocation: " + here + "/x\r\n\r\n");
  EXPECT_THAT(failure().message, HasSubstr("redirects from https to " + here));
  log_in(server.address());
  folder.file("v2/kata/gpu/manifests/1",
              "HTTP/1.0 401 No\r\nWWW-Authenticate: Bearer realm=\"" + here + "/token\"\r\n\r\n");
  EXPECT_THAT(failure().message, HasSubstr("sends credentials to " + here + ", without TLS"));
  EXPECT_THAT(registry.seen(), IsEmpty());
}

TEST_P(Registry, IsReachedThroughAProxy) {
  request.url = "registry.invalid/kata/gpu:1";
  request.registries = {{"registry.invalid", {"http://registry.invalid"}}};
  request.proxy = "http://" + registry.address();
  EXPECT_EQ(failure().code, Errc::not_found);
  ASSERT_EQ(registry.seen().size(), 1U);
  EXPECT_EQ(registry.seen()[0].path, "http://registry.invalid/v2/kata/gpu/manifests/1");
  request.no_proxy = {"other.example", "registry.invalid"};
  request.patience.tries = 1;
  EXPECT_EQ(failure().code, Errc::unreachable);
  EXPECT_EQ(registry.seen().size(), 1U);
  request.url = registry.reference();
  request.proxy = "http://127.0.0.1:1";
  request.no_proxy = {};
  must(fetch());
}

TEST_P(Registry, ThatIsNotThereIsUnreachable) {
  request.url = "127.0.0.1:1/kata/gpu:1";
  const Error error = failure();
  EXPECT_EQ(error.code, Errc::unreachable);
  EXPECT_THAT(pauses, ElementsAre(200, 400, 800, 1600));
}

TEST_P(Registry, MayBeCutOffAtAnyByte) {
  registry.image(layers());
  test::FaultyWire wire(registry.port());
  request.url = wire.address() + "/kata/gpu:1";
  must(fetch());
  const std::uint64_t whole = wire.said();
  constexpr std::uint64_t kFirstWords = 20;
  const std::uint64_t step = whole / 30;  // no header is passed over
  for (std::uint64_t at = 0; at < whole; at += at < kFirstWords ? 1 : step) {
    must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back));
    wire.fail_after(at, at % 2 == 0 ? test::FaultyWire::Fault::end : test::FaultyWire::Fault::reset);
    const auto got = fetch();
    ASSERT_TRUE(got.has_value()) << "cut after " << at << " of " << whole << ": " << got.error().message;
    ASSERT_EQ(seen("guest.img"), "guest") << at;
  }
}

TEST_P(Registry, MayMoveATagUnderWay) {
  const std::string before = registry.image(layers("before"));
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer&) {
    if (seen.path.ends_with("/manifests/1")) registry.image(layers("after"));
  };
  EXPECT_EQ(must(fetch()).digest, before) << "what was begun is ended";
  EXPECT_EQ(seen("guest.img"), "before");
  EXPECT_TRUE(must(fetch()).changed);
  EXPECT_EQ(seen("guest.img"), "after");
}

TEST_P(Registry, MayChangeABlobUnderWay) {
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (!is_blob(seen) || !seen.header("range").empty()) return;
    answer.sent = 1'500'000;
    registry.store().damage_blob(registry.first_blob(), std::string(3'000'000, 'h'));
  };
  const Error error = failure();
  EXPECT_EQ(error.code, Errc::failed);
  EXPECT_THAT(error.message, HasSubstr("what came has the digest"));
}

TEST_P(Registry, LiesAboutASize) {
  request.patience.tries = 2;
  auto image = layers();
  image[0].said_size = 4;
  registry.image(image);
  const Error more = failure();
  EXPECT_EQ(more.code, Errc::malformed_host);
  EXPECT_THAT(more.message, HasSubstr("more of it than its 4 bytes"));
  image[0].said_size = 6;
  registry.image(image);
  EXPECT_EQ(failure().code, Errc::unreachable) << "as one that was cut off";
  image[0].said_size = 1ULL << 50;
  registry.image(image);
  const auto asked = registry.asked("/blobs/");
  EXPECT_EQ(failure().code, Errc::refused);
  EXPECT_EQ(registry.asked("/blobs/"), asked) << "what is too large is not begun";
}

TEST_P(Registry, SendsNothingThatGrowsWithoutEnd) {
  constexpr std::uint64_t kMiB = 1ULL << 20;
  request.limits.bytes = kMiB;
  request.limits.files = 20;
  const auto archive = [&](const std::vector<test::TarEntry>& entries, test::Packed packed) {
    registry.image({{.content = test::tar_of(entries, packed),
                     .media_type = "application/vnd.oci.image.layer.v1.tar+gzip"}});
  };
  for (const test::Packed packed : {test::Packed::gzip, test::Packed::xz, test::Packed::zstd}) {
    archive({{.path = "zeros", .zeros = 4 * kMiB}}, packed);
    EXPECT_THAT(failure().message, HasSubstr("more than 1048576 bytes"));
    std::vector<test::TarEntry> entries(2, {.path = "zeros", .zeros = kMiB});
    archive(entries, packed);
    EXPECT_THAT(failure().message, HasSubstr("more than 1048576 bytes")) << "the same one again";
    entries.assign(21, {.path = "again/", .folder = true});
    archive(entries, packed);
    EXPECT_THAT(failure().message, HasSubstr("more than 20 entries"));
  }
}

TEST_P(Registry, LetsNothingOut) {
  const auto why_not = [&](const std::vector<test::ImageLayer>& layers) {
    registry.image(layers);
    const Error error = failure();
    EXPECT_EQ(error.code, Errc::refused) << error.message;
    UniqueFd top(::open(scratch.path().c_str(), O_RDONLY | O_CLOEXEC));
    for (const ArtifactFile& file : must(list_tree(std::move(top), false, 100)).files) {
      const std::string path = file.path.string();
      EXPECT_TRUE(path.starts_with("opt/artifacts/.ferry/kata-gpu/blobs/") ||
                  path == "opt/artifacts/k8s-kata-manager.pid")
          << path;
    }
    return error.message;
  };
  const std::string type = "application/vnd.oci.image.layer.v1.tar+gzip";
  for (const auto& row : test::hostile_archives()) {
    EXPECT_THAT(why_not({{.content = test::tar_of(row.entries), .media_type = type}}), HasSubstr(row.why));
    std::vector<test::ImageLayer> one_by_one;
    one_by_one.reserve(row.entries.size());
    for (const test::TarEntry& entry : row.entries)
      one_by_one.push_back({.content = test::tar_of({entry}), .media_type = type});
    EXPECT_THAT(why_not(one_by_one), HasSubstr(row.why)) << "in a layer each";
  }
  for (const char* title : {"../outside", "/etc/passwd", "a/../../outside"})
    why_not({{.content = "x", .title = title}});
}

INSTANTIATE_TEST_SUITE_P(Of, Registry, testing::Values(Behind::memory, Behind::docker),
                         [](const auto& row) { return row.param == Behind::memory ? "Memory" : "Docker"; });

}  // namespace
}  // namespace ferry::kata
