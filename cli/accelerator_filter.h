// SPDX-License-Identifier: Apache-2.0
// --vendor, --class, --model and --numa: which of all accelerators are meant.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "kubevirt-plugin/device_names.h"
#include "vfio/inventory.h"

namespace ferry {

/// As given on the command line. Different ones must all hold; of one kind, any.
struct FilterOptions {
  std::vector<std::string> vendors;     ///< "10de", "0x10de", or a name of named_vendors()
  std::vector<std::string> classes;     ///< "0302", "030200", or a word of named_classes()
  std::vector<std::string> models;      ///< glob(7) on the model's name or on "10de:2330", letter case aside
  std::vector<std::string> numa_nodes;  ///< "0"

  /// The first kind that is given, "--vendor"; empty when there is none.
  std::string first() const;
};

/// The model that people are shown: its name, or its IDs where nobody knows one.
std::string model_of(const PciFunction& function, DeviceNames& names);

class AcceleratorFilter {
 public:
  /// One accelerator and its model.
  struct Candidate {
    const PciFunction* function = nullptr;
    std::string model;
  };
  /// Whether a candidate is what one value of an option says.
  using Test = std::function<bool(const Candidate&)>;

  /// Errc::usage: a value is malformed; the hint shows the form.
  static Result<AcceleratorFilter> parse(const FilterOptions& options);

  /// `rules`, with the classes on request that --class names, and the vendors that --vendor does.
  AcceleratorRules asked(AcceleratorRules rules) const;

  /// The accelerators by `rules` for which everything holds, in order of address. Errc::not_found when there
  /// are none: then the hint says what this host has instead. Without options: all, and it does not fail.
  Result<std::vector<PciAddress>> choose(const Inventory& inventory, const AcceleratorRules& rules,
                                         DeviceNames& names) const;

 private:
  /// The values of one option.
  struct Criterion {
    std::string what;                               ///< "model"
    std::vector<std::string> given;                 ///< as typed
    std::vector<Test> alternatives;                 ///< one for each of them
    std::string (*is)(const Candidate&) = nullptr;  ///< what a candidate is in this respect
    bool globs = false;                             ///< values may have stars

    bool holds(const Candidate& candidate) const;
  };
  static Error nothing_is(const Criterion& criterion, const std::vector<Candidate>& there);
  Error nothing_is_all(const std::vector<Candidate>& there) const;

  std::vector<Criterion> criteria_;
  std::vector<PciClass> classes_;
  std::vector<std::uint16_t> vendors_;  ///< those that --vendor names
};

}  // namespace ferry
