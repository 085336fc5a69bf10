// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/unpack.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "kata-manager/artifacts/artifact_tree.h"
#include "tests/kata-manager/archives.h"
#include "tests/kata-manager/hostile_archives.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using test::must;
using test::Packed;
using test::tar_of;
using test::TarEntry;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class Unpack : public testing::Test {
 protected:
  Unpack() { scratch.directory("top"); }

  UniqueFd top() const { return UniqueFd(::open((scratch.path() / "top").c_str(), O_RDONLY | O_CLOEXEC)); }

  Result<> take(const std::string& archive, const UnpackOptions& options = {},
                const ArtifactLimits& limits = {}) const {
    const UniqueFd fd(::memfd_create("archive", MFD_CLOEXEC));
    if (::write(fd.get(), archive.data(), archive.size()) != static_cast<ssize_t>(archive.size())) return {};
    SafeTree tree(top(), limits);
    return unpack(fd.get(), tree, options);
  }

  Error refusal(const std::vector<TarEntry>& entries) const {
    const auto got = take(tar_of(entries));
    return got ? Error{} : got.error();
  }

  std::string content(const fs::path& path) const {
    std::ifstream in(scratch.path() / "top" / path);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  unsigned mode(const fs::path& path) const {
    struct stat status {};
    ::lstat((scratch.path() / "top" / path).c_str(), &status);
    return status.st_mode & 07777U;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const ArtifactFile& file : must(list_tree(top(), false, 100)).files)
      out.push_back(file.path.string());
    return out;
  }

  test::ScratchDirectory scratch;
};

TEST_F(Unpack, CountsEntriesThatMakeNothing) {
  const std::vector<TarEntry> entries(20, {.path = "again/", .folder = true});
  const auto got = take(tar_of(entries), {}, {.files = 10});
  EXPECT_EQ(got ? std::error_code() : got.error().code, Errc::refused);
  must(take(tar_of(entries), {}, {.files = 20}));
}

TEST_F(Unpack, TakesFilesFoldersAndLinks) {
  for (const Packed packed : {Packed::plain, Packed::gzip, Packed::xz, Packed::zstd}) {
    must(take(tar_of({{.path = "./", .folder = true},
                      {.path = "./kernel/", .mode = 0777, .folder = true},
                      {.path = "./kernel/vmlinuz-6.8", .content = "kernel", .mode = 0666},
                      {.path = "kernel/vmlinuz", .symlink = "vmlinuz-6.8"},
                      {.path = "kernel/up", .symlink = "../bin/shim"},
                      {.path = "bin/shim", .content = "program", .mode = 0775},
                      {.path = "bin/again", .hardlink = "bin/shim"},
                      {.path = "hidden", .content = "h", .mode = 0},
                      {.path = "empty"}},
                     packed)));
    EXPECT_THAT(names(), ElementsAre("bin/again", "bin/shim", "empty", "hidden", "kernel/up",
                                     "kernel/vmlinuz", "kernel/vmlinuz-6.8"));
    EXPECT_EQ(content("kernel/vmlinuz"), "kernel");
    EXPECT_EQ(content("bin/again"), "program");
    EXPECT_EQ(mode("bin/shim"), 0755U) << "nobody but the owner writes";
    EXPECT_EQ(mode("kernel/vmlinuz-6.8"), 0644U);
    EXPECT_EQ(mode("kernel"), 0755U);
    EXPECT_EQ(mode("hidden"), 0400U);
  }
}

TEST_F(Unpack, ReplacesAFileByALaterOne) {
  must(take(tar_of(
      {{.path = "a", .content = "first"}, {.path = "b", .symlink = "a"}, {.path = "a", .content = "2"}})));
  must(take(tar_of({{.path = "b", .content = "file"}})));
  EXPECT_EQ(content("a"), "2");
  EXPECT_EQ(content("b"), "file") << "the link is replaced, not written through";
}

TEST_F(Unpack, LetsNothingOut) {
  scratch.file("outside", "mine");
  for (const auto& row : test::hostile_archives()) {
    const Error error = refusal(row.entries);
    EXPECT_EQ(error.code, Errc::refused)
        << row.entries.back().path << " " << row.why << ": " << error.message;
    EXPECT_THAT(error.message, HasSubstr(row.why));
    fs::remove_all(scratch.path() / "top");
    scratch.directory("top");
  }
  EXPECT_EQ(
      must(list_tree(UniqueFd(::open(scratch.path().c_str(), O_RDONLY | O_CLOEXEC)), true, 9)).files.size(),
      1U);
}

TEST_F(Unpack, RefusesWhatRemovesFilesOfOtherLayers) {
  EXPECT_EQ(refusal({{.path = "a/.wh.b"}}).code, Errc::unsupported);
}

TEST_F(Unpack, KeepsSetUserIdWhereItIsAskedTo) {
  must(take(tar_of({{.path = "su", .content = "x", .mode = 04755}}), {.allow_setuid = true}));
  EXPECT_EQ(mode("su"), 04755U);
}

TEST_F(Unpack, StaysBelowItsTitle) {
  const UnpackOptions below{.below = {"guest", "image"}};
  must(take(tar_of({{.path = "guest", .folder = true},
                    {.path = "guest/image", .folder = true},
                    {.path = "guest/image/k", .content = "x"}}),
            below));
  EXPECT_THAT(names(), ElementsAre("guest/image/k"));
  for (const char* path : {"k", "guest/k", "guest/imagex/k", "guest/image"}) {
    const auto got = take(tar_of({{.path = path, .content = "x"}}), below);
    EXPECT_EQ(got.error().code, Errc::refused) << path;
  }
}

TEST_F(Unpack, IsNoBomb) {
  constexpr std::uint64_t kMiB = 1ULL << 20;
  const std::string bomb = tar_of({{.path = "zeros", .zeros = 64 * kMiB}});
  ASSERT_LT(bomb.size(), kMiB / 4) << "it looks small";
  const auto got = take(bomb, {}, {.bytes = 63 * kMiB});
  EXPECT_EQ(got.error().code, Errc::refused);
  EXPECT_THAT(got.error().message, HasSubstr("more than 66060288 bytes"));
  EXPECT_LT(fs::exists(scratch.path() / "top/zeros") ? fs::file_size(scratch.path() / "top/zeros") : 0, kMiB)
      << "it is refused before it is written";
  must(take(bomb, {}, {.bytes = 64 * kMiB}));
  const std::string two = tar_of({{.path = "a", .zeros = 40 * kMiB}, {.path = "b", .zeros = 40 * kMiB}});
  const auto sum = take(two, {}, {.bytes = 64 * kMiB});
  ASSERT_FALSE(sum.has_value()) << "the limit is for all together";
  EXPECT_EQ(sum.error().code, Errc::refused);
  std::vector<TarEntry> many;
  many.reserve(50);
  for (int i = 0; i < 50; ++i) many.push_back({.path = "d" + std::to_string(i) + "/f"});
  EXPECT_EQ(take(tar_of(many), {}, {.files = 99}).error().code, Errc::refused) << "folders on the way count";
  fs::remove_all(scratch.path() / "top");
  scratch.directory("top");
  must(take(tar_of(many), {}, {.files = 100}));
}

TEST_F(Unpack, SaysThatAnArchiveCannotBeRead) {
  const std::string good = tar_of({{.path = "a", .content = std::string(100'000, 'x')}}, Packed::plain);
  EXPECT_EQ(take("").error().code, Errc::malformed_host);
  EXPECT_EQ(take("no archive at all").error().code, Errc::malformed_host);
  EXPECT_EQ(take(good.substr(0, 50'000)).error().code, Errc::malformed_host);
  const std::string packed = tar_of({{.path = "a", .content = std::string(100'000, 'x')}});
  EXPECT_EQ(take(packed.substr(0, packed.size() / 2)).error().code, Errc::malformed_host);
  const std::string zip("PK\x03\x04", 4);
  EXPECT_EQ(take(zip + good).error().code, Errc::malformed_host) << "of all formats only tar is read";
}

}  // namespace
}  // namespace ferry::kata
