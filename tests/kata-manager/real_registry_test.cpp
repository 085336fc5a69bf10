// SPDX-License-Identifier: Apache-2.0
// Debian's docker-registry on the loopback, with TLS of an authority of the test's own and a password. The
// environment names the program: FERRY_DOCKER_REGISTRY (scripts/lib/docker-registry).
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/spawn.h"
#include "kata-manager/http.h"
#include "tests/kata-manager/archives.h"
#include "tests/kata-manager/fetching.h"
#include "tests/kata-manager/tls_server.h"

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
    const auto& root = scratch.path();
    scratch.file(
        "config.yml",
        fmt::format("version: 0.1\nlog:\n  accesslog:\n    disabled: true\n  level: error\n"
                    "storage:\n  filesystem:\n    rootdirectory: {0}/storage\n"
                    "http:\n  addr: {1}\n  tls:\n    certificate: {0}/cert.pem\n    key: {0}/key.pem\n"
                    "auth:\n  htpasswd:\n    realm: ferry\n    path: {0}/htpasswd\n",
                    root.string(), host_));
    pid_ = must(spawn(program, {"docker-registry", "serve", (root / "config.yml").string()}, {}));
    request.url = host_ + "/kata/gpu:1";
    request.authorities = content("cert.pem");
    request.registries = {{.registry = host_, .endpoints = {"https://" + host_}}};
    request.docker_config = R"({"auths":{")" + host_ + "\":" + kCredentials + "}}";
    wait_for_it();
  }

  void TearDown() override {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    reap(pid_);
  }

  // It answers once it has its port.
  void wait_for_it() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!ask({.url = "https://" + host_ + "/v2/"})) {
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
