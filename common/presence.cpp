// SPDX-License-Identifier: Apache-2.0
#include "common/presence.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <utility>

namespace ferry {
namespace {

Result<UniqueFd> open_for_lock(HostFs& host, const std::filesystem::path& file, mode_t mode) {
  if (auto made = host.make_directory(file.parent_path()); !made) return fail(std::move(made).error());
  return host.open(file, O_RDWR | O_CREAT, mode);
}

}  // namespace

Result<Presence> Presence::announce(HostFs& host, const std::filesystem::path& file) {
  auto fd = open_for_lock(host, file, 0644);
  if (!fd) return fail(std::move(fd).error());
  // Waits for is_present(), which holds the exclusive lock for a moment.
  while (::flock(fd->get(), LOCK_SH) != 0)
    if (errno != EINTR) return fail(error_from_errno(errno, "lock /" + file.string()));
  return Presence(std::move(*fd));
}

Result<bool> is_present(const HostFs& host, const std::filesystem::path& file) {
  auto fd = host.open(file, O_RDONLY | O_NONBLOCK);
  if (!fd && is_gone(fd.error())) return false;
  if (!fd) return fail(std::move(fd).error());
  if (::flock(fd->get(), LOCK_EX | LOCK_NB) == 0) return false;
  if (errno == EWOULDBLOCK) return true;
  return fail(error_from_errno(errno, "lock /" + file.string()));
}

Result<OnlyOne> OnlyOne::claim(HostFs& host, const std::filesystem::path& file) {
  auto opened = open(host, file);
  if (!opened) return opened;
  const auto taken = opened->take(file);
  if (!taken) return fail(Error(taken.error()));
  if (*taken) return opened;
  return fail(Errc::refused, "/" + file.string() + ": another process holds it");
}

Result<OnlyOne> OnlyOne::open(HostFs& host, const std::filesystem::path& file) {
  // Mode 0600: a process that may read the file may lock it, and would block the next process of this kind.
  auto fd = open_for_lock(host, file, 0600);
  if (!fd) return fail(std::move(fd).error());
  return OnlyOne(std::move(*fd));
}

Result<bool> OnlyOne::take(const std::filesystem::path& file) const {
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  return fail(error_from_errno(errno, "lock /" + file.string()));
}

Result<bool> OnlyOne::is_at(const HostFs& host, const std::filesystem::path& file) const {
  const auto there = host.open(file, O_PATH);
  if (!there && is_gone(there.error())) return false;
  if (!there) return fail(Error(there.error()));
  struct stat named {};
  struct stat held {};
  if (::fstat(there->get(), &named) != 0 || ::fstat(fd_.get(), &held) != 0)
    return fail(error_from_errno(errno, "look at /" + file.string()));
  return named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

}  // namespace ferry
