// SPDX-License-Identifier: Apache-2.0
#include "common/node_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

namespace ferry {

Result<NodeLock> NodeLock::take(HostFs& host, std::chrono::milliseconds patience) {
  const std::filesystem::path lock = "run/ferry/lock";
  std::error_code error;
  std::filesystem::create_directories(host.root() / lock.parent_path(), error);
  if (error) return fail(error_from_errno(error.value(), "make directory /run/ferry"));
  auto fd = host.open(lock, O_RDWR | O_CREAT, 0644);
  if (!fd) return fail(std::move(fd).error().during("take the node's lock"));

  // flock has no deadline of its own, and an alarm would be process-wide: ask again at short intervals.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (::flock(fd->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail(error_from_errno(errno, "lock /run/ferry/lock"));
    if (std::chrono::steady_clock::now() >= deadline) {
      const std::string holder = host.read_attribute(lock).value_or("");
      return fail(Errc::failed,
                  "another ferry is changing this host" + (holder.empty() ? "" : " (process " + holder + ")"),
                  "wait for it to end, then try again");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  // For the message above only; the lock itself is the flock.
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd->get(), 0) != 0 || ::pwrite(fd->get(), pid.data(), pid.size(), 0) < 0) {
    return fail(error_from_errno(errno, "write /run/ferry/lock"));
  }
  return NodeLock(std::move(*fd));
}

}  // namespace ferry
