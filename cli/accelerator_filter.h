// SPDX-License-Identifier: Apache-2.0
// Filters accelerators by --vendor, --class, --model and --numa.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "kubevirt-plugin/device_names.h"
#include "vfio/inventory.h"

namespace ferry {

/// Values as given. An accelerator must meet each option that has values, by any one of them.
struct FilterOptions {
  std::vector<std::string> vendors;     ///< "10de", "0x10de", or a name of named_vendors()
  std::vector<std::string> classes;     ///< "0302", "030200", or a word of named_classes()
  std::vector<std::string> models;      ///< glob(7) on the model's name or on "10de:2330", letter case aside
  std::vector<std::string> numa_nodes;  ///< "0"

  /// The first option that has values, as "--vendor"; empty: none has.
  std::string first() const;
};

/// The model as output shows it: its name, or its IDs if no table has a name.
std::string model_of(const PciFunction& function, DeviceNames& names);

class AcceleratorFilter {
 public:
  struct Candidate {
    const PciFunction* function = nullptr;
    std::string model;
  };
  /// True: the candidate matches one value of an option.
  using Test = std::function<bool(const Candidate&)>;

  /// Errc::usage: a value is malformed; the hint shows the form.
  static Result<AcceleratorFilter> parse(const FilterOptions& options);

  /// Returns `rules` with the on-request classes that --class names and the vendors that --vendor names.
  AcceleratorRules asked(AcceleratorRules rules) const;

  /// The accelerators under `rules` that meet all options, in order of address. Errc::not_found: none does;
  /// the hint lists the values of this host. Without options it returns all of them and does not fail.
  Result<std::vector<PciAddress>> choose(const Inventory& inventory, const AcceleratorRules& rules,
                                         DeviceNames& names) const;

 private:
  /// The values of one option.
  struct Criterion {
    std::string what;                               ///< "model"
    std::vector<std::string> given;                 ///< as typed
    std::vector<Test> alternatives;                 ///< one for each of `given`
    std::string (*is)(const Candidate&) = nullptr;  ///< the candidate's own value of this kind
    bool globs = false;                             ///< values may have stars

    bool holds(const Candidate& candidate) const;
  };
  static Error nothing_is(const Criterion& criterion, const std::vector<Candidate>& there);
  Error nothing_is_all(const std::vector<Candidate>& there) const;

  std::vector<Criterion> criteria_;
  std::vector<PciClass> classes_;
  std::vector<std::uint16_t> vendors_;  ///< named by --vendor
};

}  // namespace ferry
