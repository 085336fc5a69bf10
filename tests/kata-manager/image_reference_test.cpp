// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/image_reference.h"

#include <vector>

#include <gmock/gmock.h>

#include "tests/support/must.h"

namespace ferry::kata {
namespace {

using test::must;
using testing::HasSubstr;

const std::string kSha256(64, 'a');

TEST(ImageReference, IsTakenApart) {
  struct Row {
    std::string text, registry, repository, tag;
  };
  const std::vector<Row> rows = {
      {"nvcr.io/nvidia/cloud-native/kata-gpu-artifacts:ubuntu22.04-535.54.03", "nvcr.io",
       "nvidia/cloud-native/kata-gpu-artifacts", "ubuntu22.04-535.54.03"},
      {"alpine", "docker.io", "library/alpine", "latest"},
      {"alpine:3", "docker.io", "library/alpine", "3"},
      {"kata/gpu", "docker.io", "kata/gpu", "latest"},
      {"docker.io/alpine", "docker.io", "library/alpine", "latest"},
      {"index.docker.io/kata/gpu:1", "docker.io", "kata/gpu", "1"},
      {"registry-1.docker.io/kata/gpu", "docker.io", "kata/gpu", "latest"},
      {"localhost/x", "localhost", "x", "latest"},
      {"localhost:5000/x", "localhost:5000", "x", "latest"},
      {"host:5000/repo", "host:5000", "repo", "latest"},
      {"host:5000/repo:5000", "host:5000", "repo", "5000"},
      {"[::1]:5000/a/b:c", "[::1]:5000", "a/b", "c"},
      {"[fd00::2]/a", "[fd00::2]", "a", "latest"},
      {"Registry.Example/a__b/c.d/e---f:_", "registry.example", "a__b/c.d/e---f", "_"},
  };
  for (const auto& row : rows) {
    const auto got = must(ImageReference::parse(row.text));
    EXPECT_EQ(got.registry, row.registry) << row.text;
    EXPECT_EQ(got.repository, row.repository) << row.text;
    EXPECT_EQ(got.tag, row.tag) << row.text;
    EXPECT_EQ(must(ImageReference::parse(got.text())), got) << "what is shown can be read: " << got.text();
  }
}

TEST(ImageReference, IsPulledByItsDigestFirst) {
  const auto both = must(ImageReference::parse("a.b/c:tag@sha256:" + kSha256));
  EXPECT_EQ(both.manifest_key(), "sha256:" + kSha256);
  EXPECT_EQ(both.text(), "a.b/c:tag@sha256:" + kSha256);
  const auto alone = must(ImageReference::parse("a.b/c@sha256:" + kSha256));
  EXPECT_EQ(alone.manifest_key(), "sha256:" + kSha256);
  EXPECT_EQ(alone.tag, "");
  EXPECT_EQ(must(ImageReference::parse("a.b/c")).manifest_key(), "latest");
}

TEST(ImageReference, IsRefusedWithItsPartAndTheReason) {
  struct Row {
    std::string text, why;
  };
  const std::vector<Row> rows = {
      {"", "it is empty"},
      {"https://nvcr.io/a", "it begins with a scheme"},
      {"oci://nvcr.io/a:1", "it begins with a scheme"},
      {"nvcr.io/", "the repository is missing"},
      {"nvcr.io/Nvidia/x", "repository 'Nvidia/x' has upper case letters"},
      {"nvcr.io/a//b", "'' in repository 'a//b'"},
      {"nvcr.io/a/../b", "'..' in repository 'a/../b'"},
      {"nvcr.io/a___b", "'a___b' in repository"},
      {"nvcr.io/a._b", "'a._b' in repository"},
      {"nvcr.io/-a", "'-a' in repository"},
      {"nvcr.io/a-", "'a-' in repository"},
      {"nvcr.io/a b", "'a b' in repository"},
      {"nvcr.io/a?x=1", "'a?x=1' in repository"},
      {"nvcr.io/a:", "'' is no tag"},
      {"nvcr.io/a:.1", "'.1' is no tag"},
      {"nvcr.io/a:1:2", "'1:2' is no tag"},
      {"nvcr.io/a:" + std::string(129, 't'), "is no tag"},
      {"nvcr.io/" + std::string(256, 'r'), "longer than 255 letters"},
      {std::string(250, 'r'), "longer than 255 letters"},  // with library/ in front
      {"nvcr.io/a@", "'' is no digest"},
      {"nvcr.io/a@sha256:abc", "sha256 needs 64 lower-case hexadecimal digits"},
      {"nvcr.io/a@sha256:" + std::string(64, 'A'), "sha256 needs 64"},
      {"nvcr.io/a@md5:" + kSha256, "is no digest"},
      {"nvcr.io/a@sha512:" + kSha256 + kSha256, "is no digest that skopeo checks"},
      {"nvcr.io/a@sha256:" + kSha256 + "@sha256:" + kSha256, "sha256 needs 64"},
      {"host:0/a", "'0' is no port"},
      {"host:65536/a", "'65536' is no port"},
      {"host:/a", "'' is no port"},
      {"host:5x/a", "'5x' is no port"},
      {"ho_st.example/a", "'ho_st.example' is no host"},
      {".example/a", "'.example' is no host"},
      {"user@host.example/a", "is no digest"},
      {"[::g]/a", "is no IPv6 address"},
      {"[::1/a", "is no IPv6 address"},
      {"[::1]x/a", "is no host"},
  };
  for (const auto& row : rows) {
    const auto got = ImageReference::parse(row.text);
    EXPECT_EQ(got.has_value(), false) << row.text;
    if (got) continue;
    EXPECT_EQ(got.error().code, Errc::usage) << row.text;
    EXPECT_THAT(got.error().message, HasSubstr(row.why)) << row.text;
    EXPECT_THAT(got.error().message, HasSubstr("'" + row.text + "'"));
  }
  EXPECT_EQ(ImageReference::parse("https://nvcr.io/a").error().hint, "write nvcr.io/a without https://");
}

TEST(ImageReference, KnowsTheLoopback) {
  for (const char* host : {"localhost", "localhost:5000", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:5000"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host :
       {"localhost.example", "128.0.0.1", "127.0.0.1.example", "127.1", "[::2]", "10.0.0.1:127"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

}  // namespace
}  // namespace ferry::kata
