// SPDX-License-Identifier: Apache-2.0
#include "common/presence.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <utility>

namespace ferry {
namespace {

Result<UniqueFd> open_for_lock(HostFs& host, const std::filesystem::path& file) {
  std::error_code error;
  std::filesystem::create_directories(host.root() / file.parent_path(), error);
  if (error) return fail(error_from_errno(error.value(), "make directory /" + file.parent_path().string()));
  return host.open(file, O_RDWR | O_CREAT, 0644);
}

}  // namespace

Result<Presence> Presence::announce(HostFs& host, const std::filesystem::path& file) {
  auto fd = open_for_lock(host, file);
  if (!fd) return fail(std::move(fd).error());
  // Who asks has it exclusively, for a moment.
  while (::flock(fd->get(), LOCK_SH) != 0)
    if (errno != EINTR) return fail(error_from_errno(errno, "lock /" + file.string()));
  return Presence(std::move(*fd));
}

Result<bool> is_present(const HostFs& host, const std::filesystem::path& file) {
  auto fd = host.open(file, O_RDONLY);
  if (!fd && is_gone(fd.error())) return false;
  if (!fd) return fail(std::move(fd).error());
  if (::flock(fd->get(), LOCK_EX | LOCK_NB) == 0) return false;
  if (errno == EWOULDBLOCK) return true;
  return fail(error_from_errno(errno, "lock /" + file.string()));
}

Result<OnlyOne> OnlyOne::claim(HostFs& host, const std::filesystem::path& file) {
  auto fd = open_for_lock(host, file);
  if (!fd) return fail(std::move(fd).error());
  if (::flock(fd->get(), LOCK_EX | LOCK_NB) == 0) return OnlyOne(std::move(*fd));
  if (errno != EWOULDBLOCK) return fail(error_from_errno(errno, "lock /" + file.string()));
  return fail(Errc::refused, "/" + file.string() + ": another process holds it");
}

}  // namespace ferry
