// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

/// What resources are called, where not as NVIDIA's plugins call them.
struct NameRules {
  /// Made of text and {name}, what it would be called otherwise; for whole GPUs also {vendor} and {device},
  /// four hex digits each.
  std::string functions = "{name}";
  std::string vgpus = "{name}";
  /// The name of a model ("10de:2330") or of a vGPU type ("NVIDIA A40-8Q"). Goes before the templates.
  std::map<std::string, std::string> aliases = {};

  bool operator==(const NameRules&) const = default;
};

/// `text` with each "{key}" of `values` replaced. What is in braces and no key stays.
std::string fill_template(std::string text, const std::map<std::string, std::string>& values);

/// What may stand in braces in NameRules' templates.
inline constexpr std::array<std::string_view, 3> kFunctionFields = {"name", "vendor", "device"};
inline constexpr std::array<std::string_view, 1> kVgpuFields = {"name"};

/// Errc::usage: it has a field in braces that is none of `fields`, or a brace alone.
Result<> check_template(std::string_view text, std::span<const std::string_view> fields);

/// "MODEL=NAME" of the command line. Errc::usage: there is no "=", or nothing on a side of it.
Result<std::pair<std::string, std::string>> parse_alias(std::string_view text);

}  // namespace ferry
