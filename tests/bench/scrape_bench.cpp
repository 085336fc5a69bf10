// SPDX-License-Identifier: Apache-2.0
// What a scrape of 16 GPUs with 32 vGPUs each costs, from what the agent knows to the text: against the bare
// text format (prometheus-cpp's own) of the same samples, made before. And the bound that a user has: 10 ms,
// of which the baseline is the larger part.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "agent/metrics/metric_families.h"
#include "tests/agent/sixteen_boards.h"
#include "tests/bench/pairs.h"

namespace ferry::test {
namespace {

constexpr std::size_t kMostBytes = 200U << 10U;
constexpr double kMostMilliseconds = 10;

void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

/// Of this process's processor: others may share the machine.
double milliseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

int run(int argc, char** argv) {
  const agent::MetricsSnapshot snapshot = sixteen_boards();
  const auto families = agent::metric_families(snapshot);
  const std::string text = agent::metrics_text(families);
  require(text.size() < kMostBytes, fmt::format("{} bytes are more than {}", text.size(), kMostBytes));
  double best = std::numeric_limits<double>::infinity();
  const int status = run_contest(
      {.name = "scrape of 16 GPUs with 32 vGPUs each",
       .baseline =
           fmt::format("prometheus-cpp's text format of the same samples, {} KiB", text.size() >> 10U),
       .ours =
           [&] {
             const double begin = milliseconds();
             require(agent::metrics_text(agent::metric_families(snapshot)).size() == text.size(),
                     "another text");
             best = std::min(best, milliseconds() - begin);
           },
       .theirs = [&] { require(agent::metrics_text(families).size() == text.size(), "another text"); },
       .bound = 3.0},
      argc, argv);
  fmt::print("  one scrape: {:.2f} ms of {:.0f}: {}\n", best, kMostMilliseconds,
             best > kMostMilliseconds ? "TOO SLOW" : "ok");
  return best > kMostMilliseconds ? EXIT_FAILURE : status;
}

}  // namespace
}  // namespace ferry::test

int main(int argc, char** argv) {
  return ferry::test::run_benchmark(argc, argv, ferry::test::run);
}
