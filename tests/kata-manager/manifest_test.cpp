// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "kata-manager/artifacts/artifact_version.h"
#include "kata-manager/artifacts/inner_path.h"
#include "tests/support/must.h"

namespace ferry::kata {
namespace {

using test::must;
using testing::HasSubstr;

constexpr const char* kOci = "application/vnd.oci.image.manifest.v1+json";
constexpr const char* kOciIndex = "application/vnd.oci.image.index.v1+json";
const std::string kDigest = "sha256:" + std::string(64, 'a');

std::string layer(const std::string& rest, const std::string& type = "application/octet-stream",
                  const std::string& size = "5") {
  return R"({"mediaType":")" + type + R"(","digest":")" + kDigest + R"(","size":)" + size + rest + "}";
}

std::string titled(const std::string& title, const std::string& more = "") {
  return layer(R"(,"annotations":{"org.opencontainers.image.title":")" + title + "\"" + more + "}");
}

std::string manifest(const std::string& layers, const std::string& more = "") {
  return R"({"schemaVersion":2,"layers":[)" + layers + "]" + more + "}";
}

ArtifactManifest parsed(const std::string& text) {
  return std::get<ArtifactManifest>(must(parse_manifest(text, {})));
}

TEST(Manifest, SaysWhatBecomesOfEachLayer) {
  const auto got = parsed(manifest(
      titled("configuration.toml") + "," + titled("guest", R"(,"io.deis.oras.content.unpack":"true")") + "," +
      layer("", "application/vnd.oci.image.layer.v1.tar+gzip", "7") + "," + layer("")));
  ASSERT_EQ(got.layers.size(), 4U);
  EXPECT_FALSE(got.layers[0].is_tar);
  EXPECT_EQ(got.layers[0].title, "configuration.toml");
  EXPECT_TRUE(got.layers[1].is_tar);
  EXPECT_EQ(got.layers[1].title, "guest");
  EXPECT_TRUE(got.layers[2].is_tar);
  EXPECT_EQ(got.layers[2].title, "");
  EXPECT_EQ(got.layers[2].size, 7U);
  EXPECT_TRUE(got.layers[3].is_skipped());
  EXPECT_EQ(got.size, 22U) << "what is passed over comes too";
  EXPECT_EQ(got.largest, 7U);
  EXPECT_EQ(parsed(manifest(titled("./a/b/"))).layers[0].title, "a/b");
}

TEST(Manifest, IsRefusedWhereItCannotBeTakenAsItIs) {
  struct Row {
    std::string text, why;
    Errc code;
  };
  const std::vector<Row> rows = {
      {"", "parse error", Errc::malformed_host},
      {"[]", "no JSON object", Errc::malformed_host},
      {"{}", "'schemaVersion' is missing", Errc::malformed_host},
      {R"({"schemaVersion":1,"layers":[]})", "schemaVersion is not 2", Errc::malformed_host},
      {R"({"schemaVersion":"2","layers":[]})", "'schemaVersion' is of another type", Errc::malformed_host},
      {R"({"schemaVersion":2})", "'layers' is missing", Errc::malformed_host},
      {R"({"schemaVersion":2,"layers":{}})", "'layers' is of another type", Errc::malformed_host},
      {R"({"schemaVersion":2,"layers":[7]})", "no JSON object", Errc::malformed_host},
      {manifest("", R"(,"manifests":[])"), "in two ways", Errc::malformed_host},
      {manifest("", R"(,"schemaVersion":2)"), "is there twice", Errc::malformed_host},
      {manifest("", std::string(R"(,"mediaType":")") + kOciIndex + "\""), "in two ways",
       Errc::malformed_host},
      {manifest(layer("", "x", "-1")), "'size' is of another type", Errc::malformed_host},
      {manifest(layer("", "x", "1.5")), "'size' is of another type", Errc::malformed_host},
      {manifest(layer("", "x", "1e30")), "'size' is of another type", Errc::malformed_host},
      {manifest(R"({"mediaType":"x","digest":"sha256:12","size":1})"), "is no digest", Errc::malformed_host},
      {manifest(R"({"mediaType":"x","size":1})"), "'digest' is missing", Errc::malformed_host},
      {manifest(layer(R"(,"annotations":[])")), "'annotations' is of another type", Errc::malformed_host},
      {manifest(titled("a") + "," + titled("./a")), "two layers have the title 'a'", Errc::malformed_host},
      {manifest(titled("../a")), "leads out of its folder", Errc::refused},
      {manifest(titled("a/../../b")), "leads out of its folder", Errc::refused},
      {manifest(titled("/etc/passwd")), "is absolute", Errc::refused},
      {manifest(titled("a\\u0000b")), "has control characters", Errc::refused},
      {manifest(titled("a\\nb")), "'a?b' has control characters", Errc::refused},
      {manifest(titled("a//b")), "has an empty part", Errc::refused},
      {manifest(titled(".//")), "has an empty part", Errc::refused},
      {manifest(titled(".")), "names no file", Errc::refused},
      {manifest(titled("a") + "," + layer(R"(,"urls":["http://192.0.2.1/"])")), "'urls'", Errc::refused},
      {manifest(titled("a"), R"(,"config":)" + layer(R"(,"urls":[])")), "'urls'", Errc::refused},
      {manifest(titled(std::string(256, 'n'))), "too long", Errc::refused},
      {manifest(titled("a", R"(,"io.deis.oras.content.unpack":true)")), "of another type",
       Errc::malformed_host},
  };
  for (const auto& row : rows) {
    const auto got = parse_manifest(row.text, {});
    EXPECT_FALSE(got.has_value()) << row.text;
    if (got) continue;
    EXPECT_EQ(got.error().code, row.code) << row.text;
    EXPECT_THAT(got.error().message, HasSubstr(row.why)) << row.text;
  }
}

TEST(Manifest, IsNoneUnderAnotherMediaType) {
  const auto called = [](const std::string& type) {
    return parse_manifest(manifest("", R"(,"mediaType":")" + type + '"'), {});
  };
  for (const char* type :
       {"text/html", "application/json", "application/vnd.docker.distribution.manifest.v1+prettyjws"})
    EXPECT_EQ(called(type).error().code, Errc::unsupported) << type;
  for (const char* type : {"", kOci, "application/vnd.docker.distribution.manifest.v2+json"})
    EXPECT_TRUE(called(type).has_value()) << type;
}

TEST(Manifest, StaysWithinItsLimits) {
  const ArtifactLimits few{.bytes = 10, .layers = 2};
  EXPECT_TRUE(parse_manifest(manifest(titled("a") + "," + titled("b")), few).has_value());
  const auto much = parse_manifest(manifest(titled("a") + "," + layer("", "application/x-tar", "6")), few);
  EXPECT_EQ(much.error().code, Errc::refused);
  EXPECT_THAT(much.error().message, HasSubstr("more than 10 bytes"));
  const auto many = parse_manifest(manifest(layer("") + "," + layer("") + "," + layer("")), few);
  EXPECT_EQ(many.error().code, Errc::refused);
  const auto configured = parse_manifest(manifest(titled("a"), R"(,"config":)" + layer("", "x", "6")), few);
  EXPECT_EQ(configured.error().code, Errc::refused) << "skopeo copies the configuration, too";
  // A sum beyond 64 bits is not a small one.
  const std::string huge = layer("", "application/x-tar", "18446744073709551615");
  EXPECT_EQ(parse_manifest(manifest(titled("a") + "," + huge), few).error().code, Errc::refused);
}

std::string platform(const std::string& os, const std::string& architecture, char digit) {
  return std::string(R"({"mediaType":")") + kOci + R"(","size":2,"digest":"sha256:)" +
         std::string(64, digit) + R"(","platform":{"os":")" + os + R"(","architecture":")" + architecture +
         R"("}})";
}

ImageIndex index_of(const std::string& entries) {
  return std::get<ImageIndex>(
      must(parse_manifest(R"({"schemaVersion":2,"manifests":[)" + entries + "]}", {})));
}

TEST(ImageIndex, HasAnImageForThePlatform) {
  const auto index = index_of(platform("windows", "amd64", '1') + "," + platform("unknown", "unknown", '2') +
                              "," + platform("linux", "arm64", '3') + "," + platform("linux", "amd64", '4'));
  EXPECT_EQ(must(choose_platform(index, "amd64")).digest.hex, std::string(64, '4'));
  EXPECT_EQ(must(choose_platform(index, "arm64")).digest.hex, std::string(64, '3'));
  const auto none = choose_platform(index, "riscv64");
  EXPECT_EQ(none.error().code, Errc::not_found);
  EXPECT_THAT(none.error().message, HasSubstr("windows/amd64, unknown/unknown, linux/arm64, linux/amd64"));
}

TEST(ImageIndex, HasOneThatNamesNoPlatformForAll) {
  const std::string plain =
      std::string(R"({"mediaType":")") + kOci + R"(","size":2,"digest":")" + kDigest + "\"}";
  EXPECT_EQ(must(choose_platform(index_of(plain), "amd64")).digest.text(), kDigest);
  EXPECT_EQ(choose_platform(index_of(plain + "," + plain), "amd64").error().code, Errc::not_found);
  EXPECT_EQ(choose_platform(index_of(""), "amd64").error().code, Errc::not_found);
  EXPECT_EQ(parse_manifest(R"({"schemaVersion":2,"manifests":[],"layers":[]})", {}).error().code,
            Errc::malformed_host);
}

TEST(InnerPath, LetsLinksLeadOnlyBelowTheTop) {
  const std::vector<std::string> top;
  const std::vector<std::string> deep = {"a", "b"};
  EXPECT_TRUE(link_stays_inside(top, "x"));
  EXPECT_TRUE(link_stays_inside(top, "./x/y"));
  EXPECT_TRUE(link_stays_inside(deep, "../../x"));
  EXPECT_TRUE(link_stays_inside(deep, "../.."));
  EXPECT_FALSE(link_stays_inside(top, ".."));
  EXPECT_FALSE(link_stays_inside(top, "../x"));
  EXPECT_FALSE(link_stays_inside(deep, "../../../x"));
  EXPECT_FALSE(link_stays_inside(deep, "/etc"));
  EXPECT_FALSE(link_stays_inside(deep, ""));
  EXPECT_FALSE(link_stays_inside(deep, "x/..")) << "x may be a link, and then it leads elsewhere";
}

TEST(InnerPath, IsNoDeeperThanATreeIsWalked) {
  std::string path = "a";
  for (int i = 1; i < 64; ++i) path += "/a";
  EXPECT_TRUE(inner_path(path).has_value());
  EXPECT_EQ(inner_path(path + "/a").error().code, Errc::refused);
  EXPECT_EQ(inner_path(std::string(5000, 'a')).error().code, Errc::refused);
}

}  // namespace
}  // namespace ferry::kata
