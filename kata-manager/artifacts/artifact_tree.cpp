// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/artifact_tree.h"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/file_status.h"
#include "hostfs/descriptor_reads.h"
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
    const auto status = entry_status(parent, name);
    if (!status) return fail(error_from_errno(errno, "stat " + path.string()));
    if (S_ISLNK(status->st_mode)) {
      auto target = read_link(parent, name.c_str(), [&] { return "read link " + path.string(); });
      if (!target) return fail(std::move(target).error());
      found.files.push_back({.path = path, .size = 0, .sha256 = {}, .link = std::move(*target)});
      return {};
    }
    if (!S_ISDIR(status->st_mode) && !S_ISREG(status->st_mode))
      return fail(Errc::refused, fmt::format("'{}' is no file, folder or link", path.string()));
    const bool is_folder = S_ISDIR(status->st_mode);
    ArtifactFile file{
        .path = path, .size = static_cast<std::uint64_t>(status->st_size), .sha256 = {}, .link = {}};
    if (!is_folder && (status->st_mode & (S_ISUID | S_ISGID)) != 0) found.privileged = path;
    if (is_folder || contents) {
      UniqueFd fd(::openat(parent, name.c_str(),
                           O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (is_folder ? O_DIRECTORY : 0)));
      if (!fd.valid()) return fail(error_from_errno(errno, "open " + path.string()));
      if (is_folder) return folder(std::move(fd), path);
      auto hash = hash_of(fd.get(), path.string());
      if (!hash) return fail(std::move(hash).error());
      file.sha256 = std::move(*hash);
    }
    found.files.push_back(std::move(file));
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

Result<std::filesystem::path> choose_configuration(std::span<const ArtifactFile> files,
                                                   const std::filesystem::path& named) {
  std::vector<std::string> top;
  std::vector<std::string> defaults;
  std::vector<std::string> all;
  for (const ArtifactFile& file : files) {
    if (file.path == named) return file.path;
    if (file.path.extension() != ".toml") continue;
    all.push_back(file.path.string());
    if (!file.path.has_parent_path()) top.push_back(file.path.string());
    if (file.path.parent_path() == kKataDefaults) defaults.push_back(file.path.string());
  }
  if (top.empty()) top = std::move(defaults);
  const std::string hint = all.empty() ? "" : fmt::format("these are there: {}", fmt::join(all, ", "));
  if (!named.empty())
    return fail(Errc::not_found, fmt::format("the artifact has no configuration '{}'", named.string()), hint);
  if (top.empty())
    return fail(
        Errc::not_found,
        fmt::format("the artifact has no Kata configuration (*.toml) at its top, nor in {}", kKataDefaults),
        hint.empty() ? hint : hint + "; name one");
  if (top.size() > 1)
    return fail(Errc::refused,
                fmt::format("the artifact has several configurations: {}", fmt::join(top, ", ")),
                "name it: `artifacts: {url: ..., configuration: FILE}`");
  return top.front();
}

}  // namespace ferry::kata
