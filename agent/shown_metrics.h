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

/// A metrics listener whose errors stop no other work. While one of its Secrets is missing, or its port is in
/// use, the error is logged once, and the start is tried again.
class ShownMetrics {
 public:
  /// Pause between tries: no event reports a free port.
  static constexpr std::chrono::seconds kBetweenTries{30};

  ShownMetrics(EventLoop& loop, MetricsListener::Settings settings, std::function<std::string()> metrics,
               std::chrono::milliseconds between_tries = kBetweenTries);
  ShownMetrics(const ShownMetrics&) = delete;
  ShownMetrics& operator=(const ShownMetrics&) = delete;
  ShownMetrics(ShownMetrics&&) = delete;
  ShownMetrics& operator=(ShownMetrics&&) = delete;
  ~ShownMetrics();

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
  std::string told_;
};

}  // namespace ferry
