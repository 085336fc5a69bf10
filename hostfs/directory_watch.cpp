// SPDX-License-Identifier: Apache-2.0
#include "hostfs/directory_watch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/file_status.h"

namespace ferry {
namespace {

constexpr std::uint32_t kAppeared = IN_CREATE | IN_MOVED_TO;
constexpr std::uint32_t kVanished = IN_DELETE | IN_MOVED_FROM;
constexpr std::uint32_t kGone = IN_DELETE_SELF | IN_MOVE_SELF;

DirectoryEvent::Kind kind_of(std::uint32_t mask) {
  if ((mask & IN_Q_OVERFLOW) != 0) return DirectoryEvent::Kind::lost;
  if ((mask & kAppeared) != 0) return DirectoryEvent::Kind::appeared;
  if ((mask & kVanished) != 0) return DirectoryEvent::Kind::vanished;
  if ((mask & IN_CLOSE_WRITE) != 0) return DirectoryEvent::Kind::written;
  if ((mask & IN_ATTRIB) != 0) return DirectoryEvent::Kind::changed;
  return DirectoryEvent::Kind::gone;  // kGone, IN_UNMOUNT, or IN_IGNORED, which follows each of them and
                                      // leave()
}

struct Inotify {
  UniqueFd fd;
  int watch = -1;
};

/// The error has a hint only if a limit of the kernel is reached.
Result<Inotify> watch_by_inotify(const char* path, std::uint32_t mask, const std::string& name) {
  const auto limit = [](const char* sysctl) {
    return fmt::format("another program may hold all of this user's: raise the sysctl {}", sysctl);
  };
  UniqueFd fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!fd.valid()) {
    Error error = error_from_errno(errno, "make an inotify watch");
    if (error.code == std::errc::too_many_files_open) error.hint = limit("fs.inotify.max_user_instances");
    return fail(std::move(error));
  }
  const int watch = ::inotify_add_watch(fd.get(), path, mask);
  if (watch < 0) {
    Error error = error_from_errno(errno, "watch " + name);
    if (error.code == std::errc::no_space_on_device) error.hint = limit("fs.inotify.max_user_watches");
    return fail(std::move(error));
  }
  return Inotify{.fd = std::move(fd), .watch = watch};
}

}  // namespace

Result<DirectoryWatch> DirectoryWatch::open(const std::filesystem::path& path, Contents contents,
                                            Pause rescan) {
  return open_named(path, path.string(), contents, rescan);
}

Result<DirectoryWatch> DirectoryWatch::open_named(const std::filesystem::path& path, const std::string& name,
                                                  Contents contents, Pause rescan) {
  std::uint32_t mask = kAppeared | kVanished | kGone | IN_ONLYDIR;
  if (contents == Contents::written) mask |= IN_CLOSE_WRITE;
  if (contents == Contents::attributes) mask |= IN_ATTRIB;
  auto inotify = watch_by_inotify(path.c_str(), mask, name);
  if (inotify) return DirectoryWatch(std::move(inotify->fd), inotify->watch);
  Error why = std::move(inotify).error();
  if (why.hint.empty()) return fail(std::move(why));

  UniqueFd directory(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  // EMFILE: this process has no descriptor left; the kernel's inotify limit is not the reason.
  if (!directory.valid())
    return fail(errno == EMFILE ? std::move(why) : error_from_errno(errno, "watch " + name));
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(rescan);
  const timespec each{.tv_sec = seconds.count(),
                      .tv_nsec = std::chrono::nanoseconds(rescan - seconds).count()};
  const itimerspec times{.it_interval = each, .it_value = each};
  if (!timer.valid() || ::timerfd_settime(timer.get(), 0, &times, nullptr) != 0) return fail(std::move(why));
  spdlog::warn("{}: {} is looked at every {} s instead; {}", why.message, name, seconds.count(), why.hint);
  DirectoryWatch watch(std::move(timer), -1);
  watch.directory_ = std::move(directory);
  watch.mask_ = mask;
  watch.name_ = name;
  return watch;
}

void DirectoryWatch::leave() const {
  if (directory_.valid()) return;
  ::inotify_rm_watch(fd_.get(), watch_);  // fails if the watch is gone already
}

std::vector<DirectoryEvent> DirectoryWatch::read_timer() const {
  std::uint64_t times = 0;
  if (::read(fd_.get(), &times, sizeof(times)) != sizeof(times)) return {};
  const auto status = file_status(directory_.get());
  if (status && status->st_nlink == 0) return {{.kind = DirectoryEvent::Kind::gone, .name = {}}};
  auto inotify = watch_by_inotify(fmt::format("/proc/self/fd/{}", directory_.get()).c_str(), mask_, name_);
  if (inotify && ::dup3(inotify->fd.get(), fd_.get(), O_CLOEXEC) >= 0) {
    watch_ = inotify->watch;
    directory_ = UniqueFd();
    spdlog::info("{} is watched by inotify again", name_);
  }
  return {{.kind = DirectoryEvent::Kind::lost, .name = {}}};
}

Result<DirectoryWatch> DirectoryWatch::open(const HostFs& host, const std::filesystem::path& path,
                                            Contents contents) {
  const auto directory = host.open(path, O_PATH | O_DIRECTORY);
  if (!directory) return fail(directory.error());
  return open_named("/proc/self/fd/" + std::to_string(directory->get()), "/" + path.string(), contents,
                    kRescan);
}

std::vector<DirectoryEvent> DirectoryWatch::read() const {
  if (directory_.valid()) return read_timer();
  std::vector<DirectoryEvent> events;
  alignas(inotify_event) std::array<std::byte, 4096> buffer{};
  while (true) {
    const ssize_t size = ::read(fd_.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return events;
    for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
      const auto* const event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += sizeof(inotify_event) + event->len;
      events.push_back({.kind = kind_of(event->mask), .name = event->len > 0 ? event->name : std::string()});
    }
  }
}

namespace fs = std::filesystem;

FolderWatch::FolderWatch(EventLoop& loop, EventLoop::Job changed, std::chrono::milliseconds try_again)
    : loop_(loop), changed_(std::move(changed)), try_again_(try_again) {}

FolderWatch::~FolderWatch() {
  for (const auto& [folder, timer] : again_) loop_.cancel(timer);
  for (const auto& [folder, watch] : watches_) loop_.forget(watch.fd());
}

Result<> FolderWatch::add(const fs::path& folder, const Make& make) {
  if (watches_.contains(folder)) return {};  // another file in the same folder
  if (make)
    if (auto made = make(); !made) return made;
  // Contents::written: people may write into a file instead of replacing it.
  auto opened = DirectoryWatch::open(folder, DirectoryWatch::Contents::written);
  if (!opened) return fail(std::move(opened).error());
  const int fd = opened->fd();
  watches_.insert_or_assign(folder, std::move(*opened));
  loop_.watch(fd, [this, folder, make] { read_events(folder, make); });
  return {};
}

void FolderWatch::read_events(const fs::path& folder, const Make& make) {
  const auto watch = watches_.find(folder);
  if (watch == watches_.end()) return;
  const auto events = watch->second.read();
  const bool gone = std::ranges::any_of(
      events, [](const DirectoryEvent& event) { return event.kind == DirectoryEvent::Kind::gone; });
  if (gone) {
    loop_.forget(watch->second.fd());
    watches_.erase(watch);
    add_again(folder, make);
  }
  changed_();
}

void FolderWatch::add_again(const fs::path& folder, const Make& make) {
  auto added = add(folder, make);
  if (added) return;
  spdlog::warn("{}", added.error().message);
  again_[folder] = loop_.at(EventLoop::Clock::now() + try_again_, [this, folder, make] {
    add_again(folder, make);
    changed_();  // writes may have been missed meanwhile
  });
}

}  // namespace ferry
