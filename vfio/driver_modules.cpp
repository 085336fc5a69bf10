// SPDX-License-Identifier: Apache-2.0
#include "vfio/driver_modules.h"

#include <algorithm>
#include <fnmatch.h>

#include "common/check_reading.h"
#include "common/kernel_release.h"

namespace ferry {
namespace {

std::string modules_alias_of(const HostFs& host) {
  return host.read_file(std::filesystem::path("lib/modules") / kernel_release(host) / "modules.alias")
      .value_or("");
}

// The one of `candidates` that could bring `driver`; empty when that is not clear.
std::string module_to_load(const HostFs& host, const std::string& driver,
                           std::vector<std::string> candidates) {
  std::erase_if(candidates, [&](const std::string& module) {
    return host.exists(std::filesystem::path("sys/module") / module);
  });
  const std::string name = module_named_as(driver);
  if (std::ranges::find(candidates, name) != candidates.end()) return name;
  return candidates.size() == 1 ? candidates.front() : "";
}

}  // namespace

std::optional<std::string> module_of_driver(const HostFs& host, const std::string& driver) {
  auto name = host.link_name(std::filesystem::path("sys/bus/pci/drivers") / driver / "module");
  if (!name) return std::nullopt;
  return std::move(*name);
}

std::string module_named_as(std::string driver) {
  std::ranges::replace(driver, '-', '_');
  return driver;
}

std::vector<std::string> modules_for(std::string_view modalias, std::string_view modules_alias) {
  const std::string wanted(modalias);
  std::vector<std::string> modules;
  while (!modules_alias.empty()) {
    const auto words = words_of(cut(modules_alias, '\n'));
    if (words.size() != 3 || words[0] != "alias" || !words[1].starts_with("pci:")) continue;
    const std::string module(words[2]);
    if (::fnmatch(std::string(words[1]).c_str(), wanted.c_str(), 0) == 0 &&
        std::ranges::find(modules, module) == modules.end()) {
      modules.push_back(module);
    }
  }
  return modules;
}

void find_lost_modules(const HostFs& host, const Inventory& inventory, MoveRecord& record) {
  std::optional<std::string> aliases;  // a big file, read once something is lost
  for (auto& [address, prior] : record.members) {
    const PciFunction* function = inventory.find(address);
    if (function == nullptr || !prior.driver || prior.module || inventory.drivers.contains(*prior.driver))
      continue;
    if (!aliases) aliases = modules_alias_of(host);
    auto module = module_to_load(host, *prior.driver, modules_for(function->modalias, *aliases));
    if (!module.empty()) prior.module = std::move(module);
  }
}

}  // namespace ferry
