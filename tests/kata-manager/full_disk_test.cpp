// SPDX-License-Identifier: Apache-2.0
// Fetches onto a file system of their own that is too small for them.
#include <sys/mount.h>

#include "tests/kata-manager/archives.h"
#include "tests/kata-manager/fetching.h"

namespace ferry::kata {
namespace {

using test::must;
using testing::HasSubstr;

constexpr std::size_t kMiB = 1024UL * 1024;

class FullDisk : public test::Fetching {
 protected:
  void SetUp() override {
    scratch.directory("opt/artifacts");
    if (::mount("ferry-test", disk().c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=2m,nr_inodes=64") != 0)
      GTEST_SKIP() << "a file system cannot be mounted here";
    mounted_ = true;
    registry.image(test::Fetching::layers("small"));
    must(fetch());
  }
  void TearDown() override {
    if (mounted_) ::umount2(disk().c_str(), MNT_DETACH);
  }
  void make_room() const {
    ASSERT_EQ(::mount("ferry-test", disk().c_str(), "tmpfs", MS_REMOUNT, "size=32m,nr_inodes=4096"), 0);
  }
  /// What must hold however far it came: the old version is in use, whole, and nothing half done is beside
  /// it.
  void expect_the_old_one() const {
    EXPECT_EQ(seen("guest.img"), "small");
    EXPECT_TRUE(must(current_artifact(host, request.artifacts_dir, request.name, request.url)).has_value());
    EXPECT_FALSE(host.exists("opt/artifacts/.ferry/kata-gpu/staging"));
  }

 private:
  std::string disk() const { return (scratch.path() / "opt/artifacts").string(); }
  bool mounted_ = false;
};

TEST_F(FullDisk, WhatDoesNotFitOnTheWayLeavesTheVersionInUse) {
  const std::string large(6 * kMiB, 'g');
  registry.image(layers(large));
  const Error full = refusal();
  EXPECT_EQ(full.code, std::errc::no_space_on_device) << full.message;
  expect_the_old_one();
  make_room();
  must(fetch());
  EXPECT_EQ(seen("guest.img"), large);
}

TEST_F(FullDisk, WhatDoesNotFitUnpackedLeavesTheVersionInUse) {
  // Not a hole: libarchive gives zeros as bytes.
  registry.image(
      {{.content = test::tar_of({{.path = "guest.img", .content = std::string(6 * kMiB, 'g')},
                                 {.path = "configuration.toml", .content = "[hypervisor.qemu]\n"}}),
        .media_type = "application/vnd.oci.image.layer.v1.tar+gzip"}});
  const Error full = refusal();
  EXPECT_EQ(full.code, std::errc::no_space_on_device) << full.message;
  EXPECT_THAT(full.message, HasSubstr("guest.img"));
  expect_the_old_one();
  make_room();
  must(fetch());
  EXPECT_EQ(seen("guest.img").size(), 6 * kMiB);
}

TEST_F(FullDisk, SoDoesOneWithoutRoomForNames) {
  std::vector<test::TarEntry> entries = {{.path = "configuration.toml", .content = "[hypervisor.qemu]\n"}};
  for (int i = 0; i < 100; ++i) entries.push_back({.path = "f" + std::to_string(i), .content = "x"});
  registry.image(
      {{.content = test::tar_of(entries), .media_type = "application/vnd.oci.image.layer.v1.tar+gzip"}});
  const Error full = refusal();
  EXPECT_EQ(full.code, std::errc::no_space_on_device) << full.message;
  expect_the_old_one();
  make_room();
  EXPECT_EQ(must(fetch()).files.size(), 101U);
}

}  // namespace
}  // namespace ferry::kata
