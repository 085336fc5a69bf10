// SPDX-License-Identifier: Apache-2.0
// The parameters the kernel was started with. They explain what sysfs shows and decide nothing.
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
  std::string name;                  ///< with '_' for every '-': the kernel takes them for the same
  std::optional<std::string> value;  ///< absent: no '='
  std::string text;                  ///< as it stands there
  /// Whether `word` is one of the value's parts between commas.
  bool lists(std::string_view word) const;
  bool operator==(const KernelParameter&) const = default;
};

class KernelCommandLine {
 public:
  /// Parameters up to a lone "--": what is behind it is for init. Any text gives some list.
  static KernelCommandLine parse(std::string_view text);
  /// proc/cmdline.
  static Result<KernelCommandLine> read(const HostFs& host);

  /// In order of appearance.
  const std::vector<KernelParameter>& parameters() const { return parameters_; }
  /// The last of that name; nullptr when there is none. `name` is written with '_'.
  const KernelParameter* last(std::string_view name) const;
  /// The first of that name whose value lists `word`.
  const KernelParameter* listing(std::string_view name, std::string_view word) const;

 private:
  std::vector<KernelParameter> parameters_;
};

}  // namespace ferry
