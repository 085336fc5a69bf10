// SPDX-License-Identifier: Apache-2.0
// The output about Kata runtimes.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/output/document.h"
#include "cli/session.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/content_hash.h"
#include "kata-manager/controller/found_runtime.h"
#include "kata-manager/controller/kata_install.h"
#include "kata-manager/controller/kata_setup.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::cli {

/// Progress of a check of fetched files, as lines for people. A short wait prints nothing, and a long one few
/// lines.
class CheckProgressLines {
 public:
  using Clock = std::chrono::steady_clock;
  /// The wait begins now. `name`: the class's.
  explicit CheckProgressLines(std::string name, std::function<Clock::time_point()> now = Clock::now);
  /// "kata-gpu: 12 of 340 MiB\n"; absent: the last line or the start was less than two seconds ago.
  std::optional<std::string> line(const kata::CheckProgress& progress);

 private:
  std::string name_;
  std::function<Clock::time_point()> now_;
  Clock::time_point last_;
};

VerbOutput show(const Session& session, const kata::KataChange& report);

VerbOutput show_status(const kata::FoundRuntime& runtime,
                       const std::vector<kata::ConfiguredRuntime>& configured,
                       const Result<kata::RuntimeState>& state,
                       const Result<std::vector<kata::RunningPod>>& pods, const kata::ConfidentialMode& mode);

/// An error as one line of a list: "MESSAGE (HINT)".
std::string with_hint(const Error& error);

/// Differences between the host and a class file; none: empty.
std::vector<std::string> differences(const kata::KataSetup& setup, const kata::RuntimePlan& plan,
                                     const Result<kata::RuntimeState>& state);
/// `runs` false: the container runtime does not run and cannot be asked. That alone is no difference.
VerbOutput show_differences(const std::vector<std::string>& differences, bool runs);

}  // namespace ferry::cli
