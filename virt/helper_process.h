// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "common/result.h"

namespace ferry::virt {

struct HelperOutput {
  std::string out;
  std::string err;
  int exit_status = 0;  ///< 128 + the signal's number if a signal ended it
};

/// Effect of a Ctrl-C on the terminal on a helper.
enum class OnCtrlC {
  ends,     ///< the helper ends and cleans up after itself
  goes_on,  ///< none: the caller may need the answer to finish its work (FinishOnSignal)
};

/// Runs a program to its end, with an empty stdin, both outputs collected and the caller's environment. A
/// name without '/' is looked up in PATH. After the deadline the program is killed: Errc::unreachable. So it
/// must hold no lock or other state of Ferry's, and never write to the host, as only HostWriter does.
Result<HelperOutput> run_helper(const std::filesystem::path& program,
                                const std::vector<std::string>& arguments, std::chrono::milliseconds deadline,
                                OnCtrlC on_ctrl_c = OnCtrlC::ends);

}  // namespace ferry::virt
