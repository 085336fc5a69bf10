// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/exit_status.h"
#include "common/text/visible_text.h"

namespace ferry::cli {

enum class OutputFormat { table, wide, json, yaml };

/// True: text for people.
inline bool is_text(OutputFormat format) {
  return format == OutputFormat::table || format == OutputFormat::wide;
}

/// The formats by the words that `-o` takes.
const std::map<std::string, OutputFormat>& output_formats();

/// A verb's output in both forms, and its exit status.
struct VerbOutput {  // NOLINT(bugprone-exception-escape): JSON is moved, which throws nothing
  nlohmann::json document;
  std::string text;  ///< for people, whole lines
  ExitStatus status = ExitStatus::done;
  bool tinted = false;  ///< `text` has escapes of tinted() (text_output.h) alone, which disarms others
  std::vector<std::string> notes = {};  ///< of `kubectl ferry`, for stderr
};

/// Returns the form that `format` selects: `document` as JSON or YAML, or `text` for people. Control
/// sequences for a terminal are made harmless in each of them (visible_text.h).
std::string printed(OutputFormat format, const nlohmann::json& document, const std::string& text,
                    Colours colours = Colours::escaped);

}  // namespace ferry::cli
