// SPDX-License-Identifier: Apache-2.0
// Parameters of the plug-in that drives a vGPU: "frame_rate_limiter=0,disable_vnc=1". ABI: the driver's
// attribute nvidia/vgpu_params of a mediated device or a virtual function. Each write replaces all
// parameters; a single blank removes them. They take effect at the VM's next start.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"

namespace ferry::vgpu {

struct VgpuParams {
  std::vector<std::pair<std::string, std::string>> entries;  ///< in order; keys are unique

  /// Entries are separated by commas or blanks; an empty text has none. Errc::invalid_config: no `=`, a
  /// repeated key, an invalid character, or longer than an attribute takes (4095 bytes).
  static Result<VgpuParams> parse(std::string_view text);
  /// Entries joined by commas.
  std::string text() const;
  /// The text to write: text(), or the blank that removes all parameters.
  std::string attribute() const { return entries.empty() ? " " : text(); }
  /// Equal in any order.
  bool operator==(const VgpuParams& other) const;
};

}  // namespace ferry::vgpu
