// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/metrics/change_history.h"
#include "agent/metrics/metric_families.h"
#include "agent/metrics/metrics_listener.h"
#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kube/api_client.h"

namespace ferry::agent {

/// A metrics listener whose errors stop no other work. While one of its Secrets is missing, or its port is in
/// use, the error is logged once, and the start is tried again.
class MetricsServer : Pinned {
 public:
  /// Pause between tries: no event reports a free port.
  static constexpr std::chrono::seconds kBetweenTries{30};

  MetricsServer(EventLoop& loop, MetricsListener::Settings settings, std::function<std::string()> metrics,
                std::chrono::milliseconds between_tries = kBetweenTries);
  ~MetricsServer();

  /// Errc::usage, as from MetricsListener::open(): no retry could succeed.
  Result<> begin();

  /// Null: it does not listen yet.
  const MetricsListener* listener() const { return listener_.get(); }

 private:
  EventLoop& loop_;
  const MetricsListener::Settings settings_;
  const std::function<std::string()> metrics_;
  const std::chrono::milliseconds between_tries_;
  std::unique_ptr<MetricsListener> listener_;
  EventLoop::Timer again_;
  std::string logged_;
};

// Answers a scrape with the node's last known state. Files are read when they change. Another thread reads
// sysfs every few seconds, so that a read that hangs delays no scrape: the last facts stay, with their time.

/// Only the loop's thread may use it.
class NodeMetrics : Pinned {
 public:
  using Vmis = std::function<std::map<std::string, std::string>()>;
  using NodeLabels = std::function<std::map<std::string, std::string>()>;
  using Pulls = std::function<std::optional<PullCounts>()>;

  /// Pause between two reads of sysfs: shorter than a scrape interval, and long beside the milliseconds that
  /// reading 16 GPUs takes.
  static constexpr std::chrono::seconds kPollPeriod{10};

  /// `requests`, `vmis`, `labels` and `pulls` return present values. The loop, the host and the objects
  /// behind these functions must outlive this object.
  NodeMetrics(EventLoop& loop, const HostFs& host, std::function<kube::RequestCounts()> requests, Vmis vmis,
              NodeLabels labels, Pulls pulls, std::chrono::milliseconds poll_period = kPollPeriod);
  /// Abandons a read that hangs.
  ~NodeMetrics();

  /// Reads now, and periodically from then on.
  void begin();
  /// Call this when a file of run/ferry may have changed.
  void host_changed();

  std::string text() const;

 private:
  struct Mailbox;

  void look();
  void looked(std::vector<GpuFacts> facts);

  EventLoop& loop_;
  const HostFs& host_;
  const std::function<kube::RequestCounts()> requests_;
  const Vmis vmis_;
  const NodeLabels labels_;
  const Pulls pulls_;
  const std::chrono::milliseconds poll_period_;
  const std::shared_ptr<Mailbox> mailbox_;
  MetricsSnapshot snapshot_;
  ChangeHistory history_;
  EventLoop::Timer timer_;
};

}  // namespace ferry::agent
