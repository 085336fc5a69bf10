// SPDX-License-Identifier: Apache-2.0
// Log set-up. Lines go to stderr, one for each message (visible_text.h); data goes to stdout and is none of
// the log's business.
//
// info = a change of state an operator wants to see in production, warn = abnormal but continuing, error =
// something asked for did not happen, debug = what was read. Each line names its address, group or UUID.
#pragma once

#include <string>

#include "common/result.h"

namespace ferry {

enum class LogFormat { text, json };

/// Sets the process-wide logger. `level` is one of trace, debug, info, warn, error, off; another is
/// Errc::usage.
Result<> set_up_log(const std::string& level, LogFormat format);

}  // namespace ferry
