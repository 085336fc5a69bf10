// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/root_only.h"

#include <cerrno>
#include <deque>
#include <fcntl.h>
#include <set>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/file_status.h"

namespace ferry::kata {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostEntries = 100'000;
constexpr unsigned kMostLevels = 40;
constexpr unsigned kMostLinks = 40;  // on one way, as the kernel has it

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

using Entry = struct stat;

bool is_folder(const Entry& entry) {
  return S_ISDIR(entry.st_mode);
}

// A link has no mode of its own.
bool others_write(const Entry& entry) {
  return !S_ISLNK(entry.st_mode) && (entry.st_mode & kOthersWrite) != 0;
}

/// All paths are relative to the host's root.
class RootOnly {
 public:
  RootOnly(const HostFs& host, const fs::path& folder)
      : host_(host), folder_(folder.lexically_normal().relative_path()) {}

  Result<> check() {
    const auto real = end_of(folder_);
    if (!real) return fail(real.error());
    return check_tree(*real, 0);
  }

 private:
  Result<Entry> entry_at(const fs::path& path) const {
    const auto fd = host_.open(path.empty() ? "." : path, O_PATH | O_NOFOLLOW);
    if (!fd) return fail(fd.error());
    const auto out = file_status(fd->get());
    if (!out) return fail(error_from_errno(errno, "stat /" + path.string()));
    return *out;
  }

  tl::unexpected<Error> refuse(const fs::path& path, const std::string& why) const {
    // By the folder's own path, so that one command helps for all that is in the folder.
    const auto inside = path.lexically_relative(folder_);
    const bool is_inside = folder_.has_relative_path() && !inside.empty() && *inside.begin() != "..";
    const std::string place = is_inside ? folder_.string() : path.string();
    return fail(Errc::refused,
                fmt::format("/{} {}: root runs what the folder /{} names, so only root may write it",
                            path.string(), why, folder_.string()),
                fmt::format("on the host: `chown -h{0} root:root /{1} && chmod{2} go-w /{1}`; then check its "
                            "content, or copy it "
                            "anew: another user may have changed it",
                            is_inside ? "R" : "", place, is_inside ? " -R" : ""));
  }

  Result<> check_owner(const fs::path& path, const Entry& entry) const {
    if (entry.st_uid == 0 || entry.st_uid == ::geteuid()) return {};
    return refuse(path, fmt::format("belongs to user {}", entry.st_uid));
  }

  Result<> check_entry(const fs::path& path, const Entry& entry) const {
    if (auto r = check_owner(path, entry); !r) return r;
    if (!others_write(entry)) return {};
    return refuse(path, fmt::format("can be written by others (mode {:04o})", entry.st_mode & 07777U));
  }

  /// Follows a way from the host's root and checks each entry on it; returns its end, by a path without
  /// links.
  Result<fs::path> end_of(const fs::path& way) const {
    std::deque<fs::path> rest(way.begin(), way.end());
    fs::path here;
    unsigned links = 0;
    while (!rest.empty()) {
      const fs::path part = rest.front();
      rest.pop_front();
      if (part.empty() || part == ".") continue;
      if (part == "..") {
        here = here.parent_path();
        continue;
      }
      const fs::path next = here / part;
      const auto entry = entry_at(next);
      if (!entry) {
        const auto above = entry_at(here);
        if (is_gone(entry.error()) && above && others_write(*above))
          return refuse(next, "is missing, and others can make it");
        return fail(entry.error());
      }
      if (auto r = check_owner(next, *entry); !r) return fail(std::move(r).error());
      if (!S_ISLNK(entry->st_mode)) {
        const bool is_sticky = is_folder(*entry) && (entry->st_mode & S_ISVTX) != 0;
        if (!is_sticky)
          if (auto r = check_entry(next, *entry); !r) return fail(std::move(r).error());
        here = next;
        continue;
      }
      if (++links > kMostLinks) return refuse(next, "is a link that leads in a circle");
      const auto target = host_.link_target(next);
      if (!target) return fail(target.error());
      const fs::path to(*target);
      if (to.is_absolute()) here.clear();
      const fs::path parts = to.relative_path();
      rest.insert(rest.begin(), parts.begin(), parts.end());
    }
    // The sticky bit keeps what is in a folder, and not what others add to it.
    const auto end = entry_at(here);
    if (!end) return fail(end.error());
    if (auto r = check_entry(here, *end); !r) return fail(std::move(r).error());
    return here;
  }

  Result<> check_tree(const fs::path& folder, unsigned level) {
    if (!looked_at_.insert(folder).second) return {};
    if (level > kMostLevels) return refuse(folder, fmt::format("is more than {} levels deep", kMostLevels));
    const auto entries = host_.entries(folder.empty() ? "." : folder);
    if (!entries && entries.error().code == std::errc::permission_denied && ::geteuid() != 0) return {};
    if (!entries) return fail(entries.error());
    for (const DirectoryEntry& listed : *entries) {
      if (++entries_ > kMostEntries)
        return refuse(folder, fmt::format("has more than {} files and folders", kMostEntries));
      const fs::path path = folder / listed.name;
      const auto entry = entry_at(path);
      if (!entry && is_gone(entry.error())) continue;
      if (!entry) return fail(entry.error());
      if (auto r = check_entry(path, *entry); !r) return r;
      fs::path below = path;
      bool goes_on = is_folder(*entry);
      if (S_ISLNK(entry->st_mode)) {
        auto end = end_of(path);
        if (!end && is_gone(end.error())) continue;
        if (!end) return fail(std::move(end).error());
        const auto target = entry_at(*end);
        if (!target) return fail(target.error());
        below = std::move(*end);
        goes_on = is_folder(*target);
      }
      if (!goes_on) continue;
      if (auto r = check_tree(below, level + 1); !r) return r;
    }
    return {};
  }

  const HostFs& host_;
  const fs::path folder_;
  std::set<fs::path> looked_at_;
  std::size_t entries_ = 0;
};

}  // namespace

Result<> check_root_only(const HostFs& host, const std::filesystem::path& folder) {
  return RootOnly(host, folder).check();
}

}  // namespace ferry::kata
