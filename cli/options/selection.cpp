// SPDX-License-Identifier: Apache-2.0
#include "cli/options/selection.h"

#include <algorithm>
#include <array>
#include <functional>
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

struct Candidate {
  const vfio::PciFunction* function = nullptr;
  std::string model;  ///< as output shows it: its name, or its IDs if no table has a name
};

/// True: the candidate matches one value of an option.
using Test = std::function<bool(const Candidate&)>;

std::string vendor_of(const Candidate& candidate) {
  const std::uint16_t vendor = candidate.function->vendor;
  for (const policy::NamedVendor& named : policy::named_vendors()) {
    if (named.id == vendor) return fmt::format("{:04x} ({})", vendor, named.name);
  }
  return fmt::format("{:04x}", vendor);
}

std::optional<std::uint16_t> desired_vendor(const std::string& text) {
  for (const policy::NamedVendor& named : policy::named_vendors()) {
    if (lower(named.name) == lower(text)) return named.id;
  }
  if (const auto id = hex(text, 4)) return static_cast<std::uint16_t>(*id);
  return std::nullopt;
}

Result<Test> parse_vendor(const std::string& text) {
  if (const auto id = desired_vendor(text))
    return [id = *id](const Candidate& candidate) { return candidate.function->vendor == id; };
  const auto known = names_of(policy::named_vendors());
  return fail(
      Errc::usage, fmt::format("--vendor: '{}' is no vendor{}", text, did_you_mean(text, known)),
      fmt::format("a vendor is four hex digits, as in --vendor 10de, or a name: {}", fmt::join(known, ", ")));
}

std::string class_of(const Candidate& candidate) {
  const std::uint32_t code = candidate.function->class_code >> 8U;
  for (const policy::NamedClass& named : policy::named_classes()) {
    if (named.pci_class == candidate.function->pci_class())
      return fmt::format("{:04x} ({})", code, named.name);
  }
  return fmt::format("{:04x}", code);
}

struct DesiredClass {
  std::uint32_t code = 0;       ///< 24 bits
  bool with_interface = false;  ///< the value has a programming interface, which must match
  vfio::PciClass pci_class() const { return static_cast<vfio::PciClass>(code >> 8U); }
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

Result<Test> parse_class(const std::string& text) {
  const auto desired = desired_class(text);
  if (desired) {
    return [desired = *desired](const Candidate& candidate) {
      return desired.with_interface ? candidate.function->class_code == desired.code
                                    : candidate.function->pci_class() == desired.pci_class();
    };
  }
  const auto known = names_of(policy::named_classes());
  return fail(Errc::usage, fmt::format("--class: '{}' is no class{}", text, did_you_mean(text, known)),
              fmt::format("a class is four or six hex digits, as in --class 0302, or a word: {}",
                          fmt::join(known, ", ")));
}

std::string model_of_candidate(const Candidate& candidate) {
  return candidate.model;
}

Result<Test> parse_model(const std::string& pattern) {
  if (const std::string fault = policy::glob_fault(pattern); !fault.empty()) {
    return fail(Errc::usage, fmt::format("--model: '{}' {}", pattern, fault),
                "a glob has * for anything, ? for one character and [...] for one of several");
  }
  if (!pattern.empty()) {
    return [pattern](const Candidate& candidate) {
      return policy::fits_model(pattern, candidate.model, *candidate.function);
    };
  }
  return fail(Errc::usage, "--model: '' is no model",
              "a model is a glob on what `ferry status` shows, as in --model '*H100*', or on the IDs, as in "
              "--model 10de:2330");
}

std::string numa_node_of(const Candidate& candidate) {
  const auto node = candidate.function->numa_node;
  return node ? std::to_string(*node) : "unknown";
}

Result<Test> parse_numa_node(const std::string& text) {
  if (const auto node = whole_number<int>(text); node && *node >= 0)
    return [node = *node](const Candidate& candidate) { return candidate.function->numa_node == node; };
  return fail(Errc::usage, fmt::format("--numa: '{}' is no NUMA node", text),
              "a NUMA node is a number from 0, as in --numa 1");
}

struct Kind {
  const char* option = nullptr;
  const char* what = nullptr;
  std::vector<std::string> FilterOptions::*given = nullptr;
  Result<Test> (*parse)(const std::string&) = nullptr;  ///< Errc::usage: malformed; the hint shows the form
  std::string (*is)(const Candidate&) = nullptr;        ///< the candidate's own value of this kind
  bool globs = false;                                   ///< values may have stars
};
constexpr std::array kKinds = {
    Kind{"--vendor", "vendor", &FilterOptions::vendors, parse_vendor, vendor_of},
    Kind{"--class", "class", &FilterOptions::classes, parse_class, class_of},
    Kind{"--model", "model", &FilterOptions::models, parse_model, model_of_candidate, true},
    Kind{"--numa", "NUMA node", &FilterOptions::numa_nodes, parse_numa_node, numa_node_of}};

// Corrects a mistyped value to one of this host or to a word of one, since a glob names a part.
std::string meant(const std::string& given, const std::vector<std::string>& there, bool globs) {
  constexpr const char* kStars = "*";
  constexpr const char* kBetween = " []()/";
  std::vector<std::string> candidates = there;
  for (const std::string& whole : there) {
    for (std::size_t at = 0; (at = whole.find_first_not_of(kBetween, at)) != std::string::npos;) {
      const auto end = std::min(whole.find_first_of(kBetween, at), whole.size());
      candidates.push_back(whole.substr(at, end - at));
      at = end;
    }
  }
  const auto first = given.find_first_not_of(kStars);
  if (first == std::string::npos || given.size() == 1) return {};  // one digit is as near to any other
  const auto last = given.find_last_not_of(kStars);
  const std::string word = suggest(given.substr(first, last - first + 1), candidates);
  if (word.empty()) return {};
  // The user gave a part of a value without stars, which matches only as '*PART*'.
  const bool part = globs && std::ranges::find(there, word) == there.end();
  const bool bare = part && first == 0 && last + 1 == given.size();
  return bare ? fmt::format("; did you mean '*{}*'?", word)
              : fmt::format("; did you mean '{}{}{}'?", given.substr(0, first), word, given.substr(last + 1));
}

std::string quoted(const std::vector<std::string>& values) {
  return fmt::format("'{}'", fmt::join(values, "' or '"));
}

/// The first option that has values, as "--vendor"; empty: none has.
std::string first_of(const FilterOptions& options) {
  const auto* const found =
      std::ranges::find_if(kKinds, [&](const Kind& kind) { return !(options.*kind.given).empty(); });
  return found == kKinds.end() ? "" : found->option;
}

/// The values of one option, with a test for each.
struct Criterion {
  const Kind& kind;
  std::vector<std::string> given;
  std::vector<Test> alternatives;

  bool holds(const Candidate& candidate) const {
    return std::ranges::any_of(alternatives, [&](const Test& test) { return test(candidate); });
  }
};

Result<std::vector<Criterion>> criteria_of(const FilterOptions& options) {
  std::vector<Criterion> out;
  for (const Kind& kind : kKinds) {
    Criterion criterion{.kind = kind, .given = options.*kind.given, .alternatives = {}};
    for (const std::string& text : criterion.given) {
      auto test = kind.parse(text);
      if (!test) return fail(std::move(test).error());
      criterion.alternatives.push_back(std::move(*test));
    }
    if (!criterion.given.empty()) out.push_back(std::move(criterion));
  }
  return out;
}

Error nothing_is(const Criterion& criterion, const std::vector<Candidate>& there) {
  const Kind& kind = criterion.kind;
  std::set<std::string> is;
  for (const Candidate& candidate : there) is.insert(kind.is(candidate));
  const std::vector<std::string> known(is.begin(), is.end());
  return {.code = make_error_code(Errc::not_found),
          .message = fmt::format(
              "no accelerator on this host is of {} {}{}", kind.what, quoted(criterion.given),
              criterion.given.size() == 1 ? meant(criterion.given.front(), known, kind.globs) : ""),
          .hint = fmt::format("those here are of {} {}", kind.what, fmt::join(known, ", "))};
}

// Reports that each criterion holds for some accelerator, and that no accelerator meets them all.
Error nothing_is_all(const std::vector<Criterion>& criteria, const std::vector<Candidate>& there) {
  std::vector<std::string> desired;
  desired.reserve(criteria.size());
  for (const Criterion& c : criteria) desired.push_back(fmt::format("{} {}", c.kind.what, quoted(c.given)));
  std::vector<std::string> known;
  for (const Candidate& candidate : there) {
    std::vector<std::string> is;
    is.reserve(criteria.size());
    for (const Criterion& c : criteria) is.push_back(fmt::format("{} {}", c.kind.what, c.kind.is(candidate)));
    known.push_back(fmt::format("{} is of {}", candidate.function->address.text(), fmt::join(is, ", ")));
  }
  return {.code = make_error_code(Errc::not_found),
          .message = fmt::format("no accelerator on this host is of {} at once", fmt::join(desired, " and ")),
          .hint = fmt::format("{}", fmt::join(known, "; "))};
}

/// The accelerators under `rules` that meet all criteria, in order of address. Errc::not_found: none does;
/// the hint lists the values of this host. Without criteria it returns all of them and does not fail, nor on
/// a host without any.
Result<std::vector<vfio::PciAddress>> choose(const std::vector<Criterion>& criteria,
                                             const vfio::Inventory& inventory,
                                             const vfio::AcceleratorRules& rules,
                                             plugin::DeviceNames& names) {
  std::vector<Candidate> there;
  for (const auto& [address, function] : inventory.functions) {
    if (!rules.match(function)) continue;
    there.push_back({.function = &function,
                     .model = names.find(function.vendor, function.device).value_or(function.ids())});
  }
  std::vector<vfio::PciAddress> out;
  for (const Candidate& candidate : there) {
    if (std::ranges::all_of(criteria, [&](const Criterion& c) { return c.holds(candidate); })) {
      out.push_back(candidate.function->address);
    }
  }
  if (!out.empty() || criteria.empty()) return out;

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
  for (const Criterion& criterion : criteria) {
    if (std::ranges::none_of(there, [&](const Candidate& c) { return criterion.holds(c); })) {
      return fail(nothing_is(criterion, there));
    }
  }
  return fail(nothing_is_all(criteria, there));
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
  if (vfio::is_accelerators_vf(inventory, rules, function)) return address;
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

// True: no option but --all is given.
bool leaves_nothing_out(const SelectionOptions& options) {
  return options.devices.empty() && options.groups.empty() && options.with.empty() &&
         first_of(options.filter).empty();
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
  if (direction == vfio::Direction::back && options.all && first_of(options.filter).empty()) {
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

std::string no_gpus(const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules) {
  const vfio::PciFunction* other = gpu_of_another_vendor(inventory, rules);
  if (other == nullptr) return "there are no GPUs on this host";
  return fmt::format("there are no GPUs of {} on this host; {} ({}, {}) counts where it is named",
                     rules.whose, other->address.text(), vfio::kind_of(*other), other->ids());
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
  const std::string wide = options.all ? "--all" : first_of(options.filter);
  if (named == !wide.empty()) {
    return fail(
        Errc::usage, named ? wide + " goes without --device and --group" : "no device is named",
        "name accelerators with --device ADDRESS or --group N, or choose among all of them with --vendor, "
        "--class, --model or --numa, or take --all");
  }
  const auto criteria = criteria_of(options.filter);
  if (!criteria) return fail(criteria.error());
  out.rules = rules_asked_by(options.filter, rules);
  if (!named) {
    const auto chosen = choose(*criteria, inventory, out.rules, names);
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
  if (!leaves_nothing_out(options)) {
    auto chosen =
        select(options, inventory, out.rules, mdev::VgpuInventory{}, record, names, vfio::Direction::back);
    if (!chosen) return chosen;
    out.request = std::move(chosen->request);
    if (options.devices.empty() && options.groups.empty()) {
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
