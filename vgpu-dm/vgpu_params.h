// SPDX-License-Identifier: Apache-2.0
// Parameters of the plug-in that drives a vGPU: "frame_rate_limiter=0,disable_vnc=1".
// ABI: the driver's attribute nvidia/vgpu_params of a mediated device or a virtual function. Each write
// replaces all of them, a single blank takes them away; they count from the VM's next start on.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"

namespace ferry {

struct VgpuParams {
  std::vector<std::pair<std::string, std::string>> entries;  ///< in order; each key stands once

  /// With commas or blanks between; empty: none. Errc::invalid_config: no `=`, a key twice, a character that
  /// can be in neither, or longer than an attribute takes (4095 bytes).
  static Result<VgpuParams> parse(std::string_view text);
  /// With commas between.
  std::string text() const;
  /// What to write: the text, or the blank that takes all away.
  std::string attribute() const { return entries.empty() ? " " : text(); }
  /// Whatever the order.
  bool operator==(const VgpuParams& other) const;
};

}  // namespace ferry
