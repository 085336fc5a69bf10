// SPDX-License-Identifier: Apache-2.0
// Debian's docker-registry on the loopback, with TLS of an authority of the test's own and a password. The
// environment names the program: FERRY_DOCKER_REGISTRY (scripts/lib/docker-registry).
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "tests/kata-manager/archives.h"
#include "tests/kata-manager/certificate.h"
#include "tests/kata-manager/docker_registry.h"
#include "tests/kata-manager/fetching.h"

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
  remove();
  request.url = docker.address() + "/kata/gpu@" + artifact.digest;
  EXPECT_EQ(must(fetch()).digest, artifact.digest);
  remove();
  request.url = docker.address() + "/kata/gpu@sha256:" + std::string(64, 'a');
  EXPECT_EQ(refusal().code, Errc::not_found);
  // The same server as a mirror of one that cannot be reached.
  request.url = "registry.invalid/kata/gpu:1";
  request.registries = {{"registry.invalid", {"https://" + docker.address()}}};
  EXPECT_EQ(must(fetch()).digest, artifact.digest);
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
  EXPECT_THAT(changed.message, HasSubstr(digest));
  docker.damage_blob(digest, again[0].content.substr(0, 100'000));
  EXPECT_NE(refusal().message, "") << "and one that has lost its end";
  EXPECT_EQ(seen("guest.img"), image[0].content) << "what was there before is still in use";
  // It is put there anew: nothing of the damage was kept.
  docker.damage_blob(digest, again[0].content);
  must(fetch());
  EXPECT_EQ(seen("guest.img"), again[0].content);
}

TEST_F(RealRegistry, IsNotBelievedWithoutItsAuthority) {
  request.authorities.clear();
  const auto unknown = fetch();
  EXPECT_EQ(unknown.error().code, Errc::failed);
  EXPECT_THAT(unknown.error().message, HasSubstr("certificate"));
}

TEST_F(RealRegistry, KnowsWhatItDoesNotHave) {
  const auto missing = fetch();
  EXPECT_EQ(missing.error().code, Errc::not_found) << missing.error().message;
  EXPECT_THAT(missing.error().message, HasSubstr("unknown"));
}

}  // namespace
}  // namespace ferry::kata
