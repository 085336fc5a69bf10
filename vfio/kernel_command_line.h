// SPDX-License-Identifier: Apache-2.0
// The parameters of the running kernel. They explain the facts in sysfs and decide nothing.
// ABI: Documentation/admin-guide/kernel-parameters.rst; splitting as in lib/cmdline.c, next_arg.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

struct KernelParameter {
  std::string name;                  ///< with '_' for every '-', which the kernel treats alike
  std::optional<std::string> value;  ///< absent: no '='
  std::string text;                  ///< the parameter as it was written
  /// True if `word` is one of the value's parts between commas.
  bool lists(std::string_view word) const;
  bool operator==(const KernelParameter&) const = default;
};

class KernelCommandLine {
 public:
  /// Parses parameters up to a lone "--", after which those of init follow. Any text gives some list.
  static KernelCommandLine parse(std::string_view text);
  /// Parses proc/cmdline.
  static Result<KernelCommandLine> read(const HostFs& host);

  /// In order of appearance.
  const std::vector<KernelParameter>& parameters() const { return parameters_; }
  /// The last parameter of that name; nullptr: there is none. `name` is written with '_'.
  const KernelParameter* last(std::string_view name) const;
  /// The first parameter of that name whose value lists `word`; nullptr: there is none.
  const KernelParameter* listing(std::string_view name, std::string_view word) const;

 private:
  std::vector<KernelParameter> parameters_;
};

}  // namespace ferry
