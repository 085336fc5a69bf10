// SPDX-License-Identifier: Apache-2.0
// Debian's docker-registry on the loopback, with TLS of an authority of the test's own and a password. The
// environment names the program: FERRY_DOCKER_REGISTRY (scripts/lib/docker-registry).
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/spawn.h"
#include "kata-manager/http.h"
#include "tests/kata-manager/archives.h"
#include "tests/kata-manager/fetching.h"
#include "tests/kata-manager/tls_server.h"
#include "tests/kata-manager/token_server.h"

namespace ferry {
namespace {

using test::must;
using testing::HasSubstr;

// "s3cret:with colon" by bcrypt, which is all that this registry takes.
constexpr const char* kPasswords = "ferry:$2b$04$abcdefghijklmnopqrstuuqkd4zPhgDv/GzR0sIrJFDo0EXX1VO7a\n";
constexpr const char* kCredentials = R"({"username":"ferry","password":"s3cret:with colon"})";

class RealRegistry : public test::Fetching {
 protected:
  void SetUp() override {
    const char* const program = std::getenv("FERRY_DOCKER_REGISTRY");
    if (program == nullptr) GTEST_SKIP() << "no registry is named by FERRY_DOCKER_REGISTRY";
    host_ = "127.0.0.1:" + std::to_string(test::free_port());
    test::make_certificate(scratch, "IP:127.0.0.1");
    scratch.file("htpasswd", kPasswords);
    request.url = host_ + "/kata/gpu:1";
    request.authorities = content("cert.pem");
    request.docker_config = R"({"auths":{")" + host_ + "\":" + kCredentials + "}}";
    const std::string root = scratch.path().string();
    serve("https", fmt::format("  tls:\n    certificate: {0}/cert.pem\n    key: {0}/key.pem\n"
                               "auth:\n  htpasswd:\n    realm: ferry\n    path: {0}/htpasswd\n",
                               root));
  }

  void TearDown() override { stop(); }

  /// Starts it with what it keeps, and this of `http` and `auth` in its configuration.
  void serve(const std::string& scheme, const std::string& more) {
    scratch.file("config.yml",
                 fmt::format("version: 0.1\nlog:\n  accesslog:\n    disabled: true\n  level: error\n"
                             "storage:\n  filesystem:\n    rootdirectory: {}/storage\nhttp:\n  addr: {}\n{}",
                             scratch.path().string(), host_, more));
    const char* const program = std::getenv("FERRY_DOCKER_REGISTRY");
    pid_ = must(spawn(program, {"docker-registry", "serve", (scratch.path() / "config.yml").string()}, {}));
    request.registries = {{.registry = host_, .endpoints = {scheme + "://" + host_}}};
    wait_for_it(scheme);
  }

  void stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    reap(std::exchange(pid_, -1));
  }

  // It answers once it has its port.
  void wait_for_it(const std::string& scheme) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!ask({.url = scheme + "://" + host_ + "/v2/"})) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "docker-registry does not answer";
      std::this_thread::yield();
    }
  }

  Result<HttpReply> ask(HttpRequest what) {
    HttpClient client({.authorities = request.authorities});
    what.username = "ferry";
    what.password = "s3cret:with colon";
    return client.perform(what);
  }

  // As a client puts it there: monolithic uploads by POST, then the manifest.
  std::string push(const std::string& bytes) {
    const std::string digest = test::sha256_of_text(bytes);
    const auto begun = must(ask({.url = "https://" + host_ + "/v2/kata/gpu/blobs/uploads/", .form = ""}));
    EXPECT_EQ(begun.status, 202);
    const std::string at = begun.header("location");
    put(at + (at.find('?') == std::string::npos ? "?" : "&") + "digest=" + digest, bytes,
        "application/octet-stream");
    return digest;
  }

  void put(const std::string& url, const std::string& bytes, const std::string& type) {
    scratch.file("upload", bytes);
    const int pid =
        must(spawn("python3",
                   {"python3", "-c",
                    "import ssl,sys,urllib.request as u,base64\n"
                    "c=ssl.create_default_context(cafile=sys.argv[1])\n"
                    "r=u.Request(sys.argv[3],data=open(sys.argv[2],'rb').read(),method='PUT',headers={'"
                    "Content-Type':sys.argv[4],"
                    "'Authorization':'Basic '+base64.b64encode(b'ferry:s3cret:with colon').decode()})\n"
                    "assert u.build_opener(u.ProxyHandler({}),u.HTTPSHandler(context=c)).open(r).status==201",
                    (scratch.path() / "cert.pem").string(), (scratch.path() / "upload").string(), url, type},
                   {.err = STDERR_FILENO}));
    ASSERT_EQ(reap(pid), 0) << url;
  }

  void push_image(const std::vector<test::FakeLayer>& layers) {
    using nlohmann::json;
    json list = json::array();
    for (const test::FakeLayer& layer : layers) {
      json entry = {
          {"mediaType", layer.media_type}, {"digest", push(layer.content)}, {"size", layer.content.size()}};
      if (!layer.title.empty()) entry["annotations"]["org.opencontainers.image.title"] = layer.title;
      list.push_back(std::move(entry));
    }
    const std::string type = "application/vnd.oci.image.manifest.v1+json";
    const json manifest = {
        {"schemaVersion", 2},
        {"mediaType", type},
        {"config", {{"mediaType", "application/vnd.oci.empty.v1+json"}, {"digest", push("{}")}, {"size", 2}}},
        {"layers", std::move(list)}};
    put("https://" + host_ + "/v2/kata/gpu/manifests/1", manifest.dump(), type);
  }

  /// Where it keeps a blob.
  std::filesystem::path blob_file(const std::string& bytes) const {
    const std::string hex = test::sha256_of_text(bytes).substr(std::string("sha256:").size());
    return std::filesystem::path("storage/docker/registry/v2/blobs/sha256") / hex.substr(0, 2) / hex / "data";
  }

  std::string host_;
  int pid_ = -1;
};

TEST_F(RealRegistry, GivesAnArtifact) {
  auto image = layers(std::string(5'000'000, 'g'));
  image.push_back({.content = test::tar_of({{.path = "bin/shim", .content = "program", .mode = 0755}}),
                   .media_type = "application/vnd.oci.image.layer.v1.tar+gzip"});
  push_image(image);
  const Artifact artifact = must(fetch());
  EXPECT_EQ(artifact.files.size(), 3U);
  EXPECT_EQ(seen("guest.img"), std::string(5'000'000, 'g'));
  EXPECT_EQ(seen("bin/shim"), "program");
  EXPECT_FALSE(must(fetch()).changed);
  // Begun, and gone on with a range that a real server cuts.
  must(remove_artifact(host, request.artifacts_dir, request.name));
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
  request.docker_config = R"({"auths":{")" + host_ + R"(":{"username":"ferry","password":"no"}}})";
  EXPECT_THAT(refusal().hint, HasSubstr("do not let in"));
}

// Its disk rots, or somebody writes into its store: it serves what lies there.
TEST_F(RealRegistry, WhatWasDamagedOnItsDiskIsNotTaken) {
  const auto image = layers(std::string(300'000, 'g'));
  push_image(image);
  must(fetch());
  const auto again = layers(std::string(300'000, 'h'));
  push_image(again);
  const auto blob = blob_file(again[0].content);
  ASSERT_EQ(content(blob), again[0].content);
  std::string damaged = again[0].content;
  damaged[200'000] = 'x';
  scratch.file(blob, damaged);
  const Error changed = refusal();
  EXPECT_EQ(changed.code, Errc::failed);
  EXPECT_THAT(changed.message, HasSubstr("guest.img"));
  EXPECT_THAT(changed.message, HasSubstr(test::sha256_of_text(again[0].content)));
  scratch.file(blob, again[0].content.substr(0, 100'000));
  EXPECT_NE(refusal().message, "") << "and one that has lost its end";
  EXPECT_EQ(seen("guest.img"), image[0].content) << "what was there before is still in use";
  // It is put there anew: nothing of the damage was kept.
  scratch.file(blob, again[0].content);
  must(fetch());
  EXPECT_EQ(seen("guest.img"), again[0].content);
}

// The registry checks signature, audience and scope of each token itself.
TEST_F(RealRegistry, GivesByATokenOfItsTokenServer) {
  push_image(layers());
  stop();
  // "ferry:s3cret:with colon"
  test::TokenServer tokens(
      scratch,
      {.basic = "ZmVycnk6czNjcmV0OndpdGggY29sb24=", .repository = "kata/gpu", .refresh_token = "refresh-7"});
  const auto by_tokens = [&](const std::string& service) {
    return fmt::format(
        "auth:\n  token:\n    realm: {}\n    service: {}\n    issuer: ferry-issuer\n"
        "    rootcertbundle: {}/token-cert.pem\n",
        tokens.realm(), service, scratch.path().string());
  };
  serve("http", by_tokens("ferry-registry"));
  must(fetch());
  EXPECT_EQ(seen("guest.img"), "guest");
  ASSERT_FALSE(tokens.seen().empty());
  EXPECT_THAT(tokens.seen().back().path,
              HasSubstr("service=ferry-registry&scope=repository%3Akata%2Fgpu%3Apull"));

  must(remove_artifact(host, request.artifacts_dir, request.name));
  const std::string with_password =
      std::exchange(request.docker_config, R"({"auths":{")" + host_ + R"(":{"identitytoken":"refresh-7"}}})");
  must(fetch());
  EXPECT_EQ(tokens.seen().back().method, "POST");

  must(remove_artifact(host, request.artifacts_dir, request.name));
  request.docker_config = R"({"auths":{")" + host_ + R"(":{"username":"ferry","password":"no"}}})";
  EXPECT_EQ(refusal().code, Errc::failed) << "the token server lets nobody else in";
  request.docker_config.clear();
  EXPECT_EQ(refusal().code, Errc::failed);

  // A token for another audience is one that the registry does not take: asked for once more, and no longer.
  stop();
  serve("http", by_tokens("another-registry"));
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

}  // namespace
}  // namespace ferry
