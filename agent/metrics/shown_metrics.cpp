// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/shown_metrics.h"

#include <utility>

#include <spdlog/spdlog.h>

namespace ferry::agent {

ShownMetrics::ShownMetrics(EventLoop& loop, MetricsListener::Settings settings,
                           std::function<std::string()> metrics, std::chrono::milliseconds between_tries)
    : loop_(loop),
      settings_(std::move(settings)),
      metrics_(std::move(metrics)),
      between_tries_(between_tries) {}

ShownMetrics::~ShownMetrics() {
  loop_.cancel(again_);
}

Result<> ShownMetrics::begin() {
  auto opened = MetricsListener::open(loop_, settings_, metrics_);
  if (opened) {
    listener_ = std::move(*opened);
    spdlog::info("metrics are shown on {}", settings_.address.text());
    return {};
  }
  if (opened.error().code == make_error_code(Errc::usage)) return fail(std::move(opened).error());
  if (std::exchange(told_, opened.error().message) != opened.error().message)
    spdlog::error("metrics are not shown, and that is tried again: {}", opened.error().message);
  again_ = loop_.at(EventLoop::Clock::now() + between_tries_, [this] { static_cast<void>(begin()); });
  return {};
}

}  // namespace ferry::agent
