// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "cli/session.h"
#include "common/exit_status.h"

namespace ferry::cli {

/// A verb's output in both forms, and its exit status.
struct VerbOutput {  // NOLINT(bugprone-exception-escape): JSON is moved, which throws nothing
  nlohmann::json document;
  std::string text;  ///< for people, whole lines
  ExitStatus status = ExitStatus::done;
  bool tinted = false;  ///< `text` has escapes of tinted() (text_output.h) alone, which disarms others
};

/// The form that the session asks for.
std::string printed(const Session& session, const VerbOutput& shown);

/// Prints that form; returns the status.
ExitStatus print(const Session& session, const VerbOutput& shown);

}  // namespace ferry::cli
