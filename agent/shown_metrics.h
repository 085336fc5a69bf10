// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "agent/metrics_listener.h"
#include "common/event_loop.h"
#include "common/result.h"

namespace ferry {

/// A metrics listener that keeps nobody from anything else: while a Secret of its is not there yet, or
/// another program has the port, that is said once, and tried again.
class ShownMetrics {
 public:
  /// Nobody tells when a port is free again.
  static constexpr std::chrono::seconds kBetweenTries{30};

  ShownMetrics(EventLoop& loop, MetricsListener::Settings settings, std::function<std::string()> metrics,
               std::chrono::milliseconds between_tries = kBetweenTries);
  ShownMetrics(const ShownMetrics&) = delete;
  ShownMetrics& operator=(const ShownMetrics&) = delete;
  ShownMetrics(ShownMetrics&&) = delete;
  ShownMetrics& operator=(ShownMetrics&&) = delete;
  ~ShownMetrics();

  /// Errc::usage, as MetricsListener::open(): no time would mend it.
  Result<> begin();

  /// nullptr: not yet.
  const MetricsListener* listener() const { return listener_.get(); }

 private:
  EventLoop& loop_;
  const MetricsListener::Settings settings_;
  const std::function<std::string()> metrics_;
  const std::chrono::milliseconds between_tries_;
  std::unique_ptr<MetricsListener> listener_;
  EventLoop::Timer again_;
  std::string told_;
};

}  // namespace ferry
