// SPDX-License-Identifier: Apache-2.0
// What is printed about Kata runtimes.
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

/// An error in a line of a list: "what (what to do)".
std::string with_hint(const Error& error);

/// What is missing to what a class file asks for; none: nothing.
std::vector<std::string> differences(const KataSetup& setup, const RuntimePlan& plan,
                                     const Result<RuntimeState>& state);
/// Whether the container runtime runs: one that does not cannot be asked, and that is no difference.
Shown show_differences(const std::vector<std::string>& differences, bool runs);

}  // namespace ferry
