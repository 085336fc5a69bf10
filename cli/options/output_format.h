// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/text/visible_text.h"

namespace ferry::cli {

enum class OutputFormat { table, wide, json, yaml };

/// True: text for people.
inline bool is_text(OutputFormat format) {
  return format == OutputFormat::table || format == OutputFormat::wide;
}

/// The formats by the words that `-o` takes.
const std::map<std::string, OutputFormat>& output_formats();

/// Returns the form that `format` selects: `document` as JSON or YAML, or `text` for people. Control
/// sequences for a terminal are made harmless in each of them (visible_text.h).
std::string printed(OutputFormat format, const nlohmann::json& document, const std::string& text,
                    Colours colours = Colours::escaped);

}  // namespace ferry::cli
