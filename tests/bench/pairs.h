// SPDX-License-Identifier: Apache-2.0
// A benchmark here is a ratio: what we do against a bare loop that does no more than it must, on the same
// machine in the same moment.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace ferry::test {

struct Contest {
  std::string name;      ///< of what is measured: "scan of 512 functions"
  std::string baseline;  ///< what it is held against, in words
  std::function<void()> ours;
  std::function<void()> theirs;
  /// Of the last pass of either, where only a part of it counts and it measures that itself; empty: all of it
  /// counts.
  std::function<std::chrono::nanoseconds()> ours_took = {};
  std::function<std::chrono::nanoseconds()> theirs_took = {};
  double bound = 2.0;  ///< ours may take so many times as long
  /// Where the work is the kernel's and other processes': the time on the wall counts, not our processor's.
  bool waits = false;
  int passes = 8;                      ///< of each side, in one pair
  int pairs = 0;                       ///< 0: as run_contest() has it
  std::function<void()> between = {};  ///< after each pass, not counted: puts back what it did; may be empty
};

/// Runs five interleaved pairs (fifteen of what waits, with --tight), prints times and ratio of the best
/// pair, and the median, and returns main's exit status: 1 above the bound, or above three times the bound
/// unless argv says --tight (a shared machine is noisy).
int run_contest(const Contest& contest, int argc, char** argv);

/// What main() returns: `run`'s status, or a failure that is printed.
int run_benchmark(int argc, char** argv, int (*run)(int argc, char** argv));

}  // namespace ferry::test
