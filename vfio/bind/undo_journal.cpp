// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/undo_journal.h"

#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/whole_json.h"
#include "common/version.h"
#include "hostfs/kernel_facts.h"
#include "vfio/bind/rebind_plan.h"

namespace ferry::vfio {
namespace {

using nlohmann::json;
constexpr const char* kDirectory = "run/ferry/hostd/moves";
constexpr int kVersionOfFormat = 1;

std::filesystem::path file_of(std::uint32_t group) {
  return std::filesystem::path(kDirectory) / (std::to_string(group) + ".json");
}

json optional_text(const std::optional<std::string>& value) {
  return value ? json(*value) : json(nullptr);
}

std::optional<std::string> text_or_null(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  return found->get<std::string>();
}

struct OneRecord {
  std::string boot;
  std::map<PciAddress, PriorState> members;
};

Result<OneRecord> parse(const std::string& text, const std::filesystem::path& path) {
  const auto broken = [&](const std::string& why) {
    return fail(Errc::malformed_host, fmt::format("/{}: {}", path.string(), why),
                "the file says which drivers to give back; mend it, or remove it to give them up");
  };
  try {
    const json record = parse_whole_json(text);
    if (record.at("version").get<int>() != kVersionOfFormat)
      return broken("written by another version of ferry");
    OneRecord out;
    out.boot = record.at("boot_id").get<std::string>();
    for (const auto& [key, value] : record.at("devices").items()) {
      auto address = PciAddress::parse(key);
      if (!address) return broken(address.error().message);
      out.members[*address] = {.ids = value.at("id").get<std::string>(),
                               .driver = text_or_null(value, "driver"),
                               .driver_override = text_or_null(value, "override"),
                               .role = value.value("role", ""),
                               .module = text_or_null(value, "module"),
                               .kernels_choice = value.value("kernels_choice", false)};
    }
    return out;
  } catch (const json::exception& error) {
    return broken(error.what());
  }
}

Result<> write(HostFs& host, std::uint32_t group, const std::map<PciAddress, PriorState>& members) {
  auto boot = boot_id(host);
  if (!boot)
    return fail(std::move(boot).error().during("record what group " + std::to_string(group) + " had"));
  json devices = json::object();
  for (const auto& [address, prior] : members) {
    devices[address.text()] = {{"id", prior.ids},
                               {"driver", optional_text(prior.driver)},
                               {"override", optional_text(prior.driver_override)},
                               {"group", group},
                               {"role", prior.role},
                               {"module", optional_text(prior.module)},
                               {"kernels_choice", prior.kernels_choice}};
  }
  const json record = {
      {"version", kVersionOfFormat}, {"ferry", kVersion}, {"boot_id", *boot}, {"devices", devices}};
  try {
    return host.write_file(file_of(group), record.dump(2) + "\n");
  } catch (const json::exception&) {
    // An override may be any bytes, JSON only text. An inexact record could not restore the override.
    return fail(Errc::malformed_host,
                fmt::format("record what group {} had: a driver_override there is no text in UTF-8", group),
                "clear it: echo > driver_override");
  }
}

/// The record of a group; without members if there is none, or it is of another boot.
Result<OneRecord> read_group(const HostFs& host, std::uint32_t group) {
  const auto path = file_of(group);
  const auto text = host.read_file(path);
  if (!text && is_gone(text.error())) return OneRecord{};
  if (!text) return fail(text.error());
  auto record = parse(*text, path);
  if (!record) return record;
  const auto boot = boot_id(host);
  if (!boot) return fail(Error(boot.error()).during("read /" + path.string()));
  if (record->boot != *boot) record->members.clear();
  return record;
}

Result<std::set<std::uint32_t>> recorded_groups(const HostFs& host) {
  std::set<std::uint32_t> groups;
  const auto names = host.list(kDirectory);
  if (!names && is_gone(names.error())) return groups;
  if (!names) return fail(names.error());
  for (const std::string& name : *names) {
    std::uint32_t group = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), group);
    if (error == std::errc() && std::string_view(end) == ".json") groups.insert(group);
  }
  return groups;
}

}  // namespace

std::set<PciAddress> UndoJournal::gone_along() const {
  std::set<PciAddress> out;
  for (const auto& [address, prior] : members)
    if (prior.role != "accelerator") out.insert(address);
  return out;
}

bool UndoJournal::has_bound(const PciAddress& address, std::string_view ids) const {
  const auto found = members.find(address);
  return found != members.end() && found->second.ids == ids && !found->second.kernels_choice;
}

bool UndoJournal::speaks_of(const PciFunction& function) const {
  return members.contains(function.address) ||
         (function.iommu_group && unreadable.contains(*function.iommu_group));
}

Result<UndoJournal> read_undo_journal(const HostFs& host) {
  UndoJournal all;
  auto groups = recorded_groups(host);
  if (!groups) return fail(std::move(groups).error());
  for (const std::uint32_t group : *groups) {
    auto record = read_group(host, group);
    if (!record) {
      all.notes.push_back(fmt::format("group {} keeps its drivers: {}", group, record.error().message));
      all.unreadable.emplace(group, std::move(record).error());
      continue;
    }
    if (record->members.empty() && host.exists(file_of(group))) {
      all.notes.push_back(fmt::format("/{} is of an earlier boot and void: the kernel has bound afresh",
                                      file_of(group).string()));
    }
    for (auto& [address, prior] : record->members) {
      if (!all.members.contains(address) ||
          host.link_name(sysfs_path(address) / "iommu_group").value_or("") == std::to_string(group))
        all.members.insert_or_assign(address, std::move(prior));
    }
  }
  return all;
}

Result<> write_undo_journal(HostFs& host, std::uint32_t group,
                            const std::map<PciAddress, PriorState>& members,
                            const std::set<PciAddress>& fresh) {
  auto known = read_group(host, group);
  if (!known) return fail(std::move(known).error());
  const auto before = known->members;
  for (const auto& [address, prior] : members) {
    const auto found = known->members.find(address);
    if (found != known->members.end()) {
      const PriorState& recorded = found->second;
      // It has its driver back, but not yet the earlier override, which names another driver.
      const bool lacks_override = recorded.ids == prior.ids && recorded.driver == prior.driver &&
                                  prior.driver_override == prior.driver && recorded.driver_override &&
                                  recorded.driver_override != recorded.driver;
      if (lacks_override) continue;
    }
    // Another card at the same address replaces the entry.
    if (found == known->members.end() || found->second.ids != prior.ids || fresh.contains(address)) {
      known->members.insert_or_assign(address, prior);
    } else if (prior.driver && !found->second.driver && !found->second.kernels_choice) {
      // A driver of the host took it after the record was written; only the override is Ferry's.
      found->second.driver = prior.driver;
      found->second.module = prior.module;
    }
  }
  if (known->members == before) return {};
  return write(host, group, known->members);
}

Result<> erase_from_undo_journal(HostFs& host, const std::vector<PciAddress>& addresses) {
  auto groups = recorded_groups(host);
  if (!groups) return fail(std::move(groups).error());
  for (const std::uint32_t group : *groups) {
    auto record = read_group(host, group);
    if (!record) continue;  // an unreadable record stays
    const std::size_t before = record->members.size();
    for (const PciAddress& address : addresses) record->members.erase(address);
    if (record->members.size() == before) continue;
    auto changed =
        record->members.empty() ? host.remove_file(file_of(group)) : write(host, group, record->members);
    if (!changed) return changed;
  }
  return {};
}

std::vector<PciAddress> unfinished(const Inventory& inventory, const AcceleratorRules& rules,
                                   const UndoJournal& journal) {
  std::set<PciAddress> reached;
  const auto reach = [&](const PciAddress& address) {
    for (const PciAddress& member : concerned(inventory, {address}, journal.gone_along()))
      reached.insert(member);
  };
  for (const auto& [address, function] : inventory.functions)
    if (rules.match_by_name(function) || is_accelerators_vf(inventory, rules, function)) reach(address);
  std::vector<PciAddress> out;
  for (const auto& [address, function] : inventory.functions) {
    if (reached.contains(address) || function.is_bridge() || !journal.speaks_of(function)) continue;
    const auto found = journal.members.find(address);
    const bool another_card = found != journal.members.end() && found->second.ids != function.ids();
    if (another_card) continue;
    out.push_back(address);
    reach(address);
  }
  return out;
}

}  // namespace ferry::vfio
