// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/driver_modules.h"

#include <algorithm>
#include <fnmatch.h>
#include <map>

#include "hostfs/check_reading.h"
#include "hostfs/kernel_facts.h"
#include "vfio/pci/kernel_options.h"

namespace ferry::vfio {
namespace {

// A driver's name in a module's spelling.
std::string module_named_as(std::string_view driver) {
  std::string module(driver);
  std::ranges::replace(module, '-', '_');
  return module;
}

// True if an alias pattern matches `module`. modprobe treats '-' and '_' in names alike.
bool stands_for(std::string_view pattern, const std::string& module) {
  return ::fnmatch(module_named_as(pattern).c_str(), module.c_str(), 0) == 0;
}

bool has_alias(std::string_view modules_alias, const std::string& module) {
  while (!modules_alias.empty()) {
    const auto words = words_of(cut(modules_alias, '\n'));
    if (words.size() == 3 && words[0] == "alias" && stands_for(words[1], module)) return true;
  }
  return false;
}

// True if certainly no load can bring `module`. A file that cannot be read may know the module.
bool cannot_load(const HostFs& host, const std::string& module) {
  const std::filesystem::path directory = std::filesystem::path("lib/modules") / kernel_release(host);
  // After an upgrade the running kernel's modules may be gone. Without lib/modules nothing is known.
  if (!host.exists("lib/modules")) return false;
  if (const auto names = host.list(directory); !names) return is_gone(names.error());
  const auto loadable = read_text(host, directory / "modules.dep", kListBytes);
  if (!loadable || loadable->empty() || path_of_module(*loadable, module)) return false;
  const auto builtin = read_text(host, directory / "modules.builtin", kListBytes);
  if (builtin ? path_of_module(*builtin, module).has_value() : !is_gone(builtin.error())) return false;
  const auto aliases = read_text(host, directory / "modules.alias", kListBytes);
  if (aliases ? has_alias(*aliases, module) : !is_gone(aliases.error())) return false;
  // modprobe may know `module` by an alias or a command: Debian's nvidia is a command that loads
  // nvidia-current.
  const ModprobeConfig config = read_modprobe_config(host);
  return config.troubles.empty() && std::ranges::none_of(config.lines, [&](const ModprobeLine& line) {
           return line.words.size() > 2 && (line.words[0] == "alias" || line.words[0] == "install") &&
                  stands_for(line.words[1], module);
         });
}

// The candidate that could bring `driver`; empty: not clear.
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
  return name ? std::optional(std::move(*name)) : std::nullopt;
}

std::optional<Error> no_host_driver(const PciFunction& function) {
  if (function.problem) return std::nullopt;
  if (function.driver == "pci-stub")
    return Error{.code = Errc::failed,
                 .message = "pci-stub holds it: neither the host nor a VM can use it now",
                 .hint =
                     "keep pci-stub off it (pci-stub.ids, driver_override), unbind it there, and write its "
                     "address to /sys/bus/pci/drivers_probe"};
  if (function.driver) return std::nullopt;
  Error none{.code = Errc::failed,
             .message = "no driver has taken it: neither the host nor a VM can use it now",
             .hint =
                 "install or load its driver, which then takes it; `dmesg` says why a loaded one does not; a "
                 "driver_override that names another driver is to be cleared first"};
  if (function.driver_override)
    none.hint = fmt::format(
        "the kernel binds only {0}, which its driver_override names: `echo > "
        "/sys/bus/pci/devices/{1}/driver_override`, then `echo {1} > "
        "/sys/bus/pci/drivers_probe`",
        *function.driver_override, function.address.text());
  return none;
}

std::vector<std::string> modules_for(std::string_view modalias, std::string_view modules_alias) {
  const std::string id(modalias);
  std::vector<std::string> modules;
  while (!modules_alias.empty()) {
    const auto words = words_of(cut(modules_alias, '\n'));
    if (words.size() != 3 || words[0] != "alias" || !words[1].starts_with("pci:")) continue;
    const std::string module(words[2]);
    if (::fnmatch(std::string(words[1]).c_str(), id.c_str(), 0) == 0 &&
        std::ranges::find(modules, module) == modules.end()) {
      modules.push_back(module);
    }
  }
  return modules;
}

std::optional<std::string> path_of_module(std::string_view list, std::string_view module) {
  const std::string name = module_named_as(module);
  while (!list.empty()) {
    std::string_view line = cut(list, '\n');
    const auto path = cut(line, ':');
    const auto file = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
    const auto end = file.find(".ko");
    if (end == std::string_view::npos || module_named_as(file.substr(0, end)) != name) continue;
    const auto suffix = file.substr(end);
    if (suffix == ".ko" || suffix.starts_with(".ko.")) return std::string(path);
  }
  return std::nullopt;
}

std::string module_for(const PriorState& prior) {
  return prior.module.value_or(module_named_as(prior.driver.value_or("")));
}

void find_lost_modules(const HostFs& host, const Inventory& inventory, UndoJournal& journal) {
  const auto file = std::filesystem::path("lib/modules") / kernel_release(host) / "modules.alias";
  std::optional<std::string> aliases;  // a big file, read once a driver is lost
  std::map<std::string, bool> nowhere;
  for (auto& [address, prior] : journal.members) {
    const PciFunction* function = inventory.find(address);
    if (function == nullptr || !prior.driver || inventory.drivers.contains(*prior.driver)) continue;
    if (!prior.module) {
      if (!aliases) aliases = host.read_file(file).value_or("");
      const auto candidates = modules_for(function->modalias, *aliases);
      auto module = module_to_load(host, *prior.driver, candidates);
      if (module.empty() && !candidates.empty()) continue;  // several modules are possible
      if (!module.empty()) prior.module = std::move(module);
    }
    const std::string module = module_for(prior);
    auto known = nowhere.find(module);
    if (known == nowhere.end()) known = nowhere.emplace(module, cannot_load(host, module)).first;
    if (known->second) journal.lost.insert(address);
  }
}

}  // namespace ferry::vfio
