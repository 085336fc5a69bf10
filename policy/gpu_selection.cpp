// SPDX-License-Identifier: Apache-2.0
#include "policy/gpu_selection.h"

#include <algorithm>
#include <fnmatch.h>
#include <strings.h>

namespace ferry {
namespace {

// A model's own name has brackets, which a glob reads as a set of letters: the name itself must match too.
bool fits(const std::string& pattern, const std::string& text) {
  return (pattern.size() == text.size() && ::strcasecmp(pattern.c_str(), text.c_str()) == 0) ||
         ::fnmatch(pattern.c_str(), text.c_str(), FNM_CASEFOLD) == 0;
}

template <typename Values, typename Test>
bool any_or_none(const Values& values, const Test& test) {
  return values.empty() || std::ranges::any_of(values, test);
}

}  // namespace

bool fits_model(const std::string& pattern, const std::string& name, const PciFunction& gpu) {
  return (!name.empty() && fits(pattern, name)) || fits(pattern, gpu.ids());
}

bool GpuSelection::matches(const VgpuGpu& gpu, const ModelNames& models_of) const {
  const PciFunction& function = gpu.function;
  return any_or_none(addresses, [&](const PciAddress& address) { return function.address == address; }) &&
         any_or_none(vendors, [&](std::uint16_t vendor) { return function.vendor == vendor; }) &&
         any_or_none(numa_nodes, [&](int node) { return function.numa_node == node; }) &&
         any_or_none(models, [&](const std::string& pattern) {
           return fits_model(pattern, models_of ? models_of(function) : std::string(), function);
         });
}

}  // namespace ferry
