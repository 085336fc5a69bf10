// SPDX-License-Identifier: Apache-2.0
#include "vfio/driver_choice.h"

#include <sys/utsname.h>

namespace ferry {

bool VfioDriverTable::split(std::string_view pattern, Fields& out) {
  // The markers in the order in which the kernel prints them. "s" of "sv" cannot be met inside a field:
  // fields are upper-case hex or "*".
  constexpr std::array<std::string_view, kFields> kMarkers = {"v", "d", "sv", "sd", "bc", "sc", "i"};
  for (std::size_t i = 0; i < kFields; ++i) {
    if (!pattern.starts_with(kMarkers[i])) return false;
    pattern.remove_prefix(kMarkers[i].size());
    const std::size_t end = i + 1 < kFields ? pattern.find(kMarkers[i + 1]) : pattern.size();
    if (end == std::string_view::npos || end == 0) return false;
    out[i] = pattern.substr(0, end);
    pattern.remove_prefix(end);
  }
  return true;
}

VfioDriverTable VfioDriverTable::parse(std::string_view modules_alias) {
  constexpr std::string_view kStart = "alias vfio_pci:";
  VfioDriverTable table;
  while (!modules_alias.empty()) {
    const auto end = modules_alias.find('\n');
    std::string_view line = modules_alias.substr(0, end);
    modules_alias.remove_prefix(end == std::string_view::npos ? modules_alias.size() : end + 1);
    if (!line.starts_with(kStart)) continue;
    line.remove_prefix(kStart.size());
    const auto space = line.find(' ');
    Fields fields;
    if (space == std::string_view::npos || space + 1 == line.size() || !split(line.substr(0, space), fields))
      continue;
    Alias alias;
    alias.module = line.substr(space + 1);
    for (std::size_t i = 0; i < kFields; ++i) {
      alias.fields[i] = fields[i];
      if (fields[i] == "*") ++alias.wildcards;
    }
    table.aliases_.push_back(std::move(alias));
  }
  return table;
}

VfioDriverTable VfioDriverTable::read(const HostFs& host) {
  utsname system{};
  if (::uname(&system) != 0) return {};
  const auto text = host.read_file(std::filesystem::path("lib/modules") / system.release / "modules.alias");
  VfioDriverTable table = text ? parse(*text) : VfioDriverTable{};
  const auto learn = [&](const std::string& module) {
    constexpr std::string_view kBus = "pci:";
    for (const std::string& name : host.list(std::filesystem::path("sys/module") / module / "drivers")
                                       .value_or(std::vector<std::string>{})) {
      if (name.starts_with(kBus)) table.loaded_.emplace(module, name.substr(kBus.size()));
    }
  };
  learn("vfio_pci");
  for (const Alias& alias : table.aliases_) learn(alias.module);
  return table;
}

VfioDriver VfioDriverTable::choose(std::string_view modalias) const {
  constexpr std::string_view kPrefix = "pci:";
  const Alias* best = nullptr;
  Fields wanted;
  if (modalias.starts_with(kPrefix) && split(modalias.substr(kPrefix.size()), wanted)) {
    for (const Alias& alias : aliases_) {
      bool matches = true;
      for (std::size_t i = 0; i < kFields && matches; ++i) {
        matches = alias.fields[i] == "*" || alias.fields[i] == wanted[i];
      }
      if (matches && (best == nullptr || alias.wildcards < best->wildcards)) best = &alias;
    }
  }
  const std::string module = best == nullptr ? "vfio_pci" : best->module;
  if (const auto known = loaded_.find(module); known != loaded_.end()) return {module, known->second};
  return {module, module == "vfio_pci" ? "vfio-pci" : module};
}

}  // namespace ferry
