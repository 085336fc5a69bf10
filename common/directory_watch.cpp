// SPDX-License-Identifier: Apache-2.0
#include "common/directory_watch.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

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
  return DirectoryEvent::Kind::gone;  // kGone, IN_UNMOUNT, or the IN_IGNORED that follows each of them and
                                      // leave()
}

}  // namespace

Result<DirectoryWatch> DirectoryWatch::open(const std::filesystem::path& path, Contents contents) {
  UniqueFd fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!fd.valid()) {
    Error error = error_from_errno(errno, "make an inotify watch");
    if (error.code == std::errc::too_many_files_open)
      error.hint =
          "another program may hold all of this user's: raise the sysctl fs.inotify.max_user_instances";
    return fail(std::move(error));
  }
  const std::uint32_t more = contents == Contents::told ? IN_CLOSE_WRITE : 0U;
  const int watch =
      ::inotify_add_watch(fd.get(), path.c_str(), kAppeared | kVanished | kGone | more | IN_ONLYDIR);
  if (watch < 0) return fail(error_from_errno(errno, "watch " + path.string()));
  return DirectoryWatch(std::move(fd), watch);
}

void DirectoryWatch::leave() const {
  ::inotify_rm_watch(fd_.get(), watch_);  // one that is gone already is as good
}

Result<DirectoryWatch> DirectoryWatch::open(const HostFs& host, const std::filesystem::path& path,
                                            Contents contents) {
  const auto directory = host.open(path, O_PATH | O_DIRECTORY);
  if (!directory) return fail(Error(directory.error()));
  auto opened = open("/proc/self/fd/" + std::to_string(directory->get()), contents);
  if (!opened) return fail(std::move(opened).error().during("/" + path.string()));
  return opened;
}

std::vector<DirectoryEvent> DirectoryWatch::read() const {
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

}  // namespace ferry
