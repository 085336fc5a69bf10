// SPDX-License-Identifier: Apache-2.0
#include "cli/options/named_gpus.h"

#include <fmt/format.h>

namespace ferry::cli {

Result<std::set<vfio::PciAddress>> parse_gpus(const std::vector<std::string>& addresses) {
  std::set<vfio::PciAddress> out;
  for (const std::string& text : addresses) {
    auto address = vfio::PciAddress::parse(text);
    if (!address) return fail(std::move(address).error());
    out.insert(*address);
  }
  return out;
}

Result<> check_gpus(const std::set<vfio::PciAddress>& gpus, const mdev::VgpuInventory& inventory) {
  for (const vfio::PciAddress& gpu : gpus) {
    if (inventory.find(gpu) == nullptr) {
      return fail(Errc::not_found, fmt::format("there is no GPU {} on this host", gpu.text()),
                  "`ferry vgpu types` lists the GPUs");
    }
  }
  return {};
}

}  // namespace ferry::cli
