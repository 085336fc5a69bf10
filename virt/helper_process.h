// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "common/result.h"

namespace ferry {

struct HelperOutput {
  std::string out;
  std::string err;
  int exit_status = 0;  ///< 128 + the signal's number if a signal ended it
};

/// What a Ctrl-C on our terminal does to a helper.
enum class OnCtrlC {
  ends,     ///< it ends, and cleans up after itself
  goes_on,  ///< nothing: we may be in the middle of what needs its answer (FinishOnSignal)
};

/// Runs a program that holds nothing of ours to its end: stdin empty, both outputs collected, our
/// environment. A name without '/' is looked for in PATH. Past the deadline it is killed: Errc::unreachable.
/// It must never be one that writes to the host (that is HostWriter's).
Result<HelperOutput> run_helper(const std::filesystem::path& program,
                                const std::vector<std::string>& arguments, std::chrono::milliseconds deadline,
                                OnCtrlC on_ctrl_c = OnCtrlC::ends);

}  // namespace ferry
