// SPDX-License-Identifier: Apache-2.0
#include "common/node_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "common/acts_under_way.h"
#include "common/host_writer.h"

namespace ferry {

namespace {

constexpr const char* kLock = "run/ferry/hostd/lock";

Result<UniqueFd> open_lock(HostFs& host) {
  const std::filesystem::path lock = kLock;
  if (auto made = host.make_directory(lock.parent_path()); !made) return fail(std::move(made).error());
  auto fd = host.open(lock, O_RDWR | O_CREAT, 0600);
  if (!fd) return fail(std::move(fd).error().during("take the node's lock"));
  return fd;
}

// If /run was cleared, the locked file has no name any more, and the next process locks another one.
Result<bool> is_still_there(const HostFs& host, const UniqueFd& fd) {
  const auto there = host.open(kLock, O_PATH);
  if (!there) {
    if (is_gone(there.error())) return false;
    return fail(Error(there.error()).during("take the node's lock"));
  }
  struct stat ours {};
  struct stat theirs {};
  if (::fstat(fd.get(), &ours) != 0 || ::fstat(there->get(), &theirs) != 0)
    return fail(error_from_errno(errno, "look at /run/ferry/hostd/lock"));
  return ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

}  // namespace

Result<NodeLock> NodeLock::take(HostFs& host, std::chrono::milliseconds patience) {
  auto fd = open_lock(host);
  if (!fd) return fail(std::move(fd).error());

  // flock(2) has no deadline, and an alarm would be process-wide, so the lock is tried at short intervals.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (::flock(fd->get(), LOCK_EX | LOCK_NB) == 0) {
      const auto ours = is_still_there(host, *fd);
      if (!ours) return fail(Error(ours.error()));
      if (*ours) break;
      fd = open_lock(host);
      if (!fd) return fail(std::move(fd).error());
      continue;
    }
    if (errno != EWOULDBLOCK) return fail(error_from_errno(errno, "lock /run/ferry/hostd/lock"));
    if (std::chrono::steady_clock::now() >= deadline) {
      const std::string holder = host.read_attribute(kLock).value_or("");
      return fail(Errc::failed,
                  "another ferry is changing this host" + (holder.empty() ? "" : " (process " + holder + ")"),
                  "wait for it to end, then try again");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  // The number is for the message above only; the lock itself is the flock.
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd->get(), 0) != 0 || ::pwrite(fd->get(), pid.data(), pid.size(), 0) < 0) {
    return fail(error_from_errno(errno, "write /run/ferry/hostd/lock"));
  }
  // A longer act has a record by then, if its parent lived so long.
  if (auto done = wait_for_acts(host, kSlowWrite); !done) return fail(std::move(done).error());
  return NodeLock(std::move(*fd));
}

}  // namespace ferry
