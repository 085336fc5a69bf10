// SPDX-License-Identifier: Apache-2.0
// The checks of a host, and changes of its GPU's place that several tests make.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/vfio/bridge_space.h"
#include "tests/vfio/doctor_machines.h"
#include "tests/vfio/machines.h"
#include "vfio/bind/driver_choice.h"
#include "vfio/checks/passthrough_checks.h"
#include "vfio/judgement/unit_facts.h"

namespace ferry::vfio {

inline std::vector<Check> checks_of(test::FakeKernel& kernel) {
  Inventory inventory = scan(kernel).value();
  std::vector<PciAddress> every;
  for (const auto& [address, function] : inventory.functions) every.push_back(address);
  read_overrides(kernel, kernel, every, inventory);
  read_unit_facts(kernel, test::gpu_rules(), inventory);
  const std::set<std::string> stuck;
  const std::map<PciAddress, std::string> errors;
  return passthrough_checks(
      kernel, inventory, test::gpu_rules(),
      judge_all(inventory, test::gpu_rules(), {.stuck = &stuck, .fatal_errors = &errors}, {}));
}

inline const Check* find(const std::vector<Check>& checks, const std::string& id,
                         const std::string& subject) {
  const auto found = std::ranges::find_if(
      checks, [&](const Check& check) { return check.id == id && check.subject == subject; });
  return found == checks.end() ? nullptr : &*found;
}

inline const std::string kModules = "lib/modules/" + std::string(test::kRelease);

inline void give_framebuffer(test::FakeKernel& kernel) {
  kernel.link("sys/class/graphics/fb0", "../../devices/pci0000:00/0000:65:00.0/graphics/fb0");
  kernel.link(test::of_gpu("graphics/fb0/device"), "../../../0000:65:00.0");
  kernel.file("sys/class/vtconsole/vtcon1/name", "(M) frame buffer device\n");
  kernel.file("sys/class/vtconsole/vtcon1/bind", "1\n");
}

inline constexpr const char* kPort = "0000:00:01.0";
inline constexpr const char* kSwitchPort = "0000:64:00.0";

// The GPU's place in the tree of devices becomes this one.
inline void put_below(test::FakeKernel& kernel, const std::string& way) {
  const std::string link = "sys/bus/pci/devices/" + std::string(test::kGpu);
  kernel.remove(link);
  kernel.link(link, "../../../devices/" + way + "/" + test::kGpu);
  kernel.link("sys/devices/" + way + "/" + test::kGpu, "/sys/devices/pci0000:00/" + std::string(test::kGpu));
}
inline void add_bridge(test::FakeKernel& kernel, const std::string& address, const std::string& config) {
  kernel.add_function(
      {.address = address, .ids = "8086:1901", .class_code = 0x060400, .group = 41, .header_type = 1});
  kernel.file("sys/devices/pci0000:00/" + address + "/config", config);
}
/// The GPU below a root port, and an NVMe disk in its group.
inline auto shared_below(std::optional<unsigned> type, std::optional<test::Acs> acs,
                         std::size_t bytes = 4096) {
  return [=](test::FakeKernel& kernel) {
    add_bridge(kernel, kPort, test::bridge_space(type, acs).substr(0, bytes));
    put_below(kernel, "pci0000:00/" + std::string(kPort));
    kernel.add_function({.address = "0000:66:00.0", .ids = "144d:a80a", .class_code = 0x010802, .group = 41});
  };
}

}  // namespace ferry::vfio
