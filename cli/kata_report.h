// SPDX-License-Identifier: Apache-2.0
// The output about Kata runtimes.
#pragma once

#include <string>
#include <vector>

#include "cli/session.h"
#include "cli/shown.h"
#include "kata-manager/container_runtime.h"
#include "kata-manager/kata_install.h"
#include "kata-manager/kata_setup.h"
#include "kata-manager/runtime_at_hand.h"

namespace ferry {

Shown show(const Session& session, const KataChange& report);

Shown show_status(const RuntimeAtHand& runtime, const std::vector<PlacedRuntime>& placed,
                  const Result<RuntimeState>& state, const Result<std::vector<RunningPod>>& pods,
                  const ConfidentialMode& mode);

/// An error as one line of a list: "MESSAGE (HINT)".
std::string with_hint(const Error& error);

/// Differences between the host and a class file; none: empty.
std::vector<std::string> differences(const KataSetup& setup, const RuntimePlan& plan,
                                     const Result<RuntimeState>& state);
/// `runs` false: the container runtime does not run and cannot be asked. That alone is no difference.
Shown show_differences(const std::vector<std::string>& differences, bool runs);

}  // namespace ferry
