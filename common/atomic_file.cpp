// SPDX-License-Identifier: Apache-2.0
#include "common/atomic_file.h"

#include <cerrno>
#include <fcntl.h>
#include <random>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/unique_fd.h"

namespace ferry {
namespace {

/// A new file beside the target, removed by the destructor unless the rename has taken it.
class Scratch {
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
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Scratch(Scratch&&) = delete;
  Scratch& operator=(Scratch&&) = delete;
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

Result<> write_everything(int fd, std::string_view content, const std::string& what) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(error_from_errno(errno, what));
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace

Result<> write_atomically(const AtomicTarget& target, std::string_view content, mode_t mode) {
  const std::string what = "write " + target.path;
  Scratch scratch(target.directory, target.name);
  const UniqueFd& fd = scratch.fd();
  if (!fd.valid()) return fail(error_from_errno(errno, what));
  if (auto written = write_everything(fd.get(), content, what); !written) return written;

  struct stat old {};
  if (target.existing >= 0 && ::fstat(target.existing, &old) == 0) {
    mode = old.st_mode & 07777;
    // An agent that is not root replaces files of an earlier one that was; the new file is the writer's.
    if (::fchown(fd.get(), old.st_uid, old.st_gid) != 0 && (errno != EPERM || ::geteuid() == 0))
      return fail(error_from_errno(errno, what + ": keep owner"));
  }
  if (::fchmod(fd.get(), mode) != 0 || ::fsync(fd.get()) != 0) return fail(error_from_errno(errno, what));
  if (::renameat(target.directory, scratch.name(), target.directory, target.name.c_str()) != 0)
    return fail(error_from_errno(errno, what));
  scratch.taken();
  if (::fsync(target.directory) != 0) return fail(error_from_errno(errno, what + ": sync directory"));
  return {};
}

}  // namespace ferry
