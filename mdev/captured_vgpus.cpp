// SPDX-License-Identifier: Apache-2.0
#include "mdev/captured_vgpus.h"

#include <map>
#include <sstream>

#include <fmt/format.h>

namespace ferry::mdev {

void take_captured_numbers(const HostFs& host, VgpuInventory& inventory) {
  const auto text = host.read_file(kCapturedVgpus);
  if (!text) return;
  std::istringstream lines(*text);
  std::map<std::string, unsigned> numbers;
  std::string id;
  for (unsigned number = 0; lines >> id >> number;) numbers[id] = number;
  for (VgpuGpu& gpu : inventory.gpus)
    for (VgpuDevice& device : gpu.devices)
      if (const auto known = numbers.find(device.id.text); known != numbers.end())
        device.captured_number = known->second;
}

std::string captured_line(const VgpuId& id, unsigned number) {
  return fmt::format("{} {}\n", id.text, number);
}

}  // namespace ferry::mdev
