// SPDX-License-Identifier: Apache-2.0
#include "cli/options/named_gpus.h"

#include <fmt/format.h>

namespace ferry {

Result<std::set<PciAddress>> parse_gpus(const std::vector<std::string>& addresses) {
  std::set<PciAddress> out;
  for (const std::string& text : addresses) {
    auto address = PciAddress::parse(text);
    if (!address) return fail(std::move(address).error());
    out.insert(*address);
  }
  return out;
}

Result<> check_gpus(const std::set<PciAddress>& gpus, const VgpuInventory& inventory) {
  for (const PciAddress& gpu : gpus) {
    if (inventory.find(gpu) == nullptr) {
      return fail(Errc::not_found, fmt::format("there is no GPU {} on this host", gpu.text()),
                  "`ferry vgpu types` lists the GPUs");
    }
  }
  return {};
}

}  // namespace ferry
