// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/pairs.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <limits>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace ferry::test {
namespace {

constexpr int kPairs = 5;
// Time on the wall is anybody's: more pairs, for one that nobody disturbs.
constexpr int kPairsOnTheWall = 15;

// The processor's time where neither side waits for anything: others may share this machine.
double milliseconds(const Contest& contest) {
  timespec now{};
  ::clock_gettime(contest.waits ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

double timed(const Contest& contest, const std::function<void()>& work,
             const std::function<std::chrono::nanoseconds()>& part) {
  const double begin = milliseconds(contest);
  work();
  const double whole = milliseconds(contest) - begin;
  const double took = part ? std::chrono::duration<double, std::milli>(part()).count() : whole;
  if (contest.between) contest.between();
  return took;
}

}  // namespace

int run_contest(const Contest& contest, int argc, char** argv) {
  const bool tight = argc > 1 && std::string_view(argv[1]) == "--tight";
  constexpr double kSlack = 3;
  const double bound = tight ? contest.bound : contest.bound * kSlack;

  const auto time_ours = [&] { return timed(contest, contest.ours, contest.ours_took); };
  const auto time_theirs = [&] { return timed(contest, contest.theirs, contest.theirs_took); };
  time_ours();
  time_theirs();
  double best = std::numeric_limits<double>::infinity();
  double best_ours = 0;
  double best_theirs = 0;
  std::vector<double> ratios;
  const int usual = contest.waits && tight ? kPairsOnTheWall : kPairs;
  const int pairs = contest.pairs > 0 ? contest.pairs : usual;
  for (int pair = 0; pair < pairs; ++pair) {
    double ours = 0;
    double theirs = 0;
    for (int pass = 0; pass < contest.passes; ++pass) {
      ours += time_ours();
      theirs += time_theirs();
    }
    ratios.push_back(ours / theirs);
    if (ours / theirs >= best) continue;
    best = ours / theirs;
    best_ours = ours / contest.passes;
    best_theirs = theirs / contest.passes;
  }
  const auto middle = ratios.begin() + pairs / 2;
  std::ranges::nth_element(ratios, middle);
  const bool good = best <= bound;
  fmt::print("{}: {:.2f} times {} ({:.2f} ms against {:.2f} ms; bound {:.1f}; median {:.2f}): {}\n",
             contest.name, best, contest.baseline, best_ours, best_theirs, bound, *middle,
             good ? "ok" : "TOO SLOW");
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int run_benchmark(int argc, char** argv, int (*run)(int argc, char** argv)) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", std::filesystem::path(argv[0]).filename().string(), error.what());
    return EXIT_FAILURE;
  }
}

}  // namespace ferry::test
