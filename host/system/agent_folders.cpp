// SPDX-License-Identifier: Apache-2.0
#include "host/system/agent_folders.h"

#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/file_status.h"
#include "common/unique_fd.h"
#include "hostfs/descriptor_reads.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostEntries = 100'000;
constexpr unsigned kMostLevels = 40;
constexpr std::size_t kMostErrors = 16;     // of a look
constexpr std::size_t kMostWarnings = 200;  // the agent chooses the names in a tree

// Names in a folder of artifacts (kata-manager/artifacts/artifact_store.h): the lock, and Ferry's store.
constexpr const char* kLock = "k8s-kata-manager.pid";
constexpr const char* kStore = ".ferry";

std::string doing(const std::string& path, gid_t group) {
  return fmt::format("give /{} to group {}", path, group);
}

Error not_permitted(int number, const std::string& path, gid_t group, bool is_folder) {
  Error error = error_from_errno(number, doing(path, group));
  const char* const mode = is_folder ? "g+rwxs" : "g+rw";
  if (number == EPERM)
    error.hint = fmt::format(
        "only the owner of a file gives it to a group, and only to one of its own groups: hostd needs group "
        "{} among its supplementary groups; or do it once on the host: `chgrp {} /{} && chmod {} /{}`",
        group, group, path, mode, path);
  return error;
}

/// Gives the file or folder that `fd` (open for reading) has open; true: its group or mode has changed.
Result<bool> give_one(int fd, const std::string& path, gid_t group) {
  const auto now = file_status(fd);
  if (!now) return fail(error_from_errno(errno, doing(path, group)));
  const bool is_folder = S_ISDIR(now->st_mode);
  constexpr mode_t kFile = S_IRGRP | S_IWGRP;
  constexpr mode_t kFolder = S_ISGID | S_IRWXG;
  const mode_t needed = is_folder ? kFolder : kFile;
  if (now->st_gid == group && (now->st_mode & needed) == needed) return false;
  if (now->st_gid != group && ::fchown(fd, static_cast<uid_t>(-1), group) != 0)
    return fail(not_permitted(errno, path, group, is_folder));
  if (::fchmod(fd, (now->st_mode & 07777U) | needed) != 0)
    return fail(not_permitted(errno, path, group, is_folder));
  return true;
}

/// Takes from the group the right to write a folder itself; true: it had that.
Result<bool> take_from_group(int fd, const std::string& path, gid_t group) {
  const std::string what = fmt::format("take /{} from group {}", path, group);
  const auto now = file_status(fd);
  if (!now) return fail(error_from_errno(errno, what));
  if (now->st_gid != group || (now->st_mode & S_IWGRP) == 0) return false;
  constexpr mode_t kGiven = S_ISVTX | S_ISGID | S_IWGRP;
  if (::fchmod(fd, now->st_mode & 07777U & ~kGiven) != 0) {
    Error error = error_from_errno(errno, what);
    error.hint = fmt::format("do it on the host: `chown root:root /{0} && chmod g-ws,-t /{0}`", path);
    return fail(std::move(error));
  }
  return true;
}

/// Gives the lock and Ferry's store in a folder of artifacts to the group, from the bottom up. An entry that
/// fails does not stop the others.
class TreeGiver {
 public:
  TreeGiver(int top, std::string path, gid_t group) : top_(top), path_(std::move(path)), group_(group) {}

  Result<> give_lock() {
    const std::string path = path_ + "/" + kLock;
    const auto open_lock = [&] {
      return UniqueFd(::openat(top_, kLock, O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0664));
    };
    UniqueFd fd = open_lock();
    auto status = file_status(fd.get());
    // The agent may have given a file of the host this name while it could write the folder.
    if (status && S_ISREG(status->st_mode) && status->st_nlink > 1) {
      if (::unlinkat(top_, kLock, 0) != 0 && errno != ENOENT)
        return fail(error_from_errno(errno, "remove /" + path));
      fd = open_lock();
      status = file_status(fd.get());
    }
    if (!status && errno == ELOOP) return {};  // who locks the folder says so
    if (!status) return fail(error_from_errno(errno, doing(path, group_)));
    if (!S_ISREG(status->st_mode) || !is_plain(*status)) return {};
    return give_owned(fd.get(), path, *status);
  }

  /// `whole`: also all in it that this process's user owns.
  Result<> give_store(bool whole) {
    const std::string path = path_ + "/" + kStore;
    if (::mkdirat(top_, kStore, 0755) != 0 && errno != EEXIST)
      return fail(error_from_errno(errno, "make folder /" + path));
    const UniqueFd fd(::openat(top_, kStore, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd.valid() && (errno == ELOOP || errno == ENOTDIR))
      return fail(Errc::refused, fmt::format("/{} is a symbolic link or no folder", path),
                  "remove it; hostd makes the folder");
    const auto status = file_status(fd.get());
    if (!status) return fail(error_from_errno(errno, doing(path, group_)));
    device_ = status->st_dev;
    if (whole) give_below(fd.get(), path, 1);
    return give_owned(fd.get(), path, *status);
  }

  /// Adds an error for each entry beside the lock and the store that has something of another owner, or
  /// something that the group may write; and one if not all could be looked at.
  void look_beside() {
    const UniqueFd own(::openat(top_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto names = read_entries(own.get(), [&] { return "read /" + path_; });
    if (!names) return add(fail(names.error()));
    for (const DirectoryEntry& entry : *names) {
      if (entry.name == kLock || entry.name == kStore) continue;
      const std::string path = path_ + "/" + entry.name;
      const auto why = why_not_roots(top_, entry.name, path, 0);
      if (!why) continue;
      add(fail(Errc::refused, *why,
               fmt::format("on the host: `chown -hR root:root /{0} && chmod -R go-w /{0}`; then check its "
                           "content, or copy it anew: the agent may have changed it",
                           path)));
    }
    if (is_cut_off_)
      add(fail(Errc::refused,
               fmt::format("/{} has more than {} entries apart from Ferry's store, or more than {} levels of "
                           "folders: the rest is not looked at",
                           path_, kMostEntries, kMostLevels),
               "move what no class uses elsewhere"));
  }

  /// Keeps the error of an entry, if there is one.
  void add(Result<> done) {
    if (!done && given_.errors.size() < kMostErrors) given_.errors.push_back(std::move(done).error());
  }
  Given take() { return std::move(given_); }

 private:
  Result<> give_owned(int fd, const std::string& path, const struct stat& status) {
    if (status.st_uid != ::geteuid()) return {};
    const auto given = give_one(fd, path, group_);
    if (!given) return fail(given.error());
    if (*given) ++given_.changed;
    return {};
  }

  /// Names the first entry that another user than root owns, or that the group may write; absent: none.
  std::optional<std::string> why_not_roots(int folder, const std::string& name, const std::string& path,
                                           unsigned level) {
    if (level > kMostLevels || looked_at_ >= kMostEntries) {
      is_cut_off_ = true;
      return std::nullopt;
    }
    ++looked_at_;
    const auto status = entry_status(folder, name);
    if (!status) return std::nullopt;
    if (status->st_uid != ::geteuid() && status->st_uid != 0)
      return fmt::format("/{} belongs to user {}: only root's entries are safe from the agent", path,
                         status->st_uid);
    if (S_ISLNK(status->st_mode)) return std::nullopt;
    if (status->st_gid == group_ && (status->st_mode & S_IWGRP) != 0)
      return fmt::format("/{} can be written by group {}, the agent's", path, group_);
    if (!S_ISDIR(status->st_mode)) return std::nullopt;
    const UniqueFd fd(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd.valid()) return std::nullopt;
    const auto names = read_entries(fd.get(), [&] { return "read /" + path; });
    if (!names) return std::nullopt;
    for (const DirectoryEntry& entry : *names)
      if (auto why = why_not_roots(fd.get(), entry.name, path + "/" + entry.name, level + 1)) return why;
    return std::nullopt;
  }

  void give_below(int folder, const std::string& path, unsigned level) {
    if (level > kMostLevels)
      return add(fail(Errc::refused, fmt::format("/{} has more than {} levels of folders", path, kMostLevels),
                      "remove what is below; no artifact is so deep"));
    UniqueFd own(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!own.valid()) return add(fail(error_from_errno(errno, "open /" + path)));
    const std::unique_ptr<DIR, int (*)(DIR*)> names(::fdopendir(own.get()), ::closedir);
    if (!names) return add(fail(error_from_errno(errno, "read /" + path)));
    static_cast<void>(own.release());  // closedir() closes it
    for (;;) {
      errno = 0;
      const dirent* const entry = ::readdir(names.get());
      if (entry == nullptr) {
        if (errno != 0) add(fail(error_from_errno(errno, "read /" + path)));
        return;
      }
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (entries_ > kMostEntries) return;
      if (++entries_ > kMostEntries)
        return add(fail(Errc::refused,
                        fmt::format("/{}: this tree has more than {} entries, and the rest is not looked at",
                                    path, kMostEntries),
                        "remove what no class has, or do it once on the host with chgrp and chmod"));
      add(give_entry(folder, name, path + "/" + name, level));
    }
  }

  static bool is_plain(const struct stat& status) {
    // A program with set-user-ID must not become another user's to write. Neither must a file of the host to
    // which the agent has given a name here.
    return S_ISDIR(status.st_mode) ||
           (S_ISREG(status.st_mode) && status.st_nlink == 1 && (status.st_mode & (S_ISUID | S_ISGID)) == 0);
  }

  Result<> give_entry(int folder, const std::string& name, const std::string& path, unsigned level) {
    // A FIFO or a device is not even opened, and an entry may have gone meanwhile.
    const auto seen = entry_status(folder, name);
    if (!seen || !is_plain(*seen)) return {};
    const UniqueFd fd(::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd.valid() && (errno == ENOENT || errno == ELOOP)) return {};
    const auto status = file_status(fd.get());
    if (!status) return fail(error_from_errno(errno, doing(path, group_)));
    if (!is_plain(*status) || status->st_dev != device_) return {};
    if (S_ISDIR(status->st_mode)) give_below(fd.get(), path, level + 1);
    return give_owned(fd.get(), path, *status);
  }

  int top_;
  std::string path_;
  gid_t group_;
  dev_t device_ = 0;  // the store's; what is mounted in it stays as it is
  std::size_t entries_ = 0;
  std::size_t looked_at_ = 0;
  bool is_cut_off_ = false;  // by a limit of look_beside()
  Given given_;
};

}  // namespace

Result<Given> give_to_group(const HostFs& host, const fs::path& folder, gid_t group, Giving giving) {
  if (auto made = host.make_directory(folder); !made) return fail(std::move(made).error());
  const auto fd = host.open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!fd && (fd.error().code == std::errc::too_many_symbolic_link_levels ||
              fd.error().code == std::errc::not_a_directory))
    return fail(Errc::refused, fmt::format("/{} is a symbolic link or no folder", folder.string()),
                "name the folder that the link leads to");
  if (!fd) return fail(fd.error());

  if (giving == Giving::folder) {
    const auto given = give_one(fd->get(), folder.string(), group);
    if (!given) return fail(given.error());
    return Given{.changed = *given ? std::size_t{1} : std::size_t{0}};
  }

  const auto taken = take_from_group(fd->get(), folder.string(), group);
  if (!taken) return fail(taken.error());
  const bool whole = giving == Giving::tree;
  TreeGiver tree(fd->get(), folder.string(), group);
  tree.add(tree.give_lock());
  tree.add(tree.give_store(whole));
  if (whole) tree.look_beside();
  Given given = tree.take();
  given.taken = *taken;
  return given;
}

void AgentFolders::give() {
  if (!settings_.lock.empty()) {
    give(settings_.lock.parent_path(), Giving::folder);
    if (auto given = give_lock(); !given) warn_once(given.error());
  }
  for (const fs::path& folder : settings_.folders) give(folder, Giving::folder);
  for (const fs::path& folder : settings_.trees) give_tree(folder);
}

void AgentFolders::give_tree(const fs::path& folder) {
  const auto now = Clock::now();
  const auto known = next_scans_.try_emplace(folder, now).first;
  auto& next_scan = known->second;
  const bool looks = next_scan && *next_scan <= now;
  const bool all_given = give(folder, looks ? Giving::tree : Giving::tree_top);
  if (looks) next_scan = all_given ? std::nullopt : std::optional(Clock::now() + settings_.poll_period);
}

Result<> AgentFolders::give_lock() const {
  const auto lock = host_.open(settings_.lock, O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0664);
  if (!lock) return fail(lock.error());
  const auto status = file_status(lock->get());
  if (!status) return fail(error_from_errno(errno, doing(settings_.lock.string(), settings_.group)));
  // The agent may have made the file itself, or have put another name of a file of Ferry's here.
  if (!S_ISREG(status->st_mode) || status->st_uid != ::geteuid() || status->st_nlink != 1) return {};
  const auto given = give_one(lock->get(), settings_.lock.string(), settings_.group);
  return given ? Result<>() : fail(given.error());
}

bool AgentFolders::give(const fs::path& folder, Giving giving) {
  const auto given = give_to_group(host_, folder, settings_.group, giving);
  if (!given) {
    warn_once(given.error());
    return false;
  }
  if (given->taken)
    spdlog::info("/{}: group {}, the agent's, writes only /{}/{} from now on", folder.string(),
                 settings_.group, folder.string(), kStore);
  if (given->changed > 0)
    spdlog::info("/{}: {} given to group {}, {}", folder.string(),
                 giving == Giving::folder
                     ? "the folder is"
                     : fmt::format("{} of Ferry's files and folders are", given->changed),
                 settings_.group, settings_.whose);
  for (const Error& error : given->errors) warn_once(error);
  return given->errors.empty();
}

void AgentFolders::warn_once(const Error& error) {
  if (warned_.size() >= kMostWarnings || !warned_.insert(error.message).second) return;
  spdlog::warn("{}", error.text());
}

}  // namespace ferry::host
