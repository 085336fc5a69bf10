// SPDX-License-Identifier: Apache-2.0
#include "cli/options/selection.h"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "common/text/text.h"
#include "policy/accelerators.h"
#include "policy/gpu_selection.h"
#include "vfio/bind/undo_journal.h"
#include "vfio/judgement/judge.h"
#include "vfio/judgement/unit_members.h"

namespace ferry::cli {
namespace {

// Parses exactly `digits` hex digits, with or without "0x".
std::optional<std::uint32_t> hex(std::string_view text, std::size_t digits) {
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  return text.size() == digits ? whole_number(text, 16) : std::nullopt;
}

template <typename Named>
std::vector<std::string> names_of(std::span<const Named> table) {
  std::vector<std::string> out;
  for (const Named& entry : table) out.emplace_back(entry.name);
  return out;
}

std::optional<std::uint16_t> desired_vendor(const std::string& text) {
  for (const policy::NamedVendor& named : policy::named_vendors()) {
    if (lower(named.name) == lower(text)) return named.id;
  }
  if (const auto id = hex(text, 4)) return static_cast<std::uint16_t>(*id);
  return std::nullopt;
}

struct DesiredClass {
  std::uint32_t code = 0;       ///< 24 bits
  bool with_interface = false;  ///< the value has a programming interface, which must match
  vfio::PciClass pci_class() const { return static_cast<vfio::PciClass>(code >> 8U); }
  bool matches(const vfio::PciFunction& function) const {
    return with_interface ? function.class_code == code : function.pci_class() == pci_class();
  }
};

std::optional<DesiredClass> desired_class(const std::string& text) {
  for (const policy::NamedClass& named : policy::named_classes()) {
    if (lower(named.name) == lower(text)) {
      return DesiredClass{.code = static_cast<std::uint32_t>(named.pci_class) << 8U, .with_interface = false};
    }
  }
  if (const auto code = hex(text, 4)) return DesiredClass{.code = *code << 8U, .with_interface = false};
  if (const auto code = hex(text, 6)) return DesiredClass{.code = *code, .with_interface = true};
  return std::nullopt;
}

/// The filter options, parsed.
struct Filter {
  policy::GpuSelection selection;     ///< without addresses
  std::vector<DesiredClass> classes;  ///< empty: any

  bool matches(const vfio::PciFunction& function, const policy::ModelNames& models) const {
    return selection.matches(function, models) &&
           (classes.empty() || std::ranges::any_of(classes, [&](const DesiredClass& desired) {
              return desired.matches(function);
            }));
  }
};

Result<Filter> parse(const FilterOptions& options) {
  Filter out;
  for (const std::string& text : options.vendors) {
    const auto id = desired_vendor(text);
    const auto known = names_of(policy::named_vendors());
    if (!id)
      return fail(Errc::usage, fmt::format("--vendor: '{}' is no vendor{}", text, did_you_mean(text, known)),
                  fmt::format("a vendor is four hex digits, as in --vendor 10de, or a name: {}",
                              fmt::join(known, ", ")));
    out.selection.vendors.push_back(*id);
  }
  for (const std::string& text : options.classes) {
    const auto desired = desired_class(text);
    const auto known = names_of(policy::named_classes());
    if (!desired)
      return fail(Errc::usage, fmt::format("--class: '{}' is no class{}", text, did_you_mean(text, known)),
                  fmt::format("a class is four or six hex digits, as in --class 0302, or a word: {}",
                              fmt::join(known, ", ")));
    out.classes.push_back(*desired);
  }
  for (const std::string& pattern : options.models) {
    if (const std::string fault = policy::glob_fault(pattern); !fault.empty())
      return fail(Errc::usage, fmt::format("--model: '{}' {}", pattern, fault),
                  "a glob has * for anything, ? for one character and [...] for one of several");
    if (pattern.empty())
      return fail(Errc::usage, "--model: '' is no model",
                  "a model is a glob on what `ferry status` shows, as in --model '*H100*', or on the IDs, as "
                  "in --model 10de:2330");
    out.selection.models.push_back(pattern);
  }
  for (const std::string& text : options.numa_nodes) {
    const auto node = whole_number<int>(text);
    if (!node || *node < 0)
      return fail(Errc::usage, fmt::format("--numa: '{}' is no NUMA node", text),
                  "a NUMA node is a number from 0, as in --numa 1");
    out.selection.numa_nodes.push_back(*node);
  }
  return out;
}

/// The options that have values, each with its values: "--vendor", "vendor", "10de".
struct GivenFilter {
  const char* option = nullptr;
  const char* what = nullptr;
  std::vector<std::string> values;
};
std::vector<GivenFilter> given_filters(const FilterOptions& options) {
  std::vector<GivenFilter> out = {{"--vendor", "vendor", options.vendors},
                                  {"--class", "class", options.classes},
                                  {"--model", "model", options.models},
                                  {"--numa", "NUMA node", options.numa_nodes}};
  std::erase_if(out, [](const GivenFilter& one) { return one.values.empty(); });
  return out;
}

/// The values that a filter can name, as "vendor 10de (nvidia), class 0302 (3d), model TU104GL [Tesla T4]".
std::string filterable(const vfio::PciFunction& function, const std::string& model) {
  std::string out = fmt::format("vendor {:04x}", function.vendor);
  for (const policy::NamedVendor& named : policy::named_vendors())
    if (named.id == function.vendor) out += fmt::format(" ({})", named.name);
  out += fmt::format(", class {:04x}", function.class_code >> 8U);
  for (const policy::NamedClass& named : policy::named_classes())
    if (named.pci_class == function.pci_class()) out += fmt::format(" ({})", named.name);
  return out + fmt::format(", model {}, NUMA node {}", model,
                           function.numa_node ? std::to_string(*function.numa_node) : "unknown");
}

/// The accelerators under `rules` that match the options, in order of address. Errc::not_found: none does;
/// the hint lists the values of this host. Without options it returns all of them and does not fail, nor on
/// a host without any.
Result<std::vector<vfio::PciAddress>> choose(const FilterOptions& options, const vfio::Inventory& inventory,
                                             const vfio::AcceleratorRules& rules,
                                             plugin::DeviceNames& names) {
  const auto filter = parse(options);
  if (!filter) return fail(filter.error());
  const policy::ModelNames model_of = [&names](const vfio::PciFunction& function) {
    return names.find(function.vendor, function.device).value_or(function.ids());
  };
  std::vector<vfio::PciAddress> out;
  std::set<std::string> there;
  for (const auto& [address, function] : inventory.functions) {
    if (!rules.match(function)) continue;
    there.insert(filterable(function, model_of(function)));
    if (filter->matches(function, model_of)) out.push_back(address);
  }
  const auto given = given_filters(options);
  if (!out.empty() || given.empty()) return out;

  if (there.empty()) {
    if (const vfio::PciFunction* other = gpu_of_another_vendor(inventory, rules)) {
      return fail(
          Errc::not_found, fmt::format("there is no accelerator of {} on this host", rules.whose),
          fmt::format("{} ({}, {}) counts where it or its vendor is named: --device {}, or --vendor {:04x}",
                      other->address.text(), vfio::kind_of(*other), other->ids(), other->address.text(),
                      other->vendor));
    }
    return out;
  }
  std::vector<std::string> desired;
  for (const GivenFilter& one : given)
    desired.push_back(fmt::format("{} '{}'", one.what, fmt::join(one.values, "' or '")));
  return fail(Errc::not_found,
              fmt::format("no accelerator on this host is of {}", fmt::join(desired, " and ")),
              fmt::format("those here are of {}", fmt::join(there, "; or of ")));
}

std::vector<vfio::PciAddress> accelerators(const vfio::Inventory& inventory,
                                           const vfio::AcceleratorRules& rules) {
  std::vector<vfio::PciAddress> out;
  for (const auto& [address, function] : inventory.functions) {
    if (rules.match(function)) out.push_back(address);
  }
  return out;
}

/// `sensible`: the addresses to suggest. Any address of a host is similar to any other.
Result<vfio::PciAddress> existing(const std::string& text, const vfio::Inventory& inventory,
                                  const std::vector<vfio::PciAddress>& sensible) {
  auto address = vfio::PciAddress::parse(text);
  if (!address) return address;
  if (inventory.find(*address) != nullptr) return address;
  std::vector<std::string> known;
  known.reserve(sensible.size());
  for (const vfio::PciAddress& other : sensible) known.push_back(other.text());
  return fail(Errc::not_found,
              fmt::format("there is no PCI function {} on this host{}", address->text(),
                          did_you_mean(address->text(), known)),
              "`ferry status` lists the accelerators");
}

// The address itself if it is an accelerator or a VF of one, else the accelerator of a companion function.
// The address of one that counts only on request is that request, so `rules` then count it.
Result<vfio::PciAddress> accelerator_of(const vfio::PciAddress& address, const vfio::Inventory& inventory,
                                        vfio::AcceleratorRules& rules) {
  const vfio::PciFunction& function = *inventory.find(address);
  if (auto asked = rules.asking_for(function.pci_class()); asked.match(function)) {
    rules = std::move(asked);
    return address;
  }
  if (rules.match_by_name(function)) {
    rules.named.insert(address);
    return address;
  }
  if (vfio::is_accelerators_vf(inventory, rules, function)) {
    rules.named.insert(address);
    return address;
  }
  if (function.physical_function) {
    return fail(Errc::usage,
                fmt::format("{} is a virtual function of {}, which is no accelerator", address.text(),
                            function.physical_function->text()),
                "`ferry status` lists the accelerators");
  }
  for (const vfio::PciAddress& accelerator : accelerators(inventory, rules)) {
    if (vfio::is_companion(*inventory.find(accelerator), function)) return accelerator;
  }
  return fail(Errc::usage,
              fmt::format("{} is no accelerator ({}, class {:04x}{})", address.text(), function.ids(),
                          function.class_code >> 8U, function.driver ? ", driver " + *function.driver : ""),
              "`ferry status` lists the accelerators");
}

void add(std::vector<vfio::PciAddress>& into, const vfio::PciAddress& address) {
  if (std::find(into.begin(), into.end(), address) == into.end()) into.push_back(address);
}

/// `chosen`: the accelerators that meet the filter.
void add_filtered(const std::vector<vfio::PciAddress>& chosen, const SelectionOptions& options,
                  const vfio::Inventory& inventory, const mdev::VgpuInventory& vgpus,
                  const vfio::UndoJournal& record, vfio::Direction direction, ChosenUnits& out) {
  const auto kept = direction == vfio::Direction::to_vfio ? mdev::kept_for_vgpus(vgpus)
                                                          : std::map<vfio::PciAddress, std::string>{};
  const auto half_way = recorded_accelerators(inventory, out.rules, record);
  const auto can_go_back = [&](const vfio::PciAddress& address) {
    return vfio::on_vfio_driver(*inventory.find(address)) ||
           std::find(half_way.begin(), half_way.end(), address) != half_way.end();
  };
  for (const vfio::PciAddress& address : chosen) {
    if (const auto found = kept.find(address); found != kept.end()) {
      out.skipped.insert(*found);
    } else if (direction == vfio::Direction::to_vfio || can_go_back(address)) {
      out.request.accelerators.push_back(address);
    }
  }
  if (direction == vfio::Direction::back && options.all && given_filters(options.filter).empty()) {
    for (const vfio::PciAddress& address : half_way) {
      // A virtual function must be named. Other functions have lost the accelerator that stood for them.
      if (!inventory.find(address)->is_virtual_function()) add(out.request.accelerators, address);
    }
  }
}

Result<> add_devices(const SelectionOptions& options, const vfio::Inventory& inventory,
                     const vfio::UndoJournal& record, vfio::Direction direction, ChosenUnits& out) {
  for (const std::string& text : options.devices) {
    auto address = existing(text, inventory, accelerators(inventory, out.rules));
    if (!address) return fail(std::move(address).error());
    auto accelerator = accelerator_of(*address, inventory, out.rules);
    if (!accelerator && direction == vfio::Direction::back && record.members.contains(*address))
      accelerator = *address;
    if (!accelerator) return fail(std::move(accelerator).error());
    add(out.request.accelerators, *accelerator);
    out.request.by_name.insert(*accelerator);
  }
  return {};
}

/// `rules`: those from before add_devices(): a named device does not make others of its class count.
Result<> add_groups(const SelectionOptions& options, const vfio::Inventory& inventory,
                    const vfio::AcceleratorRules& rules, ChosenUnits& out) {
  for (const std::uint32_t group : options.groups) {
    const auto members = inventory.groups.find(group);
    if (members == inventory.groups.end()) {
      return fail(Errc::not_found, fmt::format("there is no IOMMU group {} on this host", group),
                  "`ferry status` lists the groups of the accelerators");
    }
    bool any = false;
    std::string hint = "`ferry status` lists the groups of the accelerators";
    for (const vfio::PciAddress& address : members->second) {
      const vfio::PciFunction& function = *inventory.find(address);
      if (rules.match(function)) {
        add(out.request.accelerators, address);
        any = true;
      } else if (rules.match_by_name(function) || vfio::is_accelerators_vf(inventory, rules, function)) {
        hint =
            fmt::format("{} is only taken when it is asked for: --device {}", address.text(), address.text());
      }
    }
    if (!any) {
      return fail(Errc::usage,
                  fmt::format("group {} has no accelerator: {}", group, members->second.front().text()),
                  std::move(hint));
    }
  }
  return {};
}

// An empty selection changes nothing, so its --with is no error.
Result<> each_is_of_a_card(const vfio::Inventory& inventory, const vfio::RebindRequest& request) {
  if (request.accelerators.empty()) return {};
  const auto reached = vfio::concerned(inventory, request.accelerators, request.with);
  for (const vfio::PciAddress& address : request.with) {
    const vfio::PciFunction& function = *inventory.find(address);
    const auto has = [&](const vfio::PciAddress& accelerator) {
      return vfio::is_companion(*inventory.find(accelerator), function) ||
             vfio::may_be_of_the_card(*inventory.find(accelerator), function);
    };
    if (std::ranges::none_of(request.accelerators, has))
      return fail(
          Errc::usage,
          fmt::format("--with: {} is no audio, USB or USB-C function of a chosen card",
                      vfio::describe(function)),
          "leave it out; with a driver of the host it keeps its group from VMs, so unbind that driver "
          "yourself if the host can do without the device");
    if (std::ranges::find(reached, address) == reached.end())
      return fail(
          Errc::usage,
          fmt::format("--with: {} shares no IOMMU group and no slot with what is chosen", address.text()),
          "leave it out, or choose the accelerator that it shares a group or a slot with");
  }
  return {};
}

}  // namespace

const vfio::PciFunction* gpu_of_another_vendor(const vfio::Inventory& inventory,
                                               const vfio::AcceleratorRules& rules) {
  const auto found = std::ranges::find_if(inventory.functions, [&](const auto& entry) {
    return rules.only_by_name(entry.second) &&
           std::ranges::find(policy::named_vendors(), entry.second.vendor, &policy::NamedVendor::id) !=
               policy::named_vendors().end();
  });
  return found == inventory.functions.end() ? nullptr : &found->second;
}

std::string counted_by_name(const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules) {
  const vfio::PciFunction* other = gpu_of_another_vendor(inventory, rules);
  if (other == nullptr) return {};
  return fmt::format("{} ({}, {}) counts where it is named", other->address.text(), vfio::kind_of(*other),
                     other->ids());
}

std::string no_gpus(const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules) {
  const std::string other = counted_by_name(inventory, rules);
  if (other.empty()) return "there are no GPUs on this host";
  return fmt::format("there are no GPUs of {} on this host; {}", rules.whose, other);
}

vfio::AcceleratorRules rules_asked_by(const FilterOptions& options, vfio::AcceleratorRules rules) {
  for (const std::string& text : options.classes)
    if (const auto desired = desired_class(text)) rules = rules.asking_for(desired->pci_class());
  for (const std::string& text : options.vendors)
    if (const auto id = desired_vendor(text)) rules.named_vendors.insert(*id);
  return rules;
}

Result<ChosenUnits> select(const SelectionOptions& options, const vfio::Inventory& inventory,
                           const vfio::AcceleratorRules& rules, const mdev::VgpuInventory& vgpus,
                           const vfio::UndoJournal& record, plugin::DeviceNames& names,
                           vfio::Direction direction) {
  ChosenUnits out;
  const bool named = !options.devices.empty() || !options.groups.empty();
  const auto given = given_filters(options.filter);
  const std::string wide = options.all ? "--all" : given.empty() ? "" : given.front().option;
  if (named == !wide.empty()) {
    return fail(
        Errc::usage, named ? wide + " goes without --device and --group" : "no device is named",
        "name accelerators with --device ADDRESS or --group N, or choose among all of them with --vendor, "
        "--class, --model or --numa, or take --all");
  }
  out.rules = rules_asked_by(options.filter, rules);
  if (!named) {
    const auto chosen = choose(options.filter, inventory, out.rules, names);
    if (!chosen) return fail(chosen.error());
    add_filtered(*chosen, options, inventory, vgpus, record, direction, out);
    const auto counts = [&](const auto& entry) { return out.rules.match(entry.second); };
    // Functions of a GPU that is gone may still be on vfio by record.
    if (out.request.accelerators.empty() && std::ranges::none_of(inventory.functions, counts))
      out.nothing = no_gpus(inventory, out.rules);
  }
  if (auto r = add_devices(options, inventory, record, direction, out); !r) return fail(std::move(r).error());
  if (auto r = add_groups(options, inventory, rules, out); !r) return fail(std::move(r).error());
  out.request.force = options.force;
  auto release = vfio::release_list(options.release);
  if (!release) return fail(std::move(release).error().during("--release"));
  out.request.release = std::move(*release);
  for (const std::string& text : options.with) {
    auto address = existing(text, inventory, {});
    if (!address) return fail(std::move(address).error().during("--with"));
    out.request.with.insert(*address);
  }
  // An accelerator that is back on its driver is not selected by --all, so --with may lack its partner.
  if (named || direction == vfio::Direction::to_vfio) {
    auto meant = each_is_of_a_card(inventory, out.request);
    if (!meant) return fail(std::move(meant).error());
  }
  out.request.untouchable = mdev::carriers_of_vgpus(vgpus);
  return out;
}

Result<ChosenUnits> select_recorded(const SelectionOptions& options, const vfio::Inventory& inventory,
                                    const vfio::AcceleratorRules& rules, const vfio::UndoJournal& record,
                                    plugin::DeviceNames& names) {
  ChosenUnits out;
  out.rules = rules.asking_for_all();  // bound on request, and restored without one
  for (const auto& [address, prior] : record.members) out.rules.named.insert(address);
  const auto recorded = recorded_accelerators(inventory, out.rules, record);
  out.request.accelerators = recorded;
  const bool named = !options.devices.empty() || !options.groups.empty();
  if (named || !options.with.empty() || !given_filters(options.filter).empty()) {
    auto chosen =
        select(options, inventory, out.rules, mdev::VgpuInventory{}, record, names, vfio::Direction::back);
    if (!chosen) return chosen;
    out.request = std::move(chosen->request);
    if (!named) {
      std::erase_if(out.request.accelerators, [&](const vfio::PciAddress& address) {
        return std::ranges::find(recorded, address) == recorded.end();
      });
    }
  }
  out.request.recorded_only = true;
  return out;
}

std::vector<vfio::PciAddress> recorded_accelerators(const vfio::Inventory& inventory,
                                                    const vfio::AcceleratorRules& rules,
                                                    const vfio::UndoJournal& record) {
  std::vector<vfio::PciAddress> out;
  for (const vfio::PciAddress& accelerator : accelerators(inventory, rules)) {
    const auto unit = vfio::concerned(inventory, {accelerator}, record.gone_along());
    if (std::any_of(unit.begin(), unit.end(),
                    [&](const vfio::PciAddress& a) { return record.speaks_of(*inventory.find(a)); })) {
      out.push_back(accelerator);
    }
  }
  for (const auto& [address, prior] : record.members) {
    const vfio::PciFunction* function = inventory.find(address);
    if (function != nullptr && vfio::is_accelerators_vf(inventory, rules, *function)) add(out, address);
  }
  for (const vfio::PciAddress& address : vfio::unfinished(inventory, rules, record)) add(out, address);
  return out;
}

}  // namespace ferry::cli
