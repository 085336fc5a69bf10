// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "cli/session.h"
#include "common/exit_status.h"

namespace ferry {

/// What a verb has to say, in both forms, and how it ends.
struct Shown {  // NOLINT(bugprone-exception-escape): JSON is moved, which throws nothing
  nlohmann::json document;
  std::string text;  ///< for people, whole lines
  ExitStatus status = ExitStatus::done;
  bool tinted = false;  ///< `text` is of tinted() alone (canvas.h), which tells the colours of others
};

/// The form that is asked for.
std::string printed(const Session& session, const Shown& shown);

/// Prints the form that is asked for; gives the status.
ExitStatus print(const Session& session, const Shown& shown);

}  // namespace ferry
