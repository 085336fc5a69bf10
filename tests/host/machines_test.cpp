// SPDX-License-Identifier: Apache-2.0
// The composed machines are what they say they are.
#include "tests/support/machines.h"

#include <map>

#include <gmock/gmock.h>

#include "mdev/vgpu_inventory.h"
#include "policy/accelerators.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using test::must;

struct Counts {
  std::size_t accelerators = 0;
  std::size_t vgpus = 0;
  std::size_t functions = 0;  ///< virtual ones
  bool operator==(const Counts&) const = default;
};
void PrintTo(const Counts& counts, std::ostream* out) {
  *out << counts.accelerators << " accelerators, " << counts.vgpus << " vGPUs, " << counts.functions
       << " virtual functions";
}

TEST(ComposedMachines, HaveTheGpusThatTheyAreComposedFor) {
  std::map<std::string, Counts> found;
  for (const test::ComposedMachine& composed : test::composed_machines()) {
    test::Machine machine;
    composed.build(machine);
    const auto inventory = must(vfio::scan(machine.kernel));
    const auto rules = policy::default_accelerator_rules();
    Counts& counts = found[composed.name];
    for (const auto& [address, function] : inventory.functions) {
      if (rules.match(function)) ++counts.accelerators;
      if (vfio::is_accelerators_vf(inventory, rules, function)) ++counts.functions;
    }
    for (const mdev::VgpuGpu& gpu : must(mdev::scan_vgpus(machine.kernel, inventory, rules)).gpus)
      counts.vgpus += gpu.devices.size();
  }
  EXPECT_EQ(found, (std::map<std::string, Counts>{{"laptop", {1, 0, 0}},
                                                  {"nvswitch-board", {8, 0, 0}},
                                                  {"t4-server", {4, 3, 0}},
                                                  {"sriov-host", {2, 3, 8}},
                                                  {"grace", {2, 0, 0}},
                                                  {"without-iommu", {2, 0, 0}},
                                                  {"mixed-vendors", {2, 0, 0}},
                                                  {"large", {16, 128, 512}},
                                                  {"broken", {5, 0, 0}},
                                                  {"one-group", {4, 0, 0}},
                                                  {"policy-node", {2, 0, 0}},
                                                  {"workstation", {1, 0, 0}},
                                                  {"empty", {0, 0, 0}}}));
}

}  // namespace
}  // namespace ferry::host
