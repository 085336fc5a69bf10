// SPDX-License-Identifier: Apache-2.0
// Answers a scrape with the node's last known state. Files are read when they change. Another thread reads
// sysfs every few seconds, so that a read that hangs delays no scrape: the last facts stay, with their time.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/change_history.h"
#include "agent/metric_families.h"
#include "common/event_loop.h"
#include "common/host_fs.h"
#include "kube/counted_transport.h"

namespace ferry {

/// For the loop's thread only.
class NodeMetrics {
 public:
  using Vmis = std::function<std::map<std::string, std::string>()>;
  using Pulls = std::function<std::optional<PullCounts>()>;

  /// Pause between two reads of sysfs: shorter than a scrape interval, and long beside the milliseconds that
  /// reading 16 GPUs takes.
  static constexpr std::chrono::seconds kBetweenLooks{10};

  /// `requests`, `vmis` and `pulls` return present values. The loop, the host and the objects behind these
  /// functions must outlive this object.
  NodeMetrics(EventLoop& loop, const HostFs& host, std::function<RequestCounts()> requests, Vmis vmis,
              Pulls pulls, std::chrono::milliseconds between_looks = kBetweenLooks);
  NodeMetrics(const NodeMetrics&) = delete;
  NodeMetrics& operator=(const NodeMetrics&) = delete;
  NodeMetrics(NodeMetrics&&) = delete;
  NodeMetrics& operator=(NodeMetrics&&) = delete;
  /// Abandons a read that hangs.
  ~NodeMetrics();

  /// Reads now, and periodically from then on.
  void begin();
  /// To be called when a file of run/ferry may have changed.
  void host_changed();

  std::string text() const;

 private:
  struct Mailbox;

  void look();
  void looked(std::vector<GpuFacts> facts);

  EventLoop& loop_;
  const HostFs& host_;
  const std::function<RequestCounts()> requests_;
  const Vmis vmis_;
  const Pulls pulls_;
  const std::chrono::milliseconds between_looks_;
  const std::shared_ptr<Mailbox> mailbox_;
  MetricsView view_;
  ChangeHistory history_;
  EventLoop::Timer timer_;
};

}  // namespace ferry
