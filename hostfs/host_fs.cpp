// SPDX-License-Identifier: Apache-2.0
#include "hostfs/host_fs.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <fcntl.h>
#include <linux/openat2.h>
#include <random>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/file_status.h"
#include "hostfs/descriptor_reads.h"

namespace ferry {
namespace {

/// A new file beside the target, removed by the destructor unless the rename has taken it.
class Scratch : Pinned {
 public:
  Scratch(int directory, const std::string& beside) : directory_(directory) {
    constexpr int kMostNames =
        100;  // others that write the same file just now, or left one when they crashed
    std::random_device random;
    for (int attempt = 0; attempt < kMostNames; ++attempt) {
      name_ = fmt::format(".{}.{:08x}", beside, random());
      fd_ = UniqueFd(::openat(directory_, name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (fd_.valid() || errno != EEXIST) break;
    }
  }
  ~Scratch() {
    if (fd_.valid() && !taken_) ::unlinkat(directory_, name_.c_str(), 0);
  }
  /// Invalid, with errno set: the file could not be made.
  const UniqueFd& fd() const { return fd_; }
  const char* name() const { return name_.c_str(); }
  void taken() { taken_ = true; }

 private:
  const int directory_;
  std::string name_;
  UniqueFd fd_;
  bool taken_ = false;
};

}  // namespace

Result<> write_atomically(const AtomicTarget& target, std::string_view content, mode_t mode) {
  const std::string what = "write " + target.path;
  Scratch scratch(target.directory, target.name);
  const UniqueFd& fd = scratch.fd();
  if (!fd.valid()) return fail(error_from_errno(errno, what));
  while (!content.empty()) {
    const ssize_t n = ::write(fd.get(), content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(error_from_errno(errno, what));
    content.remove_prefix(static_cast<std::size_t>(n));
  }

  if (const auto old = file_status(target.existing)) {
    mode = old->st_mode & 07777;
    // An agent that is not root replaces files of an earlier one that was; the new file is the writer's.
    if (::fchown(fd.get(), old->st_uid, old->st_gid) != 0 && (errno != EPERM || ::geteuid() == 0))
      return fail(error_from_errno(errno, what + ": keep owner"));
  }
  if (::fchmod(fd.get(), mode) != 0 || ::fsync(fd.get()) != 0) return fail(error_from_errno(errno, what));
  if (::renameat(target.directory, scratch.name(), target.directory, target.name.c_str()) != 0)
    return fail(error_from_errno(errno, what));
  scratch.taken();
  if (::fsync(target.directory) != 0) return fail(error_from_errno(errno, what + ": sync directory"));
  return {};
}

namespace {

constexpr off_t kLargestFile = off_t{16} << 20U;  // ten times the largest file of a host, modules.alias

std::string describe(std::string_view verb, const std::filesystem::path& relative) {
  return std::string(verb) + " /" + relative.string();
}

/// An error of read_file: the path has something that Ferry does not read.
auto unfit(Error error) {
  error.hint = fmt::format("put a regular file of up to {} MiB there, or remove it if no program needs it",
                           kLargestFile >> 20U);
  return fail(std::move(error));
}

// A path from outside that climbs out of the root is a caller's defect, but no reason to crash.
bool stays_inside(std::string_view relative) {
  if (relative.starts_with('/')) return false;
  // Most paths need no std::filesystem::path, which splits its parts at once: an Allocate checks many paths.
  if (relative.find("..") == std::string_view::npos) return true;
  return std::ranges::none_of(std::filesystem::path(relative), [](const auto& part) { return part == ".."; });
}

constexpr int kMostAttempts = 1000;  // an attempt fails only if a rename falls into its few microseconds

int open_in_root(int root, const char* path, int flags, mode_t mode) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_IN_ROOT;
  int fd = -1;
  // EAGAIN: a rename or mount on the host while a link's ".." was followed; the kernel cannot tell whether it
  // led out of the root. openat2(2) says to try again.
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    fd = static_cast<int>(::syscall(SYS_openat2, root, path, &how, sizeof(how)));
    if (fd >= 0 || errno != EAGAIN) break;
  }
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return fd;
  // The kernel is before 5.6, or an old container runtime filters the call: openat(2) repeats a real EPERM.
  return ::openat(root, path, flags, mode);
}

std::filesystem::path in_root(const std::filesystem::path& directory) {
  return directory.empty() ? std::filesystem::path(".") : directory;
}

Result<UniqueFd> open_or_make(const HostFs& host, const std::filesystem::path& directory) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY;
  auto opened = host.open(in_root(directory), kFlags);
  if (opened || directory.empty() || opened.error().code != std::errc::no_such_file_or_directory)
    return opened;
  const auto parent = open_or_make(host, directory.parent_path());
  if (!parent) return fail(parent.error());
  const bool made = ::mkdirat(parent->get(), directory.filename().c_str(), 0755) == 0;
  if (!made && errno != EEXIST) return fail(error_from_errno(errno, describe("make directory", directory)));
  // Without its name a directory does not outlive a power loss, nor do its synced files. EINVAL: the file
  // system keeps nothing.
  if (made && ::fsync(parent->get()) != 0 && errno != EINVAL)
    return fail(error_from_errno(errno, describe("sync the parent of directory", directory)));
  return host.open(directory, kFlags);
}

Result<> unlink_in(const HostFs& host, const std::filesystem::path& relative, int flags) {
  assert(relative.is_relative());
  if (!stays_inside(relative.native())) return fail(error_from_errno(EXDEV, describe("remove", relative)));
  const auto directory = host.open(in_root(relative.parent_path()), O_PATH | O_DIRECTORY);
  if (!directory) return fail(directory.error());
  if (::unlinkat(directory->get(), relative.filename().c_str(), flags) != 0)
    return fail(error_from_errno(errno, describe("remove", relative)));
  return {};
}

}  // namespace

HostFs::HostFs(std::filesystem::path root)
    : root_(std::move(root)), root_fd_(::open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  if (!root_fd_.valid()) root_errno_ = errno;
}

Result<> HostFs::make_directory(const std::filesystem::path& relative) const {
  auto opened = open_or_make(*this, relative);
  if (!opened) return fail(std::move(opened).error());
  return {};
}

Result<UniqueFd> HostFs::open(const std::filesystem::path& relative, int flags, mode_t mode) const {
  assert(relative.is_relative());
  if (!stays_inside(relative.native())) return fail(error_from_errno(EXDEV, describe("open", relative)));
  if (!root_fd_.valid()) return fail(error_from_errno(root_errno_, "open host root " + root_.string()));
  UniqueFd fd(open_in_root(root_fd_.get(), relative.c_str(), flags | O_CLOEXEC, mode));
  if (!fd.valid()) return fail(error_from_errno(errno, describe("open", relative)));
  return fd;
}

Result<UniqueFd> HostFs::open_below_root_of(int pid, const std::filesystem::path& relative, int flags) const {
  const std::filesystem::path process = fmt::format("proc/{}/root", pid);
  const auto path = process / relative;
  if (!stays_inside(relative.native())) return fail(error_from_errno(EXDEV, describe("open", path)));
  // The link leads to a directory, not to a path, so it cannot be resolved inside this root.
  const UniqueFd root(::openat(root_fd_.get(), process.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  UniqueFd fd(root.valid() ? open_in_root(root.get(), relative.c_str(), flags | O_CLOEXEC, 0) : -1);
  if (!fd.valid()) return fail(error_from_errno(errno, describe("open", path)));
  return fd;
}

Result<std::string> HostFs::read_file(const std::filesystem::path& relative, Links links) const {
  auto fd = open(relative, O_RDONLY | O_NONBLOCK | (links == Links::refused ? O_NOFOLLOW : 0));
  if (!fd && links == Links::refused && fd.error().code == std::errc::too_many_symbolic_link_levels)
    return fail(Errc::malformed_host, describe("read", relative) + ": it is a symbolic link",
                "put the file itself there");
  if (!fd) return fail(std::move(fd).error());
  const auto status = file_status(fd->get());
  if (!status) return fail(error_from_errno(errno, describe("read", relative)));
  constexpr unsigned kMemory = 1;
  constexpr unsigned kNull = 3;
  // A masked systemd unit is a link to /dev/null and has no content.
  if (S_ISCHR(status->st_mode) && status->st_rdev == ::makedev(kMemory, kNull)) return std::string();
  if (!S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode))  // reading a directory fails with EISDIR
    return unfit({.code = make_error_code(Errc::malformed_host),
                  .message = describe("read", relative) + ": it is no regular file"});
  if (status->st_size > kLargestFile) return unfit(error_from_errno(EFBIG, describe("read", relative)));
  // procfs gives size 0 for each file; any other file may grow while it is read.
  const std::size_t most = status->st_size == 0 ? kMostRead : static_cast<std::size_t>(kLargestFile);
  auto content = read_to_end(
      fd->get(), [&] { return describe("read", relative); }, most);
  if (!content && content.error().code == std::errc::file_too_large) return unfit(std::move(content).error());
  return content;
}

Result<std::string> HostFs::read_attribute(const std::filesystem::path& relative) const {
  auto fd = open(relative, O_RDONLY);
  if (!fd) return fail(std::move(fd).error());
  auto content = read_to_end(fd->get(), [&] { return describe("read", relative); });
  if (content && content->ends_with('\n')) content->pop_back();
  return content;
}

Result<std::string> HostFs::link_target(const std::filesystem::path& relative) const {
  auto fd = open(relative, O_PATH | O_NOFOLLOW);
  if (!fd) return fail(std::move(fd).error());
  return read_link(fd->get(), "", [&] { return describe("read link", relative); });
}

Result<std::string> HostFs::link_name(const std::filesystem::path& relative) const {
  auto target = link_target(relative);
  if (!target) return target;
  const auto slash = target->find_last_of('/');
  return slash == std::string::npos ? *target : target->substr(slash + 1);
}

Result<std::vector<DirectoryEntry>> HostFs::entries(const std::filesystem::path& relative) const {
  auto fd = open(relative, O_RDONLY | O_DIRECTORY);
  if (!fd) return fail(std::move(fd).error());
  return read_entries(fd->get(), [&] { return describe("list", relative); });
}

Result<std::vector<std::string>> HostFs::list(const std::filesystem::path& relative) const {
  auto fd = open(relative, O_RDONLY | O_DIRECTORY);
  if (!fd) return fail(std::move(fd).error());
  return read_names(fd->get(), [&] { return describe("list", relative); });
}

// Makes no error text, since often nothing is there.
bool HostFs::exists(const char* relative) const {
  assert(*relative != '/');
  if (!stays_inside(relative) || !root_fd_.valid()) return false;
  return UniqueFd(open_in_root(root_fd_.get(), relative, O_PATH | O_CLOEXEC, 0)).valid();
}

Result<std::optional<OpenedDevice>> HostFs::opened_device(const std::filesystem::path& proc_entry) const {
  assert(proc_entry.is_relative());
  if (!stays_inside(proc_entry.native())) return fail(error_from_errno(EXDEV, describe("stat", proc_entry)));
  if (!root_fd_.valid()) return fail(error_from_errno(root_errno_, "open host root " + root_.string()));
  // The file may lie on a network file system whose server is gone, so only cached attributes are read.
  struct statx status {};
  if (::statx(root_fd_.get(), proc_entry.c_str(), AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE,
              &status) != 0) {
    return fail(error_from_errno(errno, describe("stat", proc_entry)));
  }
  const bool block = S_ISBLK(status.stx_mode);
  if (!block && !S_ISCHR(status.stx_mode)) return std::nullopt;
  return OpenedDevice{.number = {.major = status.stx_rdev_major, .minor = status.stx_rdev_minor},
                      .block = block};
}

Result<> HostFs::write_attribute(const std::filesystem::path& relative, std::string_view value) {
  auto fd = open(relative, O_WRONLY);
  if (!fd) return fail(std::move(fd).error());
  const ssize_t n = ::write(fd->get(), value.data(), value.size());
  if (n < 0) return fail(error_from_errno(errno, describe("write", relative)));
  if (static_cast<std::size_t>(n) != value.size())
    return fail(error_from_errno(EIO, describe("write in one piece", relative)));
  return {};
}

Result<> HostFs::write_file(const std::filesystem::path& relative, std::string_view content, mode_t mode) {
  assert(relative.is_relative());
  if (!stays_inside(relative.native())) return fail(error_from_errno(EXDEV, describe("write", relative)));
  const auto directory = open_or_make(*this, relative.parent_path());
  if (!directory) return fail(directory.error());
  const auto existing = open(relative, O_PATH);
  return write_atomically({.directory = directory->get(),
                           .name = relative.filename(),
                           .existing = existing ? existing->get() : -1,
                           .path = (root_ / relative).string()},
                          content, mode);
}

Result<> HostFs::remove_file(const std::filesystem::path& relative) {
  auto removed = unlink_in(*this, relative, 0);
  const bool is_missing = !removed && removed.error().code == std::errc::no_such_file_or_directory;
  return is_missing ? Result<>() : removed;
}

Result<> HostFs::remove_empty_folder(const std::filesystem::path& relative) {
  return unlink_in(*this, relative, AT_REMOVEDIR);
}

}  // namespace ferry
