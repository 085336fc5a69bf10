// SPDX-License-Identifier: Apache-2.0
// The output about Kata runtimes.
#pragma once

#include <string>
#include <vector>

#include "cli/output/shown.h"
#include "cli/session.h"
#include "kata-manager/controller/kata_install.h"
#include "kata-manager/kata/kata_setup.h"
#include "kata-manager/runtime/container_runtime.h"
#include "kata-manager/runtime/runtime_at_hand.h"

namespace ferry::cli {

Shown show(const Session& session, const kata::KataChange& report);

Shown show_status(const kata::RuntimeAtHand& runtime, const std::vector<kata::PlacedRuntime>& placed,
                  const Result<kata::RuntimeState>& state, const Result<std::vector<kata::RunningPod>>& pods,
                  const kata::ConfidentialMode& mode);

/// An error as one line of a list: "MESSAGE (HINT)".
std::string with_hint(const Error& error);

/// Differences between the host and a class file; none: empty.
std::vector<std::string> differences(const kata::KataSetup& setup, const kata::RuntimePlan& plan,
                                     const Result<kata::RuntimeState>& state);
/// `runs` false: the container runtime does not run and cannot be asked. That alone is no difference.
Shown show_differences(const std::vector<std::string>& differences, bool runs);

}  // namespace ferry::cli
