// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/visible_text.h"

namespace ferry {

enum class OutputFormat { table, json, yaml };

/// By the words that `-o` takes.
const std::map<std::string, OutputFormat>& output_formats();

/// The form that is asked for: `document` as JSON or YAML, or `text`, which is for people. None of them gives
/// a terminal orders (visible_text.h).
std::string printed(OutputFormat format, const nlohmann::json& document, const std::string& text,
                    Colours colours = Colours::told);

}  // namespace ferry
