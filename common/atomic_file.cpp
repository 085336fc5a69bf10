// SPDX-License-Identifier: Apache-2.0
#include "common/atomic_file.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "common/unique_fd.h"

namespace ferry {
namespace {

/// Removes the file beside the target unless the rename has taken it.
class Scratch {
 public:
  explicit Scratch(std::string path) : path_(std::move(path)) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Scratch(Scratch&&) = delete;
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  char* data() { return path_.data(); }
  const char* c_str() const { return path_.c_str(); }
  void taken() { path_.clear(); }

 private:
  std::string path_;
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

Result<> write_atomically(const std::filesystem::path& path, std::string_view content, mode_t mode) {
  const std::string what = "write " + path.string();
  const auto directory = path.parent_path();
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return fail(error_from_errno(error.value(), "make directory " + directory.string()));

  Scratch scratch((directory / ("." + path.filename().string() + ".XXXXXX")).string());
  const UniqueFd fd(::mkostemp(scratch.data(), O_CLOEXEC));
  if (!fd.valid()) return fail(error_from_errno(errno, what));
  if (auto written = write_everything(fd.get(), content, what); !written) return written;

  struct stat old {};
  if (::stat(path.c_str(), &old) == 0) {
    mode = old.st_mode & 07777;
    if (::fchown(fd.get(), old.st_uid, old.st_gid) != 0)
      return fail(error_from_errno(errno, what + ": keep owner"));
  }
  if (::fchmod(fd.get(), mode) != 0 || ::fsync(fd.get()) != 0) return fail(error_from_errno(errno, what));
  if (::rename(scratch.c_str(), path.c_str()) != 0) return fail(error_from_errno(errno, what));
  scratch.taken();

  const UniqueFd parent(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent.valid() || ::fsync(parent.get()) != 0)
    return fail(error_from_errno(errno, what + ": sync directory"));
  return {};
}

}  // namespace ferry
