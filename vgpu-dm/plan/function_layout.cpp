// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/function_layout.h"

#include <algorithm>
#include <string>

namespace ferry::vgpu {

std::map<const VgpuCount*, std::vector<vfio::PciAddress>> functions_for(const ProfileItem& item,
                                                                        const mdev::VgpuGpu& gpu) {
  std::map<const VgpuCount*, std::vector<vfio::PciAddress>> out;
  if (!gpu.on_virtual_functions()) return out;
  std::map<std::string, const VgpuCount*> by_name;
  for (const VgpuCount& entry : item.vgpus) by_name.emplace(entry.type.text(), &entry);
  auto next = gpu.parents.begin();
  for (const auto& [name, entry] : by_name) {
    for (std::uint32_t i = 0; i < entry->count && next != gpu.parents.end(); ++i, ++next)
      out[entry].push_back(next->address);
  }
  return out;
}

}  // namespace ferry::vgpu
