// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/background_scan.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <fcntl.h>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/file_status.h"

namespace ferry::plugin {
namespace {

constexpr auto kPatience = std::chrono::seconds(2);
constexpr auto kAtTheEnd = std::chrono::seconds(1);

}  // namespace

/// The data of a scan, which may outlive the BackgroundScan.
struct BackgroundScan::Shared {
  Shared(const HostFs& whose, ResourceRules by, ReadVgpus read_vgpus)
      : host(whose.root()), rules(std::move(by)), scanner(host, rules, std::move(read_vgpus)) {}

  const HostFs host;
  const ResourceRules rules;
  Scanner scanner;  // used by one scan at a time

  std::mutex mutex;
  std::condition_variable changed;
  bool under_way = false;
  bool over = false;  // the result is no longer needed
  std::atomic<bool> doubted = false;
};

BackgroundScan::BackgroundScan(const HostFs& host, const ResourceRules& rules, ReadVgpus read_vgpus,
                               EventLoop& loop, Scanned scanned)
    : loop_(loop),
      scanned_(std::move(scanned)),
      shared_(std::make_shared<Shared>(host, rules, std::move(read_vgpus))) {}

BackgroundScan::~BackgroundScan() {
  loop_.cancel(patience_);
  std::unique_lock lock(shared_->mutex);
  shared_->over = true;
  shared_->changed.wait_for(lock, kAtTheEnd, [this] { return !shared_->under_way; });
}

void BackgroundScan::remember(std::span<const vfio::FatalErrorsOf> before) {
  for (const auto& one : before) shared_->scanner.remember(one);
}

void BackgroundScan::doubt() {
  shared_->doubted = true;
}

void BackgroundScan::begin() {
  if (under_way_) {
    once_more_ = true;
    return;
  }
  shared_->under_way = true;  // no other thread exists yet
  const auto scan = [this, shared = shared_] {
    if (shared->doubted.exchange(false)) shared->scanner.doubt();
    auto found = std::make_shared<Result<ResourceSet>>();
    try {
      *found = shared->scanner.scan();
    } catch (const std::exception& error) {  // out of memory, or an error of a library
      *found = fail(Errc::malformed_host, error.what());
    }
    const std::scoped_lock lock(shared->mutex);
    shared->under_way = false;
    shared->changed.notify_all();
    if (!shared->over) loop_.post([this, found] { ended(std::move(*found)); });
  };
  try {
    std::thread(scan).detach();
  } catch (const std::system_error& error) {  // no thread is available
    shared_->under_way = false;
    return scanned_(fail(error_from_errno(error.code().value(), "begin a scan of the host")));
  }
  under_way_ = true;
  patience_ = loop_.at(EventLoop::Clock::now() + kPatience, [this] {
    lasts_ = true;
    spdlog::warn(
        "the host does not answer a scan: a reset lasts, or a driver hangs; the lists stay as they are "
        "until it does");
  });
}

void BackgroundScan::ended(Result<ResourceSet> found) {
  under_way_ = false;
  loop_.cancel(patience_);
  if (std::exchange(lasts_, false)) spdlog::info("the host answers a scan again");
  const bool again = std::exchange(once_more_, false);
  scanned_(std::move(found));
  if (again) begin();
}

// udev sets the mode of a node a moment after the kernel has made the node, and a CDI file says the mode.
HostWatch::HostWatch(const HostFs& host, EventLoop& loop, bool modes, Events events)
    : host_(host),
      loop_(loop),
      contents_(modes ? DirectoryWatch::Contents::attributes : DirectoryWatch::Contents::names),
      events_(std::move(events)) {}

void HostWatch::begin() {
  if (auto uevents = vfio::Uevents::open()) {
    uevents_.emplace(std::move(*uevents));
    loop_.watch(uevents_->fd(), [this] {
      if (uevents_->take()) events_.changed();
    });
  } else {
    spdlog::warn("{}", uevents.error().message);
  }
  (void)watch_nodes();
}

bool HostWatch::watch_nodes() {
  bool anew = false;
  for (NodeFolder& folder : folders_) anew = watch_nodes(folder) || anew;
  return anew;
}

bool HostWatch::watch_nodes(NodeFolder& folder) {
  if (folder.watch) return false;
  auto watch = DirectoryWatch::open(host_.root() / folder.path, contents_);
  if (!watch) return false;
  folder.watch.emplace(std::move(*watch));
  loop_.watch(folder.watch->fd(), [this, &folder] {
    const auto events = folder.watch->read();
    // A loss is listed at once. Only gains wait for a scan.
    for (const DirectoryEvent& event : events)
      if (event.kind == DirectoryEvent::Kind::vanished)
        events_.node_gone(fmt::format("/{}/{}", folder.path, event.name));
    if (std::ranges::find(events, DirectoryEvent::Kind::gone, &DirectoryEvent::kind) != events.end()) {
      loop_.forget(folder.watch->fd());
      folder.watch.reset();
    }
    events_.changed();
  });
  return true;
}

void HostWatch::leave() {
  for (const NodeFolder& folder : folders_) {
    if (!folder.watch) continue;
    loop_.forget(folder.watch->fd());
    folder.watch->leave();
  }
}

bool nodes_folder_was_removed(const HostFs& host) {
  const auto folder = host.open("dev/vfio", O_PATH | O_DIRECTORY);
  const auto status = folder ? file_status(folder->get()) : std::nullopt;
  return status && status->st_nlink == 0;
}

}  // namespace ferry::plugin
