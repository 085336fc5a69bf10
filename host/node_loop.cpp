// SPDX-License-Identifier: Apache-2.0
#include "host/node_loop.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include <spdlog/spdlog.h>

#include "common/directory_watch.h"
#include "common/event_loop.h"
#include "common/pid_namespace.h"
#include "common/presence.h"
#include "vfio/uevents.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;
using Clock = NodeKeeper::Clock;

constexpr const char* kOnlyOne = "run/ferry/hostd.lock";
// Moving one group makes a handful of events.
constexpr auto kSettle = std::chrono::milliseconds(100);
// Between looks whether the other one has ended: a flock tells nobody.
constexpr auto kForTheOther = std::chrono::seconds(1);

/// Whether the numbers in the host's /proc are ours too. Of another namespace they would name others.
bool numbers_are_ours(const HostFs& host) {
  const auto own = own_pid_namespace(host);
  const auto shown = pid_namespace_of_proc(host);
  return own && shown && *own == *shown;
}

// glibc has no wrapper before 2.36. ABI: pidfd_open(2), Linux 5.3.
UniqueFd open_pidfd(int pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

KeeperSettings with_ends_told(KeeperSettings settings, bool told) {
  settings.ends_are_told = told;
  return settings;
}

class NodeLoop {
 public:
  NodeLoop(HostFs& host, UseProbe& uses, NodeKeeper::HostFor node_host, const NodeLoopOptions& options,
           EventLoop& loop)
      : host_(host),
        options_(options),
        loop_(loop),
        keeper_(host, uses, std::move(node_host), with_ends_told(options.files, numbers_are_ours(host))) {}

  Result<ExitStatus> run(const std::stop_token& stop) {
    if (auto made = make_folders(); !made) return fail(std::move(made).error());
    auto only = OnlyOne::claim(host_, kOnlyOne);
    if (!only && (options_.once || only.error().code != Errc::refused)) {
      if (only.error().code == Errc::refused) only.error().message = "another ferry hostd keeps this node";
      return fail(std::move(only).error());
    }
    if (only) {
      begin();
    } else {
      spdlog::warn("another ferry hostd keeps this node: waiting for its end");
      wait_for_the_other(only);
    }
    loop_.run(stop);
    if (auto ended = keeper_.end(); !ended) spdlog::error("{}", ended.error().message);
    return options_.once ? status_ : ExitStatus::done;
  }

 private:
  struct Folder {
    DirectoryWatch watch;
    std::set<std::string> names;  // that matter; empty: all
  };

  /// Those of the files that processes meet by, so that they can be watched before anybody has written one.
  Result<> make_folders() const {
    for (const fs::path& file : {options_.files.wanted_file, options_.files.state_file}) {
      std::error_code error;
      fs::create_directories(host_.root() / file.parent_path(), error);
      if (error)
        return fail(error_from_errno(error.value(), "make directory /" + file.parent_path().string()));
    }
    return {};
  }

  void wait_for_the_other(Result<OnlyOne>& only) {
    loop_.at(Clock::now() + kForTheOther, [this, &only] {
      only = OnlyOne::claim(host_, kOnlyOne);
      if (only) return begin();
      wait_for_the_other(only);
    });
  }

  void begin() {
    watch_folders();  // before the first look, so that nothing comes between
    if (auto uevents = Uevents::open()) {
      uevents_.emplace(std::move(*uevents));
      loop_.watch(uevents_->fd(), [this] {
        if (uevents_->take().ours) round_soon();
      });
    } else {
      spdlog::warn("{}", uevents.error().message);
    }
    loop_.post([this] { round(NodeKeeper::News::anything); });
  }

  void watch_folders() {
    const auto& files = options_.files;
    watch_folder(files.wanted_file.parent_path(), files.wanted_file.filename().string());
    watch_folder(files.offered_file.parent_path(), files.offered_file.filename().string());
  }

  void watch_folder(const fs::path& folder, const std::string& name) {
    if (const auto known = folders_.find(folder); known != folders_.end()) {
      if (name.empty()) known->second.names.clear();
      if (!known->second.names.empty()) known->second.names.insert(name);
      return;
    }
    // A person may well write into a file instead of replacing it.
    auto watch = DirectoryWatch::open(host_.root() / folder, DirectoryWatch::Contents::told);
    if (!watch) return spdlog::warn("{}", watch.error().message);
    const int fd = watch->fd();
    std::set<std::string> names;
    if (!name.empty()) names.insert(name);
    folders_.emplace(folder, Folder{.watch = std::move(*watch), .names = std::move(names)});
    loop_.watch(fd, [this, folder] { folder_told(folder); });
  }

  void folder_told(const fs::path& folder) {
    const auto found = folders_.find(folder);
    if (found == folders_.end()) return;
    const auto events = found->second.watch.read();
    const auto matters = [&](const DirectoryEvent& event) {
      return event.name.empty() || found->second.names.empty() || found->second.names.contains(event.name);
    };
    const bool news = std::ranges::any_of(events, matters);
    const auto gone = [](const DirectoryEvent& event) { return event.kind == DirectoryEvent::Kind::gone; };
    if (std::ranges::any_of(events, gone)) {
      loop_.forget(found->second.watch.fd());
      folders_.erase(found);
    }
    if (news) round_soon();
  }

  void round_soon() {
    if (std::exchange(soon_, true)) return;
    loop_.at(Clock::now() + kSettle, [this] { round(NodeKeeper::News::anything); });
  }

  void round(NodeKeeper::News news) {
    soon_ = false;
    loop_.cancel(again_);
    if (auto made = make_folders(); !made) spdlog::error("{}", made.error().message);
    watch_folders();
    const auto done = keeper_.round(Clock::now(), news);
    status_ = done.status;
    if (options_.once && done.phase != NodePhase::withdrawing) return loop_.finish();
    if (done.file) {
      const fs::path folder = done.file->relative_path().parent_path();
      const bool unwatched = !folders_.contains(folder);
      watch_folder(folder, "");
      // It may have been written after it was read and before it was watched.
      if (unwatched && folders_.contains(folder)) round_soon();
    }
    auto again = done.again;
    if (!watch_ends(done.processes) && !again) again = Clock::now() + NodeKeeper::kLongestPause;
    if (again) again_ = loop_.at(*again, [this] { round(NodeKeeper::News::anything); });
  }

  /// Whether each of them is told of when it ends.
  bool watch_ends(const std::set<int>& processes) {
    std::erase_if(ended_, [&](int pid) { return !processes.contains(pid); });
    std::erase_if(ends_, [&](const auto& end) {
      if (processes.contains(end.first)) return false;
      loop_.forget(end.second.get());
      return true;
    });
    if (!numbers_are_ours(host_)) return true;  // the keeper knows, and asks for a time
    for (const int pid : processes) {
      if (ends_.contains(pid) || ended_.contains(pid)) continue;
      UniqueFd fd = open_pidfd(pid);
      if (!fd.valid()) {
        if (errno == ESRCH) process_ended(pid);  // between the look and now
        continue;
      }
      loop_.watch(fd.get(), [this, pid] { process_ended(pid); });
      ends_.emplace(pid, std::move(fd));
    }
    return ends_.size() == processes.size();
  }

  /// Once for each: one that is said to hold something after its end is not waited for again.
  void process_ended(int pid) {
    ended_.insert(pid);
    if (const auto end = ends_.find(pid); end != ends_.end()) {
      loop_.forget(end->second.get());
      ends_.erase(end);
    }
    loop_.post([this] { round(NodeKeeper::News::process_ended); });
  }

  HostFs& host_;
  const NodeLoopOptions& options_;
  EventLoop& loop_;
  NodeKeeper keeper_;
  std::map<fs::path, Folder> folders_;
  std::optional<Uevents> uevents_;
  std::map<int, UniqueFd> ends_;
  std::set<int> ended_;  // of those that the last round named
  bool soon_ = false;
  EventLoop::Timer again_;
  ExitStatus status_ = ExitStatus::done;
};

}  // namespace

Result<ExitStatus> run_node_loop(HostFs& host, UseProbe& uses, NodeKeeper::HostFor node_host,
                                 const NodeLoopOptions& options, const std::stop_token& stop) {
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  return NodeLoop(host, uses, std::move(node_host), options, **loop).run(stop);
}

}  // namespace ferry
