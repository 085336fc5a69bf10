// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/tree_listing.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "kata-manager/artifacts/content_hash.h"

namespace ferry::kata {
namespace {

struct Lister {
  bool contents = false;
  std::uint64_t most = 0;
  TreeListing found = {};
  std::uint64_t seen = 0;

  Result<> folder(UniqueFd fd, const std::filesystem::path& path) {
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(fd.get()), ::closedir);
    if (!dir) return fail(error_from_errno(errno, "list " + path.string()));
    fd.release();  // closedir() closes it
    for (;;) {
      errno = 0;
      const dirent* const entry = ::readdir(dir.get());
      if (entry == nullptr) break;
      const std::string name = static_cast<const char*>(entry->d_name);
      if (name == "." || name == "..") continue;
      if (++seen > most)
        return fail(Errc::refused, fmt::format("there are more than {} files and folders, the limit", most));
      if (auto done = one(::dirfd(dir.get()), name, path / name); !done) return done;
    }
    if (errno != 0) return fail(error_from_errno(errno, "list " + path.string()));
    return {};
  }

  Result<> one(int parent, const std::string& name, const std::filesystem::path& path) {
    struct stat status {};
    if (::fstatat(parent, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      return fail(error_from_errno(errno, "stat " + path.string()));
    if (S_ISLNK(status.st_mode)) return link(parent, name, path);
    if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode))
      return fail(Errc::refused, fmt::format("'{}' is no file, folder or link", path.string()));
    const bool is_folder = S_ISDIR(status.st_mode);
    ArtifactFile file{
        .path = path, .size = static_cast<std::uint64_t>(status.st_size), .sha256 = {}, .link = {}};
    if (!is_folder && (status.st_mode & (S_ISUID | S_ISGID)) != 0) found.privileged = path;
    if (is_folder || contents) {
      UniqueFd fd(
          ::openat(parent, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | (is_folder ? O_DIRECTORY : 0)));
      if (!fd.valid()) return fail(error_from_errno(errno, "open " + path.string()));
      if (is_folder) return folder(std::move(fd), path);
      auto hash = sha256_of(fd.get(), path.string());
      if (!hash) return fail(std::move(hash).error());
      file.sha256 = std::move(*hash);
    }
    found.files.push_back(std::move(file));
    return {};
  }

  Result<> link(int parent, const std::string& name, const std::filesystem::path& path) {
    std::array<char, PATH_MAX> target;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by readlink
    const ssize_t n = ::readlinkat(parent, name.c_str(), target.data(), target.size());
    if (n < 0) return fail(error_from_errno(errno, "read link " + path.string()));
    found.files.push_back({.path = path,
                           .size = 0,
                           .sha256 = {},
                           .link = std::string(target.data(), static_cast<std::size_t>(n))});
    return {};
  }
};

}  // namespace

Result<TreeListing> list_tree(UniqueFd folder, bool contents, std::uint64_t most) {
  Lister lister{.contents = contents, .most = most};
  if (auto listed = lister.folder(std::move(folder), {}); !listed) return fail(std::move(listed).error());
  std::ranges::sort(lister.found.files, {}, &ArtifactFile::path);
  return std::move(lister.found);
}

}  // namespace ferry::kata
