// SPDX-License-Identifier: Apache-2.0
// What is printed about Kata runtimes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/session.h"
#include "cli/shown.h"
#include "kata-manager/container_runtime.h"
#include "kata-manager/kata_setup.h"
#include "kata-manager/runtime_at_hand.h"
#include "kata-manager/runtime_change.h"

namespace ferry {

/// What was planned, and what came of it.
struct KataReport {
  RuntimeAtHand runtime;
  KataSetup setup;
  RuntimePlan plan;
  std::string control = {};                   ///< "restart containerd.service"; empty: nobody does
  std::optional<ChangeOutcome> outcome = {};  ///< absent: a dry run
};
Shown show(const Session& session, const KataReport& report);

Shown show_status(const RuntimeAtHand& runtime, const std::vector<PlacedRuntime>& placed,
                  const Result<RuntimeState>& state, const Result<std::vector<RunningPod>>& pods);

/// What is missing to what a class file asks for; none: nothing.
std::vector<std::string> differences(const KataSetup& setup, const RuntimePlan& plan,
                                     const Result<RuntimeState>& state);
Shown show_differences(const std::vector<std::string>& differences);

}  // namespace ferry
