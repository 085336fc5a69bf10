// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "api/files.h"
#include "api/host_status.h"
#include "common/event_loop.h"
#include "common/pinned.h"
#include "hostfs/directory_watch.h"
#include "hostfs/host_fs.h"
#include "hostfs/locks.h"
#include "kubevirt-plugin/plugin.h"

namespace ferry::plugin {

/// The directory that hostd and all plugins share: the locks by which they see this process
/// (kPluginLiveness), and the file with hostd's orders (kStatusFile), which may be absent. Belongs to the
/// loop's thread.
class SharedDirectory : Pinned {
 public:
  struct Events {
    std::function<void()> claimed;    ///< no other plugin serves: this one serves from now on
    std::function<void()> changed;    ///< the file with the orders
    std::function<void()> restored;   ///< the directory was removed, and the locks are taken again
    std::function<void(Error)> lost;  ///< likewise, but another plugin serves now
  };

  /// All must outlive this object.
  SharedDirectory(HostFs& host, EventLoop& loop, const PluginOptions& options, Events events)
      : host_(host), loop_(loop), options_(options), events_(std::move(events)) {}

  /// If two plugins run, as in a rolling update, only one serves and writes, so that its answer to hostd is
  /// not taken for both.
  void claim() {
    show_liveness();
    if (claim_service()) return events_.claimed();
    spdlog::info("another ferry plugin serves this node: waiting for its end");
    lock_queue_.emplace(loop_, host_, service_lock(), [this](InstanceLock lock) {
      instance_lock_.emplace(std::move(lock));
      lock_queue_.reset();
      show_liveness();  // the file may have been replaced meanwhile
      events_.claimed();
    });
  }

  const api::PluginOrders& orders() const { return orders_; }

  /// An unreadable file leaves the orders as they were.
  void read_orders() {
    auto text = host_.read_file(api::kStatusFile);
    auto read = text ? api::read_plugin_orders(*text) : fail(std::move(text).error());
    if (read) {
      orders_ = std::move(*read);
    } else if (is_gone(read.error())) {
      orders_ = {};
    } else if (warned_.insert(read.error().message).second) {
      spdlog::warn("{}", read.error().message);
    }
  }

  /// Reports events from now on. False: the directory cannot be watched now.
  bool watch() {
    auto opened = DirectoryWatch::open(host_, folder());
    if (!opened) {
      if (warned_.insert(opened.error().message).second) spdlog::warn("{}", opened.error().message);
      return false;
    }
    watch_.emplace(std::move(*opened));
    loop_.watch(watch_->fd(), [this] { read_events(); });
    return true;
  }
  /// Ends the watch (DirectoryWatch::leave()).
  void leave() {
    if (!watch_) return;
    loop_.forget(watch_->fd());
    watch_->leave();
  }

 private:
  /// False: another plugin serves. If the lock cannot be read, this one serves, since no advertised.json can
  /// be written there either.
  bool claim_service() {
    auto claimed = InstanceLock::claim(host_, service_lock());
    if (claimed) {
      instance_lock_.emplace(std::move(*claimed));
    } else if (claimed.error().code == Errc::refused) {
      return false;
    } else {
      spdlog::error("{}", claimed.error().message);
    }
    return true;
  }

  static std::filesystem::path folder() { return std::filesystem::path(api::kStatusFile).parent_path(); }

  /// The lock that the writer of advertised.json holds.
  std::filesystem::path service_lock() const {
    return std::filesystem::path(options_.advertised_file).replace_extension("lock");
  }

  /// From now on hostd waits until devices are unavailable before it changes devices. Without the liveness
  /// lock it does not wait, unless another process holds that lock; it still checks which processes have the
  /// devices open. A plugin that cannot get the lock serves all the same, and tries again.
  void show_liveness(std::chrono::milliseconds patience = std::chrono::seconds(1)) {
    loop_.cancel(liveness_timer_);
    auto shown = LivenessLock::announce(host_, api::kPluginLiveness, patience);
    if (shown) {
      liveness_.emplace(std::move(*shown));
      return;
    }
    if (warned_.insert(shown.error().message).second) spdlog::error("{}", shown.error().text());
    liveness_timer_ =
        loop_.at(EventLoop::Clock::now() + options_.after_failure, [this] { show_liveness({}); });
  }

  void read_events() {
    using Kind = DirectoryEvent::Kind;
    // The directory's own removal raises no event while a lock in it, or below it, is open.
    const auto locks = std::filesystem::path(api::kPluginLiveness).lexically_relative(folder());
    bool changed = false;
    for (const DirectoryEvent& event : watch_->read()) {
      if (event.kind == Kind::gone || (event.kind == Kind::vanished && event.name == *locks.begin())) {
        loop_.forget(watch_->fd());
        return restore_in(std::chrono::milliseconds(50));  // after the removal
      }
      changed =
          changed || event.name.empty() || event.name == std::filesystem::path(api::kStatusFile).filename();
    }
    if (changed) events_.changed();
  }

  void restore_in(std::chrono::milliseconds pause) {
    loop_.at(EventLoop::Clock::now() + pause, [this] { restore(); });
  }

  /// The directory was removed, so other processes do not see the plugin or its lists.
  void restore() {
    watch_.reset();
    show_liveness();
    if (instance_lock_) {
      instance_lock_.reset();
      if (!claim_service()) {
        return events_.lost({.code = Errc::refused,
                             .message = "another ferry plugin has begun to serve this node",
                             .hint = "start one of them alone"});
      }
    }
    if (!watch()) restore_in(options_.after_failure);
    events_.restored();
  }

  HostFs& host_;
  EventLoop& loop_;
  const PluginOptions& options_;
  const Events events_;
  std::optional<LivenessLock> liveness_;
  EventLoop::Timer liveness_timer_;  // after a failure
  std::optional<InstanceLock> instance_lock_;
  std::optional<InstanceLockQueue> lock_queue_;
  std::optional<DirectoryWatch> watch_;
  api::PluginOrders orders_;
  std::set<std::string> warned_;
};

}  // namespace ferry::plugin
