// SPDX-License-Identifier: Apache-2.0
// What a scrape is answered: the node as it was last seen. Files are read when they change, sysfs every few
// seconds by another thread, so that a read that hangs holds up no scrape; what was seen before stays then,
// with its time.
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

/// One thread, the loop's.
class NodeMetrics {
 public:
  using Vmis = std::function<std::map<std::string, std::string>()>;
  using Pulls = std::function<std::optional<PullCounts>()>;

  /// How long sysfs is left alone: shorter than scrapes are apart, and long beside the milliseconds that a
  /// look at 16 GPUs takes.
  static constexpr std::chrono::seconds kBetweenLooks{10};

  /// `requests`, `vmis` and `pulls` give what is so when they are asked. The loop and the host must outlive
  /// this; what they stand for, too.
  NodeMetrics(EventLoop& loop, const HostFs& host, std::function<RequestCounts()> requests, Vmis vmis,
              Pulls pulls, std::chrono::milliseconds between_looks = kBetweenLooks);
  NodeMetrics(const NodeMetrics&) = delete;
  NodeMetrics& operator=(const NodeMetrics&) = delete;
  NodeMetrics(NodeMetrics&&) = delete;
  NodeMetrics& operator=(NodeMetrics&&) = delete;
  /// A read that hangs is left behind.
  ~NodeMetrics();

  /// Looks from here on.
  void begin();
  /// To be called when a file of run/ferry may be another.
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
