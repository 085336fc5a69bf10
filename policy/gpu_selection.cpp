// SPDX-License-Identifier: Apache-2.0
#include "policy/gpu_selection.h"

#include <algorithm>
#include <fnmatch.h>
#include <strings.h>

namespace ferry::policy {
namespace {

/// The position after the bracket expression that begins at `open`; npos: it does not end.
std::size_t behind_brackets(std::string_view pattern, std::size_t open) {
  std::size_t at = open + 1;
  if (at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^')) ++at;
  if (at < pattern.size() && pattern[at] == ']') ++at;  // a first ] is a member
  while (at < pattern.size() && pattern[at] != ']') {
    // [[:digit:]]: the inner bracket ends only the class.
    const auto end = pattern.substr(at).starts_with("[:") ? pattern.find(":]", at) : std::string_view::npos;
    at = end == std::string_view::npos ? at + 1 : end + 2;
  }
  return at < pattern.size() ? at + 1 : std::string_view::npos;
}

template <typename Values, typename Test>
bool any_or_none(const Values& values, const Test& test) {
  return values.empty() || std::ranges::any_of(values, test);
}

}  // namespace

std::string short_model(const std::string& name) {
  const auto open = name.find('[');
  const auto close = name.find(']', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return name;
  return name.substr(open + 1, close - open - 1);
}

// A model's own name has brackets, which a glob reads as a set of letters: the literal name must match too.
bool fits_glob(const std::string& pattern, const std::string& text) {
  return (pattern.size() == text.size() && ::strcasecmp(pattern.c_str(), text.c_str()) == 0) ||
         ::fnmatch(pattern.c_str(), text.c_str(), FNM_CASEFOLD) == 0;
}

bool fits_model(const std::string& pattern, const std::string& name, const vfio::PciFunction& gpu) {
  return (!name.empty() && (fits_glob(pattern, name) || fits_glob(pattern, short_model(name)))) ||
         fits_glob(pattern, gpu.ids());
}

std::string glob_fault(std::string_view pattern) {
  for (std::size_t at = 0; at < pattern.size();) {
    if (pattern[at] == '\\') {
      if (at + 1 == pattern.size()) return "ends with a backslash";
      at += 2;
    } else if (pattern[at] == '[') {
      at = behind_brackets(pattern, at);
      if (at == std::string_view::npos) return "has a [ without its ]";
    } else {
      ++at;
    }
  }
  return {};
}

bool GpuSelection::matches(const vfio::PciFunction& function, const ModelNames& models_of) const {
  return any_or_none(addresses,
                     [&](const vfio::PciAddress& address) { return function.address == address; }) &&
         any_or_none(vendors, [&](std::uint16_t vendor) { return function.vendor == vendor; }) &&
         any_or_none(numa_nodes, [&](int node) { return function.numa_node == node; }) &&
         any_or_none(models, [&](const std::string& pattern) {
           return fits_model(pattern, models_of ? models_of(function) : std::string(), function);
         });
}

}  // namespace ferry::policy
