// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/driver_choice.h"

#include <algorithm>

#include <fmt/format.h>

#include "hostfs/check_reading.h"
#include "hostfs/kernel_facts.h"
#include "hostfs/stuck_writes.h"

namespace ferry::vfio {

bool VfioDriverTable::split(std::string_view pattern, Fields& out) {
  // The markers in the kernel's order. No field contains the "s" of "sv": fields are upper-case hex or "*".
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

void VfioDriverTable::add(std::string_view pattern, std::string_view module) {
  Fields fields;
  if (module.empty() || !split(pattern, fields)) return;
  Alias alias;
  alias.module = module;
  for (std::size_t i = 0; i < kFields; ++i) {
    alias.fields[i] = fields[i];
    if (fields[i] == "*") ++alias.wildcards;
  }
  aliases_.push_back(std::move(alias));
}

VfioDriverTable VfioDriverTable::parse(std::string_view modules_alias) {
  constexpr std::string_view kStart = "alias vfio_pci:";
  VfioDriverTable table;
  while (!modules_alias.empty()) {
    std::string_view line = cut(modules_alias, '\n');
    if (!line.starts_with(kStart)) continue;
    line.remove_prefix(kStart.size());
    const std::string_view pattern = cut(line, ' ');
    table.add(pattern, line);
  }
  return table;
}

void VfioDriverTable::add_builtin(std::string_view modinfo) {
  constexpr std::string_view kAlias = ".alias=vfio_pci:";
  while (!modinfo.empty()) {
    const std::string_view entry = cut(modinfo, '\0');
    const auto at = entry.find(kAlias);
    if (at != std::string_view::npos) add(entry.substr(at + kAlias.size()), entry.substr(0, at));
  }
}

VfioDriverTable VfioDriverTable::read(const HostFs& host) {
  const auto modules = std::filesystem::path("lib/modules") / kernel_release(host);
  const auto text = host.read_file(modules / "modules.alias");
  VfioDriverTable table = text ? parse(*text) : VfioDriverTable{};
  if (!text) {
    table.warning_ = fmt::format(
        "devices that a variant of vfio-pci is made for may get vfio-pci itself: which they are is not known "
        "({})",
        text.error().message);
  }
  table.add_builtin(host.read_file(modules / "modules.builtin.modinfo").value_or(""));
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
  Fields ids;
  if (modalias.starts_with(kPrefix) && split(modalias.substr(kPrefix.size()), ids)) {
    for (const Alias& alias : aliases_) {
      bool matches = true;
      for (std::size_t i = 0; i < kFields && matches; ++i)
        matches = alias.fields[i] == "*" || alias.fields[i] == ids[i];
      if (matches && (best == nullptr || alias.wildcards < best->wildcards)) best = &alias;
    }
  }
  const std::string module = best == nullptr ? "vfio_pci" : best->module;
  if (const auto known = loaded_.find(module); known != loaded_.end()) return {module, known->second};
  return {module, module == "vfio_pci" ? "vfio-pci" : module};
}

void read_overrides(const HostFs& host, HostWriter& reader, std::span<const PciAddress> functions,
                    Inventory& inventory, std::chrono::milliseconds deadline) {
  const auto stuck = stuck_writes(host);
  for (const PciAddress& address : functions) {
    const auto found = inventory.functions.find(address);
    if (found == inventory.functions.end()) continue;
    PciFunction& function = found->second;
    if (stuck) {
      const auto hangs =
          std::ranges::find_if(*stuck, [&](const StuckWrite& act) { return concerns(act, address.text()); });
      if (hangs != stuck->end()) {
        function.override_unread = true;
        if (is_read(*hangs) && !function.problem)
          function.problem =
              Error{.code = Errc::stuck,
                    .message = "an earlier act has not returned from the kernel: " + hangs->act,
                    .hint = kLockedHint};
        continue;
      }
    }
    // An unreadable record may be about this function.
    auto text = stuck ? reader.read(sysfs_path(address) / "driver_override", deadline)
                      : Result<std::string>(fail(stuck.error()));
    if (text) {
      if (*text != "(null)" && !text->empty()) function.driver_override = std::move(*text);
    } else if (!is_gone(text.error())) {
      function.override_unread = true;
      if (!function.problem) function.problem = std::move(text).error();
    }
  }
}

}  // namespace ferry::vfio
