// SPDX-License-Identifier: Apache-2.0
// Which GPUs an item of a policy is for, by what people know of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mdev/vgpu.h"

namespace ferry {

/// The name of a model as people are shown it; empty: nobody knows one. The table of names is above this
/// room.
using ModelNames = std::function<std::string(const PciFunction&)>;

/// Whether a pattern is a model's name or IDs ("10de:26b9"), or a glob(7) on one of them, letter case aside.
bool fits_model(const std::string& pattern, const std::string& name, const PciFunction& gpu);

/// What is empty holds for any GPU; of what is not all must hold, and of its values one.
struct GpuSelection {
  std::vector<std::string> models;  ///< for fits_model()
  std::vector<PciAddress> addresses;
  std::vector<int> numa_nodes;
  std::vector<std::uint16_t> vendors;

  bool matches(const VgpuGpu& gpu, const ModelNames& models_of) const;
};

}  // namespace ferry
