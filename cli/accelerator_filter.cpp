// SPDX-License-Identifier: Apache-2.0
#include "cli/accelerator_filter.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <strings.h>

#include <fmt/format.h>

#include "common/suggest.h"
#include "policy/accelerators.h"
#include "policy/gpu_selection.h"
#include "policy/model_glob.h"

namespace ferry {
namespace {

// Parses exactly `digits` hex digits, with or without "0x".
std::optional<std::uint32_t> hex(std::string_view text, std::size_t digits) {
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != digits || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool same_word(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

template <typename Named>
std::vector<std::string> names_of(std::span<const Named> table) {
  std::vector<std::string> out;
  for (const Named& entry : table) out.emplace_back(entry.name);
  return out;
}

using Candidate = AcceleratorFilter::Candidate;
using Test = AcceleratorFilter::Test;

std::string vendor_of(const Candidate& candidate) {
  const std::uint16_t vendor = candidate.function->vendor;
  for (const NamedVendor& named : named_vendors()) {
    if (named.id == vendor) return fmt::format("{:04x} ({})", vendor, named.name);
  }
  return fmt::format("{:04x}", vendor);
}

std::optional<std::uint16_t> wanted_vendor(const std::string& text) {
  for (const NamedVendor& named : named_vendors()) {
    if (same_word(named.name, text)) return named.id;
  }
  if (const auto id = hex(text, 4)) return static_cast<std::uint16_t>(*id);
  return std::nullopt;
}

Result<Test> parse_vendor(const std::string& text) {
  if (const auto id = wanted_vendor(text))
    return [id = *id](const Candidate& candidate) { return candidate.function->vendor == id; };
  const auto known = names_of(named_vendors());
  return fail(
      Errc::usage, fmt::format("--vendor: '{}' is no vendor{}", text, did_you_mean(text, known)),
      fmt::format("a vendor is four hex digits, as in --vendor 10de, or a name: {}", fmt::join(known, ", ")));
}

std::string class_of(const Candidate& candidate) {
  const std::uint32_t code = candidate.function->class_code >> 8U;
  for (const NamedClass& named : named_classes()) {
    if (named.pci_class == candidate.function->pci_class())
      return fmt::format("{:04x} ({})", code, named.name);
  }
  return fmt::format("{:04x}", code);
}

struct WantedClass {
  std::uint32_t code = 0;       ///< 24 bits
  bool with_interface = false;  ///< the value has a programming interface, which must match
  PciClass pci_class() const { return static_cast<PciClass>(code >> 8U); }
};

std::optional<WantedClass> wanted_class(const std::string& text) {
  for (const NamedClass& named : named_classes()) {
    if (same_word(named.name, text)) {
      return WantedClass{.code = static_cast<std::uint32_t>(named.pci_class) << 8U, .with_interface = false};
    }
  }
  if (const auto code = hex(text, 4)) return WantedClass{.code = *code << 8U, .with_interface = false};
  if (const auto code = hex(text, 6)) return WantedClass{.code = *code, .with_interface = true};
  return std::nullopt;
}

Result<Test> parse_class(const std::string& text) {
  const auto wanted = wanted_class(text);
  if (wanted) {
    return [wanted = *wanted](const Candidate& candidate) {
      return wanted.with_interface ? candidate.function->class_code == wanted.code
                                   : candidate.function->pci_class() == wanted.pci_class();
    };
  }
  const auto known = names_of(named_classes());
  return fail(Errc::usage, fmt::format("--class: '{}' is no class{}", text, did_you_mean(text, known)),
              fmt::format("a class is four or six hex digits, as in --class 0302, or a word: {}",
                          fmt::join(known, ", ")));
}

std::string model_of_candidate(const Candidate& candidate) {
  return candidate.model;
}

Result<Test> parse_model(const std::string& pattern) {
  if (const std::string fault = glob_fault(pattern); !fault.empty()) {
    return fail(Errc::usage, fmt::format("--model: '{}' {}", pattern, fault),
                "a glob has * for anything, ? for one character and [...] for one of several");
  }
  if (!pattern.empty()) {
    return [pattern](const Candidate& candidate) {
      return fits_model(pattern, candidate.model, *candidate.function);
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
  int node = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), node);
  if (error == std::errc() && end == text.data() + text.size() && node >= 0) {
    return [node](const Candidate& candidate) { return candidate.function->numa_node == node; };
  }
  return fail(Errc::usage, fmt::format("--numa: '{}' is no NUMA node", text),
              "a NUMA node is a number from 0, as in --numa 1");
}

struct Kind {
  const char* option = nullptr;
  const char* what = nullptr;
  std::vector<std::string> FilterOptions::*given = nullptr;
  Result<Test> (*parse)(const std::string&) = nullptr;
  std::string (*is)(const Candidate&) = nullptr;
  bool globs = false;
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

}  // namespace

std::string FilterOptions::first() const {
  const auto* const found =
      std::ranges::find_if(kKinds, [&](const Kind& kind) { return !(this->*kind.given).empty(); });
  return found == kKinds.end() ? "" : found->option;
}

std::string model_of(const PciFunction& function, DeviceNames& names) {
  return names.find(function.vendor, function.device).value_or(function.ids());
}

bool AcceleratorFilter::Criterion::holds(const Candidate& candidate) const {
  return std::ranges::any_of(alternatives, [&](const Test& test) { return test(candidate); });
}

Result<AcceleratorFilter> AcceleratorFilter::parse(const FilterOptions& options) {
  AcceleratorFilter filter;
  for (const Kind& kind : kKinds) {
    Criterion criterion{.what = kind.what,
                        .given = options.*kind.given,
                        .alternatives = {},
                        .is = kind.is,
                        .globs = kind.globs};
    for (const std::string& text : criterion.given) {
      auto test = kind.parse(text);
      if (!test) return fail(std::move(test).error());
      criterion.alternatives.push_back(std::move(*test));
    }
    if (!criterion.given.empty()) filter.criteria_.push_back(std::move(criterion));
  }
  for (const std::string& text : options.classes) {
    if (const auto wanted = wanted_class(text)) filter.classes_.push_back(wanted->pci_class());
  }
  for (const std::string& text : options.vendors) {
    if (const auto id = wanted_vendor(text)) filter.vendors_.push_back(*id);
  }
  return filter;
}

AcceleratorRules AcceleratorFilter::asked(AcceleratorRules rules) const {
  for (const PciClass wanted : classes_) rules = rules.asking_for(wanted);
  rules.named_vendors.insert(vendors_.begin(), vendors_.end());
  return rules;
}

Result<std::vector<PciAddress>> AcceleratorFilter::choose(const Inventory& inventory,
                                                          const AcceleratorRules& rules,
                                                          DeviceNames& names) const {
  std::vector<Candidate> there;
  for (const auto& [address, function] : inventory.functions) {
    if (rules.match(function)) there.push_back({.function = &function, .model = model_of(function, names)});
  }
  std::vector<PciAddress> out;
  for (const Candidate& candidate : there) {
    if (std::ranges::all_of(criteria_, [&](const Criterion& c) { return c.holds(candidate); })) {
      out.push_back(candidate.function->address);
    }
  }
  if (!out.empty() || criteria_.empty()) return out;

  if (there.empty()) {
    for (const auto& [address, function] : inventory.functions) {
      if (!rules.only_by_name(function)) continue;
      return fail(
          Errc::not_found, fmt::format("there is no accelerator of {} on this host", rules.whose),
          fmt::format("{} ({}, {}) counts where it or its vendor is named: --device {}, or --vendor {:04x}",
                      address.text(), kind_of(function), function.ids(), address.text(), function.vendor));
    }
    return fail(Errc::not_found, "there is no accelerator on this host", "`ferry status` lists them");
  }
  for (const Criterion& criterion : criteria_) {
    if (std::ranges::none_of(there, [&](const Candidate& c) { return criterion.holds(c); })) {
      return fail(nothing_is(criterion, there));
    }
  }
  return fail(nothing_is_all(there));
}

Error AcceleratorFilter::nothing_is(const Criterion& criterion, const std::vector<Candidate>& there) {
  std::set<std::string> is;
  for (const Candidate& candidate : there) is.insert(criterion.is(candidate));
  const std::vector<std::string> known(is.begin(), is.end());
  return {.code = make_error_code(Errc::not_found),
          .message = fmt::format(
              "no accelerator on this host is of {} {}{}", criterion.what, quoted(criterion.given),
              criterion.given.size() == 1 ? meant(criterion.given.front(), known, criterion.globs) : ""),
          .hint = fmt::format("those here are of {} {}", criterion.what, fmt::join(known, ", "))};
}

// Reports that each criterion holds for some accelerator, and that no accelerator meets them all.
Error AcceleratorFilter::nothing_is_all(const std::vector<Candidate>& there) const {
  std::vector<std::string> wanted;
  wanted.reserve(criteria_.size());
  for (const Criterion& c : criteria_) wanted.push_back(fmt::format("{} {}", c.what, quoted(c.given)));
  std::vector<std::string> known;
  for (const Candidate& candidate : there) {
    std::vector<std::string> is;
    is.reserve(criteria_.size());
    for (const Criterion& c : criteria_) is.push_back(fmt::format("{} {}", c.what, c.is(candidate)));
    known.push_back(fmt::format("{} is of {}", candidate.function->address.text(), fmt::join(is, ", ")));
  }
  return {.code = make_error_code(Errc::not_found),
          .message = fmt::format("no accelerator on this host is of {} at once", fmt::join(wanted, " and ")),
          .hint = fmt::format("{}", fmt::join(known, "; "))};
}

}  // namespace ferry
