// SPDX-License-Identifier: Apache-2.0
#include "cli/output/fetch_progress_lines.h"

#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace ferry::cli {
namespace {

constexpr std::chrono::seconds kTellAfter{2};

double mib(std::uint64_t bytes) {
  constexpr double kMib = 1024.0 * 1024.0;
  return static_cast<double>(bytes) / kMib;
}

}  // namespace

FetchProgressLines::FetchProgressLines(std::string name, std::function<Clock::time_point()> now)
    : name_(std::move(name)), now_(std::move(now)), told_(now_()) {}

std::optional<std::string> FetchProgressLines::line(const kata::FetchProgress& progress) {
  const auto now = now_();
  if (now - told_ < kTellAfter) return std::nullopt;
  told_ = now;
  return fmt::format("{}: {:.0f} of {:.0f} MiB\n", name_, mib(progress.done), mib(progress.total));
}

}  // namespace ferry::cli
