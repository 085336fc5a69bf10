// SPDX-License-Identifier: Apache-2.0
// Debian's docker-registry on the loopback, with TLS of an authority of the test's own and a password. The
// environment names the program: FERRY_DOCKER_REGISTRY (scripts/lib/docker-registry).
#include <chrono>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "tests/kata-manager/archives.h"
#include "tests/kata-manager/docker_registry.h"
#include "tests/kata-manager/faulty_wire.h"
#include "tests/kata-manager/fetching.h"
#include "tests/kata-manager/tls_server.h"
#include "tests/kata-manager/token_server.h"

namespace ferry::kata {
namespace {

using test::must;
using testing::HasSubstr;

// "s3cret:with colon" by bcrypt, which is all that this registry takes.
constexpr const char* kPasswords = "ferry:$2b$04$abcdefghijklmnopqrstuuqkd4zPhgDv/GzR0sIrJFDo0EXX1VO7a\n";
constexpr const char* kCredentials = R"({"username":"ferry","password":"s3cret:with colon"})";

class RealRegistry : public test::Fetching {
 protected:
  void SetUp() override {
    if (test::DockerRegistry::program().empty())
      GTEST_SKIP() << "no registry is named by FERRY_DOCKER_REGISTRY";
    test::make_certificate(docker.folder(), "IP:127.0.0.1");
    docker.folder().file("htpasswd", kPasswords);
    request.authorities = text_in(docker.folder().path() / "cert.pem");
    serve(with_password(true));
    ask_at(docker.address());
  }

  test::DockerRegistry::Terms with_password(bool tls, const std::string& more = {}) const {
    return {.tls = tls,
            .more = fmt::format("auth:\n  htpasswd:\n    realm: ferry\n    path: {}/htpasswd\n{}",
                                docker.folder().path().string(), more),
            .username = "ferry",
            .password = "s3cret:with colon"};
  }

  void serve(test::DockerRegistry::Terms terms) {
    scheme_ = terms.tls ? "https://" : "http://";
    docker.serve(std::move(terms));
  }

  /// What is fetched is asked for there, with the password.
  void ask_at(const std::string& address) {
    request.url = address + "/kata/gpu:1";
    request.registries = {{address, {scheme_ + address}}};
    request.docker_config = R"({"auths":{")" + address + "\":" + kCredentials + "}}";
  }

  void remove() { must(remove_artifact(host, request.artifacts_dir, request.name, Replaced::comes_back)); }

  test::DockerRegistry docker;
  std::string scheme_;
};

TEST_F(RealRegistry, GivesAnArtifact) {
  auto image = layers(std::string(5'000'000, 'g'));
  image.push_back({.content = test::tar_of({{.path = "bin/shim", .content = "program", .mode = 0755}}),
                   .media_type = "application/vnd.oci.image.layer.v1.tar+gzip"});
  test::push_image(docker, image);
  const Artifact artifact = must(fetch());
  EXPECT_EQ(artifact.files.size(), 3U);
  EXPECT_EQ(seen("guest.img"), std::string(5'000'000, 'g'));
  EXPECT_EQ(seen("bin/shim"), "program");
  EXPECT_FALSE(must(fetch()).changed);
  // Begun, and gone on with a range that a real server cuts.
  remove();
  std::string part = test::sha256_of_text(image[0].content);
  part.replace(part.find(':'), 1, "-");
  scratch.file("opt/artifacts/.ferry/kata-gpu/blobs/" + part + ".part", std::string(2'000'000, 'g'));
  must(fetch());
  EXPECT_EQ(seen("guest.img"), std::string(5'000'000, 'g'));
}

TEST_F(RealRegistry, LetsNobodyElseIn) {
  request.docker_config.clear();
  const auto anonymous = fetch();
  EXPECT_EQ(anonymous.error().code, Errc::failed);
  EXPECT_THAT(anonymous.error().hint, HasSubstr("there are no credentials"));
  request.docker_config = R"({"auths":{")" + docker.address() + R"(":{"username":"ferry","password":"no"}}})";
  EXPECT_THAT(refusal().hint, HasSubstr("do not let in"));
}

// Its disk rots, or somebody writes into its store: it serves what lies there.
TEST_F(RealRegistry, WhatWasDamagedOnItsDiskIsNotTaken) {
  const auto image = layers(std::string(300'000, 'g'));
  test::push_image(docker, image);
  must(fetch());
  const auto again = layers(std::string(300'000, 'h'));
  test::push_image(docker, again);
  const std::string digest = test::sha256_of_text(again[0].content);
  ASSERT_EQ(text_in(docker.folder().path() / "storage" / test::DockerRegistry::blob_path(digest)),
            again[0].content);
  std::string damaged = again[0].content;
  damaged[200'000] = 'x';
  docker.damage_blob(digest, damaged);
  const Error changed = refusal();
  EXPECT_EQ(changed.code, Errc::failed);
  EXPECT_THAT(changed.message, HasSubstr("guest.img"));
  EXPECT_THAT(changed.message, HasSubstr(digest));
  docker.damage_blob(digest, again[0].content.substr(0, 100'000));
  EXPECT_NE(refusal().message, "") << "and one that has lost its end";
  EXPECT_EQ(seen("guest.img"), image[0].content) << "what was there before is still in use";
  // It is put there anew: nothing of the damage was kept.
  docker.damage_blob(digest, again[0].content);
  must(fetch());
  EXPECT_EQ(seen("guest.img"), again[0].content);
}

// The registry checks signature, audience and scope of each token itself.
TEST_F(RealRegistry, GivesByATokenOfItsTokenServer) {
  test::push_image(docker, layers());
  // "ferry:s3cret:with colon"
  test::TokenServer tokens(
      docker.folder(),
      {.basic = "ZmVycnk6czNjcmV0OndpdGggY29sb24=", .repository = "kata/gpu", .refresh_token = "refresh-7"});
  const auto by_tokens = [&](const std::string& service) -> test::DockerRegistry::Terms {
    return {.more = fmt::format("auth:\n  token:\n    realm: {}\n    service: {}\n    issuer: ferry-issuer\n"
                                "    rootcertbundle: {}/token-cert.pem\n",
                                tokens.realm(), service, docker.folder().path().string())};
  };
  serve(by_tokens("ferry-registry"));
  ask_at(docker.address());
  must(fetch());
  EXPECT_EQ(seen("guest.img"), "guest");
  ASSERT_FALSE(tokens.seen().empty());
  EXPECT_THAT(tokens.seen().back().path,
              HasSubstr("service=ferry-registry&scope=repository%3Akata%2Fgpu%3Apull"));

  remove();
  const std::string with_password = std::exchange(
      request.docker_config, R"({"auths":{")" + docker.address() + R"(":{"identitytoken":"refresh-7"}}})");
  must(fetch());
  EXPECT_EQ(tokens.seen().back().method, "POST");

  remove();
  request.docker_config = R"({"auths":{")" + docker.address() + R"(":{"username":"ferry","password":"no"}}})";
  EXPECT_EQ(refusal().code, Errc::failed) << "the token server lets nobody else in";
  request.docker_config.clear();
  EXPECT_EQ(refusal().code, Errc::failed);

  // A token for another audience is one that the registry does not take: asked for once more, and no longer.
  serve(by_tokens("another-registry"));
  request.docker_config = with_password;
  EXPECT_EQ(refusal().code, Errc::failed);
}

TEST_F(RealRegistry, IsNotBelievedWithoutItsAuthority) {
  request.authorities.clear();
  const auto unknown = fetch();
  EXPECT_EQ(unknown.error().code, Errc::failed);
  EXPECT_THAT(unknown.error().message, HasSubstr("certificate"));
  EXPECT_THAT(pauses, testing::IsEmpty()) << "asking again would not help";
}

TEST_F(RealRegistry, KnowsWhatItDoesNotHave) {
  const auto missing = fetch();
  EXPECT_EQ(missing.error().code, Errc::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("MANIFEST_UNKNOWN"));
}

// Under TLS nothing of a record counts that has not come whole; in the clear each byte may be the last.
TEST_F(RealRegistry, MayBeCutOffAtAnyByte) {
  using Fault = test::FaultyWire::Fault;
  constexpr std::uint64_t kFirstWords = 20;
  test::push_image(docker, layers());
  for (const bool tls : {true, false}) {
    serve(with_password(tls));
    test::FaultyWire wire(docker.port());
    ask_at(wire.address());
    remove();
    must(fetch());
    const std::uint64_t whole = wire.said();
    const std::uint64_t step = tls ? 97 : 47;
    unsigned unmended = 0;
    for (std::uint64_t at = 0; at < whole; at += tls || at > kFirstWords ? step : 1) {
      SCOPED_TRACE(fmt::format("cut off after {} of {} bytes, {}", at, whole, scheme_));
      remove();
      wire.fail_after(at, at % 2 == 0 ? Fault::end : Fault::reset);
      // Every third time nobody asks again: what was in use before is in use until the next fetch.
      request.patience.tries = at % 3 == 0 ? 1 : 5;
      auto got = fetch();
      if (!got && request.patience.tries == 1) {
        ++unmended;
        ASSERT_EQ(got.error().code, Errc::unreachable) << got.error().message;
        ASSERT_FALSE(std::filesystem::exists(scratch.path() / "opt/artifacts/kata-gpu"));
        got = fetch();
      }
      ASSERT_TRUE(got.has_value()) << got.error().message;
      ASSERT_EQ(seen("guest.img"), "guest");
    }
    EXPECT_GT(unmended, 2U) << scheme_;
  }
}

TEST_F(RealRegistry, MayFallSilentAnywhere) {
  test::push_image(docker, layers());
  test::FaultyWire wire(docker.port());
  ask_at(wire.address());
  must(fetch());
  const std::uint64_t whole = wire.said();
  request.patience.connect = std::chrono::seconds(2);
  request.patience.slow = std::chrono::seconds(2);
  // In the handshake, and in the last answer.
  for (const std::uint64_t at : {std::uint64_t{100}, whole - 40}) {
    SCOPED_TRACE(at);
    remove();
    pauses.clear();
    wire.fail_after(at, test::FaultyWire::Fault::silence);
    must(fetch());
    EXPECT_EQ(seen("guest.img"), "guest");
    EXPECT_THAT(pauses, testing::ElementsAre(200));
  }
}

// By its own redirect, as one that keeps its blobs in an object store does.
TEST_F(RealRegistry, SendsElsewhereWithoutCredentials) {
  test::push_image(docker, layers());
  const test::HttpStandin elsewhere([&](const test::ReceivedRequest& seen) {
    return test::HttpAnswer{.body = text_in(docker.folder().path() / ("storage" + seen.path))};
  });
  const std::string redirect =
      "middleware:\n  storage:\n  - name: redirect\n    options:\n      baseurl: http://" +
      elsewhere.other_address() + "/\n";
  serve(with_password(true, redirect));
  const Error from_tls = refusal();
  EXPECT_EQ(from_tls.code, Errc::failed);
  EXPECT_THAT(from_tls.message, HasSubstr("redirects from https to http://" + elsewhere.other_address()));
  EXPECT_THAT(elsewhere.seen(), testing::IsEmpty());

  serve(with_password(false, redirect));
  ask_at(docker.address());
  must(fetch());
  EXPECT_EQ(seen("guest.img"), "guest");
  EXPECT_EQ(elsewhere.seen().size(), 2U);
  for (const test::ReceivedRequest& seen : elsewhere.seen()) EXPECT_EQ(seen.header("authorization"), "");
}

}  // namespace
}  // namespace ferry::kata
