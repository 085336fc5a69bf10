// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

/// Rules for resource names that differ from those of NVIDIA's plugins.
struct NameRules {
  /// Text with {name}, the usual name; for whole GPUs also {vendor} and {device}, four hex digits each.
  std::string functions = "{name}";
  std::string vgpus = "{name}";
  /// Names by model ("10de:2330") or vGPU type ("NVIDIA A40-8Q"). They have priority over the templates.
  std::map<std::string, std::string> aliases = {};

  bool operator==(const NameRules&) const = default;
};

/// `text` with each "{key}" of `values` replaced. Braces around any other word stay.
std::string fill_template(std::string text, const std::map<std::string, std::string>& values);

/// The fields that NameRules' templates may contain.
inline constexpr std::array<std::string_view, 3> kFunctionFields = {"name", "vendor", "device"};
inline constexpr std::array<std::string_view, 1> kVgpuFields = {"name"};

/// Errc::usage: the text has a field that is not in `fields`, or an unpaired brace.
Result<> check_template(std::string_view text, std::span<const std::string_view> fields);

/// "MODEL=NAME" of the command line. Errc::usage: "=" is missing, or one side of it is empty.
Result<std::pair<std::string, std::string>> parse_alias(std::string_view text);

}  // namespace ferry
