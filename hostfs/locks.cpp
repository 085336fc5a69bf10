// SPDX-License-Identifier: Apache-2.0
#include "hostfs/locks.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <spdlog/spdlog.h>

#include "hostfs/descriptor_reads.h"
#include "hostfs/host_writer.h"
#include "hostfs/in_flight_writes.h"

namespace ferry {
namespace {

Result<UniqueFd> open_for_lock(HostFs& host, const std::filesystem::path& file, mode_t mode) {
  if (auto made = host.make_directory(file.parent_path()); !made) return fail(std::move(made).error());
  return host.open(file, O_RDWR | O_CREAT, mode);
}

/// False: `file` is gone or another file, as after /run was cleared. The next process locks that one.
Result<bool> leads_to(const HostFs& host, const std::filesystem::path& file, const UniqueFd& fd) {
  const auto there = host.open(file, O_PATH);
  if (!there && is_gone(there.error())) return false;
  if (!there) return fail(there.error());
  return is_same_file(there->get(), fd.get());
}

}  // namespace

Result<LivenessLock> LivenessLock::announce(HostFs& host, const std::filesystem::path& file,
                                            std::chrono::milliseconds patience) {
  auto fd = open_for_lock(host, file, 0644);
  if (!fd) return fail(std::move(fd).error());
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (::flock(fd->get(), LOCK_SH | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail(error_from_errno(errno, "lock /" + file.string()));
    if (std::chrono::steady_clock::now() >= deadline)
      return fail(Errc::refused, "/" + file.string() + ": another process keeps it locked",
                  "`lslocks` shows the process; end it");
    // flock(2) has no deadline: it waits for ever or not at all.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return LivenessLock(std::move(*fd));
}

Result<bool> is_present(const HostFs& host, const std::filesystem::path& file) {
  auto fd = host.open(file, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);  // its folder may be a less trusted user's
  if (!fd && is_gone(fd.error())) return false;
  if (!fd) return fail(std::move(fd).error());
  if (::flock(fd->get(), LOCK_EX | LOCK_NB) == 0) return false;
  if (errno == EWOULDBLOCK) return true;
  return fail(error_from_errno(errno, "lock /" + file.string()));
}

Result<InstanceLock> InstanceLock::claim(HostFs& host, const std::filesystem::path& file) {
  auto opened = open(host, file);
  if (!opened) return opened;
  const auto taken = opened->take(file);
  if (!taken) return fail(taken.error());
  if (*taken) return opened;
  return fail(Errc::refused, "/" + file.string() + ": another process holds it");
}

Result<InstanceLock> InstanceLock::open(HostFs& host, const std::filesystem::path& file) {
  // Mode 0600: a process that may read the file may lock it, and would block the next process of this kind.
  auto fd = open_for_lock(host, file, 0600);
  if (!fd) return fail(std::move(fd).error());
  return InstanceLock(std::move(*fd));
}

Result<bool> InstanceLock::take(const std::filesystem::path& file) const {
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  return fail(error_from_errno(errno, "lock /" + file.string()));
}

Result<bool> InstanceLock::is_at(const HostFs& host, const std::filesystem::path& file) const {
  return leads_to(host, file, fd_);
}

namespace {

using Clock = EventLoop::Clock;

constexpr Clock::duration kFirstPause = std::chrono::milliseconds(1);
constexpr Clock::duration kLongestPause = std::chrono::seconds(1);

}  // namespace

InstanceLockQueue::InstanceLockQueue(EventLoop& loop, HostFs& host, std::filesystem::path file,
                                     std::function<void(InstanceLock)> ours)
    : loop_(loop), host_(host), file_(std::move(file)), ours_(std::move(ours)), pause_(kFirstPause) {
  try_in({});
}

InstanceLockQueue::~InstanceLockQueue() {
  if (watch_) loop_.forget(watch_->fd());
}

void InstanceLockQueue::watch() {
  auto opened = DirectoryWatch::open(host_, file_.parent_path(), DirectoryWatch::Contents::written);
  if (!opened) return;  // without events the lock is tried every second
  watch_.emplace(std::move(*opened));
  loop_.watch(watch_->fd(), [this] {
    const auto events = watch_->read();
    const auto gone = [](const DirectoryEvent& event) { return event.kind == DirectoryEvent::Kind::gone; };
    const auto ours = [this](const DirectoryEvent& event) {
      return event.name.empty() || event.name == file_.filename();
    };
    if (std::ranges::none_of(events, ours)) return;
    if (std::ranges::any_of(events, gone)) {
      loop_.forget(watch_->fd());
      watch_.reset();
    }
    pause_ = kFirstPause;
    try_now();
  });
}

void InstanceLockQueue::try_now() {
  timer_.cancel();
  const bool moved = candidate_ && !candidate_->is_at(host_, file_).value_or(true);
  if (moved && watch_) {  // the directory may have changed too; open files keep its events away
    loop_.forget(watch_->fd());
    watch_.reset();
  }
  if (!watch_) watch();  // before the try, so that no event is missed
  if (!candidate_ || moved) {
    auto opened = InstanceLock::open(host_, file_);
    candidate_.reset();
    if (opened) {
      candidate_.emplace(std::move(*opened));
    } else if (logged_.insert(opened.error().message).second) {
      spdlog::error("{}", opened.error().message);
    }
  }
  const auto taken = candidate_ ? candidate_->take(file_) : Result<bool>(false);
  if (!taken && logged_.insert(taken.error().message).second) spdlog::error("{}", taken.error().message);
  if (!taken.value_or(false)) {
    try_in(pause_);
    pause_ = std::min(2 * pause_, kLongestPause);
    return;
  }
  if (watch_) loop_.forget(watch_->fd());
  watch_.reset();
  const auto ours = ours_;  // ours() may destroy this
  ours(std::move(*candidate_));
}

void InstanceLockQueue::try_in(Clock::duration pause) {
  timer_.set(Clock::now() + pause, [this] { try_now(); });
}

namespace {

constexpr const char* kLock = "run/ferry/hostd/lock";

Result<UniqueFd> open_lock(HostFs& host) {
  const std::filesystem::path lock = kLock;
  if (auto made = host.make_directory(lock.parent_path()); !made) return fail(std::move(made).error());
  auto fd = host.open(lock, O_RDWR | O_CREAT, 0600);
  if (!fd) return fail(std::move(fd).error().during("take the node's lock"));
  return fd;
}

}  // namespace

Result<NodeLock> NodeLock::take(HostFs& host, std::chrono::milliseconds patience) {
  auto fd = open_lock(host);
  if (!fd) return fail(std::move(fd).error());

  // flock(2) has no deadline, and an alarm would be process-wide, so the lock is tried at short intervals.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (::flock(fd->get(), LOCK_EX | LOCK_NB) == 0) {
      const auto ours = leads_to(host, kLock, *fd);
      if (!ours) return fail(Error(ours.error()).during("take the node's lock"));
      if (*ours) break;
      fd = open_lock(host);
      if (!fd) return fail(std::move(fd).error());
      continue;
    }
    if (errno != EWOULDBLOCK) return fail(error_from_errno(errno, "lock /run/ferry/hostd/lock"));
    if (std::chrono::steady_clock::now() >= deadline) {
      const std::string user = host.read_attribute(kLock).value_or("");
      return fail(Errc::failed,
                  "another ferry is changing this host" + (user.empty() ? "" : " (process " + user + ")"),
                  "wait for it to end, then try again");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  // The number is for the message above only; the lock itself is the flock.
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd->get(), 0) != 0 || ::pwrite(fd->get(), pid.data(), pid.size(), 0) < 0)
    return fail(error_from_errno(errno, "write /run/ferry/hostd/lock"));
  // A longer act has a record by then, if its parent lived so long.
  if (auto done = wait_for_acts(host, kSlowWrite); !done) return fail(std::move(done).error());
  return NodeLock(std::move(*fd));
}

}  // namespace ferry
