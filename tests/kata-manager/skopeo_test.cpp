// SPDX-License-Identifier: Apache-2.0
// Pulls by the real skopeo from a registry that a test can spoil.
#include "kata-manager/artifacts/skopeo.h"

#include <fcntl.h>

#include "kata-manager/artifacts/artifact_tree.h"
#include "tests/kata-manager/archives.h"
#include "tests/kata-manager/fetching.h"
#include "tests/kata-manager/hostile_archives.h"

namespace ferry::kata {
namespace {

using test::HttpAnswer;
using test::must;
using test::ReceivedRequest;
using test::RegistryFront;
using testing::HasSubstr;
using testing::IsEmpty;

// "user:secret" and the header it becomes.
constexpr const char* kBasic = "Basic dXNlcjpzZWNyZXQ=";

class Registry : public test::Fetching {
 protected:
  Registry() { registry.image(layers(std::string(3'000'000, 'g'))); }

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
    EXPECT_FALSE(std::filesystem::exists(scratch.path() / "opt/artifacts/.pull"));
    return got ? Error{} : got.error();
  }
};

TEST_F(Registry, FailsInWaysThatAreToldApart) {
  for (const bool by_blob : {false, true}) {
    for (const auto& [status, code] : {std::pair{403, Errc::failed},
                                       {404, Errc::not_found},
                                       {400, Errc::failed},
                                       {503, Errc::unreachable}}) {
      registry.instead = [&, status = status](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
        if (by_blob ? !is_blob(seen) : seen.path == "/v2/") return std::nullopt;
        return HttpAnswer{.status = status};
      };
      const Error error = failure();
      EXPECT_EQ(error.code, code) << status << ": " << error.message;
    }
  }
}

TEST_F(Registry, ThatIsNotThereIsUnreachable) {
  request.url = "127.0.0.1:1/kata/gpu:1";
  const Error error = failure();
  EXPECT_EQ(error.code, Errc::unreachable) << error.message;
  EXPECT_THAT(error.message, HasSubstr("127.0.0.1:1"));
}

TEST_F(Registry, IsAskedAgain) {
  request.retries = 1;
  int left = 1;
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (is_blob(seen) && left-- > 0) answer.sent = 1'500'000;
  };
  must(fetch());
  EXPECT_EQ(seen("guest.img"), std::string(3'000'000, 'g'));
}

TEST_F(Registry, IsNotBelievedAboutWhatItSends) {
  for (const std::string more : {"", "more"}) {
    registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
      if (is_blob(seen)) more.empty() ? answer.body.back() = 'x' : (answer.body += more).back();
    };
    const Error wrong = failure();
    EXPECT_EQ(wrong.code, Errc::failed) << wrong.message;
    EXPECT_THAT(wrong.message, HasSubstr("igest")) << more;
  }
}

TEST_F(Registry, IsHeldToAManifestsDigest) {
  request.url = registry.address() + "/kata/gpu@" + registry.image(layers());
  registry.spoil = [](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (seen.path != "/v2/") answer.body += "\n";
  };
  const Error error = failure();
  EXPECT_EQ(error.code, Errc::failed);
  EXPECT_THAT(error.message, HasSubstr("igest"));
}

TEST_F(Registry, SendsNoBlobWithoutEnd) {
  constexpr std::uint64_t kMost = 4ULL << 20;  // of a blob that is smaller
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (!is_blob(seen)) return;
    answer.body.append(8 * kMost, 'g');
    answer.chunked = true;
  };
  const Error error = failure();
  EXPECT_EQ(error.code, Errc::failed) << error.message;
  EXPECT_THAT(error.message, HasSubstr("file too large"));
}

TEST_F(Registry, IsGivenUpAtTheDeadline) {
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (!is_blob(seen)) return;
    answer.sent = 10;
    answer.stalls = true;
  };
  request.deadline = std::chrono::seconds(2);
  const Error error = failure();
  EXPECT_EQ(error.code, Errc::unreachable);
  EXPECT_THAT(error.message, HasSubstr("has not ended within 2 s"));
}

TEST_F(Registry, SendsNoManifestWithoutEnd) {
  request.limits.document = 1000;
  registry.spoil = [](const ReceivedRequest& seen, HttpAnswer& answer) {
    if (seen.path != "/v2/") answer.body.append(1000, ' ');
  };
  EXPECT_THAT(failure().message, HasSubstr("more than 1000 bytes"));
}

TEST_F(Registry, IsAskedForNothingThatIsBeyondTheLimits) {
  request.limits.layers = 1;
  const Error many = failure();
  EXPECT_EQ(many.code, Errc::refused);
  EXPECT_THAT(many.message, HasSubstr("2 layers, and 1 is the limit"));
  request.limits = {};
  auto image = layers();
  image[0].said_size = 1ULL << 50;
  registry.image(image);
  EXPECT_EQ(failure().code, Errc::refused);
  EXPECT_EQ(registry.asked("/blobs/"), 0U);
}

TEST_F(Registry, LiesAboutASize) {
  auto image = layers();
  for (const std::uint64_t size : {4, 6}) {
    image[0].said_size = size;
    registry.image(image);
    const Error error = failure();
    EXPECT_EQ(error.code, Errc::failed) << error.message;
    EXPECT_THAT(error.message, HasSubstr(fmt::format("of {} bytes", size)));
  }
}

TEST_F(Registry, LetsInByPassword) {
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
  const std::size_t before = registry.seen().size();
  must(fetch());
  EXPECT_EQ(registry.seen().at(before).header("authorization"), "") << "not before it is asked for";
}

TEST_F(Registry, LetsInByIdentityToken) {
  registry.instead = [&](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
    if (seen.path == "/token") {
      EXPECT_EQ(seen.method, "POST");
      EXPECT_THAT(seen.body, HasSubstr("refresh_token=r%26t"));
      return HttpAnswer{.body = R"({"access_token":"t"})"};
    }
    if (seen.header("authorization") == "Bearer t") return std::nullopt;
    return HttpAnswer{.status = 401,
                      .headers = {"WWW-Authenticate: Bearer realm=\"http://" + registry.address() +
                                  R"(/token",service="s",scope="p")"}};
  };
  log_in(registry.address(), R"({"username":"<token>","identitytoken":"r&t"})");
  must(fetch());
  log_in(registry.address(), R"({"registrytoken":"t"})");
  const Error error = refusal();
  EXPECT_EQ(error.code, Errc::invalid_config);
  EXPECT_THAT(error.message, HasSubstr("'" + registry.address() + "': registrytoken cannot be used"));
}

TEST_F(Registry, IsSparedByAMirror) {
  RegistryFront mirror;
  mirror.image(layers());
  bool asks = true;
  mirror.instead = [&asks](const ReceivedRequest& /*seen*/) -> std::optional<HttpAnswer> {
    if (!std::exchange(asks, false)) return std::nullopt;
    return HttpAnswer{.status = 401, .headers = {"WWW-Authenticate: Basic realm=\"x\""}};
  };
  request.url = "registry.example/kata/gpu:1";
  request.registries = {{"registry.example", {"http://" + mirror.address()}}};
  log_in("registry.example");
  must(fetch());
  EXPECT_EQ(seen("guest.img"), "guest");
  // Without credentials for the mirror, skopeo gives ":", an empty user and password.
  for (const ReceivedRequest& seen : mirror.seen())
    EXPECT_THAT(seen.header("authorization"), testing::AnyOf("", "Basic Og=="));
}

TEST_F(Registry, CountsNotItsMirror) {
  RegistryFront mirror;
  request.registries = {{registry.address(), {"http://" + mirror.address()}}};
  for (const auto& [of_mirror, of_registry, code] :
       {std::tuple{404, 503, Errc::unreachable}, {503, 404, Errc::not_found}, {503, 403, Errc::failed}}) {
    mirror.instead = [status = of_mirror](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
      return seen.path == "/v2/" ? std::nullopt : std::optional(HttpAnswer{.status = status});
    };
    registry.instead = [status = of_registry](const ReceivedRequest& seen) -> std::optional<HttpAnswer> {
      return seen.path == "/v2/" ? std::nullopt : std::optional(HttpAnswer{.status = status});
    };
    const Error error = failure();
    EXPECT_EQ(error.code, code) << of_mirror << ", " << of_registry << ": " << error.message;
  }
}

TEST_F(Registry, IsAskedWhereAMirrorHasNothing) {
  const RegistryFront empty;
  request.registries = {{registry.address(), {"http://" + empty.address()}}};
  must(fetch());
  EXPECT_EQ(seen("guest.img"), std::string(3'000'000, 'g'));
  EXPECT_GT(empty.seen().size(), 0U);
}

TEST_F(Registry, HasEndpointsThatCanBeRead) {
  for (const char* url : {"registry.example", "ftp://a", "https://a/?x", "https://u:p@a", "https://",
                          "https://a.example/\"]\n[x", "https://nohost/mirror"}) {
    request.registries = {{registry.address(), {url}}};
    EXPECT_EQ(failure().code, Errc::usage) << url;
  }
  request.registries = {{"docker.io", {}}, {"index.docker.io", {}}};
  EXPECT_EQ(failure().code, Errc::usage) << "one registry twice";
}

TEST_F(Registry, HasEndpointsInTheOrderOfTheList) {
  const auto files_of = [&](const std::string& url, std::vector<std::string> servers) {
    const auto reference = must(ImageReference::parse(url));
    request.registries = {{reference.registry, std::move(servers)}};
    const auto config = must(DockerConfig::parse(
        R"({"auths":{"r.example":{"username":"u","password":"p"},"m.example:5000":{"auth":"YTpi"}}})"));
    const auto endpoints = must(registry_endpoints(reference, request, config));
    return registries_conf(endpoints) + must(auth_file(endpoints));
  };
  const std::string itself =
      "[[registry]]\nprefix = \"r.example\"\nlocation = \"r.example\"\ninsecure = false\n";
  const std::string own_key = R"("r.example":{"auth":"dTpw"})";
  EXPECT_EQ(files_of("r.example/a", {}), itself + R"({"auths":{)" + own_key + "}}");
  EXPECT_EQ(files_of("r.example/a", {"http://m.example:5000/proxy/", "https://r.example"}),
            itself + "[[registry.mirror]]\nlocation = \"m.example:5000/proxy\"\ninsecure = true\n" +
                R"({"auths":{"m.example:5000":{"auth":"YTpi"},)" + own_key + "}}");
  EXPECT_THAT(
      files_of("r.example/a", {"http://r.example", "https://m.example"}),
      HasSubstr("location = \"r.example\"\ninsecure = true\n[[registry.mirror]]\nlocation = \"r.example\""));
  EXPECT_THAT(files_of("127.0.0.1:5000/a", {}), HasSubstr("insecure = true")) << "the loopback";
  EXPECT_THAT(files_of("alpine", {"https://registry-1.docker.io"}),
              HasSubstr("location = \"docker.io\"\ninsecure = false\n{"));
}

TEST_F(Registry, IsSpokenToByTlsUnlessSaidOtherwise) {
  // The stand-in speaks none: what is seen is that nothing is asked of it in the clear.
  request.registries = {{registry.address(), {"https://" + registry.address()}}};
  EXPECT_EQ(failure().code, Errc::unreachable);
  EXPECT_THAT(registry.seen(), IsEmpty());
}

TEST_F(Registry, IsReachedThroughAProxy) {
  request.url = "registry.invalid/kata/gpu:1";
  request.registries = {{"registry.invalid", {"http://registry.invalid"}}};
  request.proxy = "http://" + registry.address();
  EXPECT_FALSE(failure().message.empty());
  const auto through = [](const ReceivedRequest& seen) {
    return seen.path.starts_with("http://registry.invalid/") || seen.path == "registry.invalid:443";
  };
  const auto asked = registry.seen();
  EXPECT_FALSE(asked.empty());
  EXPECT_TRUE(std::ranges::all_of(asked, through)) << asked.front().path;
  request.no_proxy = {"other.example", "registry.invalid"};
  EXPECT_EQ(failure().code, Errc::unreachable);
  EXPECT_EQ(registry.seen().size(), asked.size());
  request.url = registry.reference();
  request.proxy = "http://127.0.0.1:1";
  request.no_proxy = {};
  must(fetch());
}

// A host without the package has no skopeo.
TEST_F(Registry, IsNotAskedWithoutSkopeo) {
  const std::string before = std::getenv("PATH");
  scratch.link("bin/setpriv", "/usr/bin/setpriv");
  for (const char* tools : {"setpriv", "prlimit"}) {
    ::setenv("PATH", (scratch.path() / "bin").c_str(), 1);
    const Error error = failure();
    ::setenv("PATH", before.c_str(), 1);
    EXPECT_EQ(error.code, Errc::unreachable) << tools;
    EXPECT_THAT(error.hint, HasSubstr("install skopeo")) << tools;
    scratch.link("bin/prlimit", "/usr/bin/prlimit");
  }
}

TEST_F(Registry, MayMoveATagUnderWay) {
  const std::string before = registry.image(layers("before"));
  registry.spoil = [&](const ReceivedRequest& seen, HttpAnswer&) {
    if (seen.path.ends_with("/manifests/1")) registry.image(layers("after"));
  };
  EXPECT_EQ(must(fetch()).digest, before) << "what was begun is ended";
  EXPECT_EQ(seen("guest.img"), "before");
  EXPECT_TRUE(must(fetch()).changed);
  EXPECT_EQ(seen("guest.img"), "after");
}

TEST_F(Registry, SendsNothingThatGrowsWithoutEnd) {
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

TEST_F(Registry, LetsNothingOut) {
  const auto why_not = [&](const std::vector<test::ImageLayer>& layers) {
    registry.image(layers);
    const Error error = failure();
    EXPECT_EQ(error.code, Errc::refused) << error.message;
    UniqueFd top(::open(scratch.path().c_str(), O_RDONLY | O_CLOEXEC));
    for (const ArtifactFile& file : must(list_tree(std::move(top), false, 100)).files) {
      const std::string path = file.path.string();
      EXPECT_EQ(path, "opt/artifacts/k8s-kata-manager.pid");
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

}  // namespace
}  // namespace ferry::kata
