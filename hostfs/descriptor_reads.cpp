// SPDX-License-Identifier: Apache-2.0
#include "hostfs/descriptor_reads.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "common/file_status.h"

namespace ferry {
namespace {

/// Takes errno as an argument, since `what` may change it.
auto failed(int error, const What& what) {
  return fail(error_from_errno(error, what()));
}

bool is_directory(int directory, const dirent64& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  const auto status = entry_status(directory, entry.d_name);  // the file system does not give the type
  return status && S_ISDIR(status->st_mode);
}

/// `short_ends`: the first read that gives less than was asked for is the last.
Result<std::string> read_all(int fd, bool short_ends, const What& what, std::size_t most) {
  // sysfs reports a size of 4096 for every attribute, so the file is read to its end.
  std::string content;
  std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(errno, what);
    if (content.size() + static_cast<std::size_t>(n) > most) return failed(EFBIG, what);
    content.append(buffer.data(), static_cast<std::size_t>(n));
    if (n == 0 || (short_ends && static_cast<std::size_t>(n) < buffer.size())) return content;
  }
}

}  // namespace

Result<std::string> read_to_end(int fd, const What& what, std::size_t most) {
  return read_all(fd, false, what, most);
}

Result<std::string> read_attribute_text(int fd, const What& what) {
  return read_all(fd, true, what, kMostRead);
}

Result<std::string> read_link(int fd, const char* name, const What& what) {
  std::array<char, PATH_MAX> target;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by readlink
  const ssize_t n = ::readlinkat(fd, name, target.data(), target.size());
  if (n < 0) {
    // readlinkat(2) of an empty path fails with ENOENT if the descriptor is not a link; EINVAL is clearer.
    return failed(errno == ENOENT && *name == '\0' ? EINVAL : errno, what);
  }
  return std::string(target.data(), static_cast<std::size_t>(n));
}

Result<std::vector<DirectoryEntry>> read_entries(int fd, const What& what) {
  std::vector<DirectoryEntry> found;
  // readdir(3) would make three more system calls, and take as much memory from the heap.
  alignas(dirent64) std::array<std::byte, 32768> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (;;) {
    const ssize_t size = ::getdents64(fd, buffer.data(), buffer.size());
    if (size < 0) return failed(errno, what);
    if (size == 0) break;
    for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
      const auto* const entry = reinterpret_cast<const dirent64*>(buffer.data() + at);
      at += entry->d_reclen;
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      found.push_back({.name = std::string(name), .is_directory = is_directory(fd, *entry)});
    }
  }
  std::ranges::sort(found);
  return found;
}

Result<std::vector<std::string>> read_names(int fd, const What& what) {
  auto entries = read_entries(fd, what);
  if (!entries) return fail(std::move(entries).error());
  std::vector<std::string> names;
  names.reserve(entries->size());
  for (DirectoryEntry& entry : *entries) names.push_back(std::move(entry.name));
  return names;
}

bool is_same_file(int one, int other) {
  const auto a = file_status(one);
  const auto b = file_status(other);
  return a && b && a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

}  // namespace ferry
