// SPDX-License-Identifier: Apache-2.0
// Set-up of the log. Each message is one line on stderr (visible_text.h); data goes to stdout, without the
// log.
//
// info: a change of state that an operator wants to see in production. warn: abnormal, but continuing. error:
// a requested action did not happen. debug: values that were read. Each line names its address, group or
// UUID.
#pragma once

#include <string>

#include "common/result.h"

namespace ferry {

enum class LogFormat { text, json };

/// Sets the process-wide logger. `level` is trace, debug, info, warn, error or off; another is Errc::usage.
Result<> set_up_log(const std::string& level, LogFormat format);

}  // namespace ferry
