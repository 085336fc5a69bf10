// SPDX-License-Identifier: Apache-2.0
// Whole machines for tests of the reports about a node: status, explain, metrics, labels.
//
// They are composed, not captured: IDs, names and types come from our data tables, all else is made up to be
// likely. A captured one lies in tests/fixtures/hosts and says so.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/fake_kernel.h"
#include "tests/support/fake_mdev.h"
#include "tests/support/fake_vendor_vfio.h"
#include "vfio/use_probe.h"

namespace ferry::test {

/// A host and what only its processes could tell: nobody can hold a device of a tree of files.
struct Machine {
  FakeKernel kernel;
  std::map<std::string, std::vector<vfio::DeviceUser>> users = {};  ///< by address or UUID, for a UseProbe
  FakeMdev& mdev();                                                 ///< made when it is first asked for
  FakeVendorVfio& vendor();

 private:
  std::unique_ptr<FakeMdev> mdev_;
  std::unique_ptr<FakeVendorVfio> vendor_;
};

struct ComposedMachine {
  const char* name;  ///< as in the name of a golden file: "t4-server"
  const char* what;  ///< in a sentence
  void (*build)(Machine& machine);
};

/// All of them, in a fixed order.
std::span<const ComposedMachine> composed_machines();
/// As the parameters of a test, and as its parameters' names: "t4server".
std::vector<std::string> machine_names();
std::string row_of_machine(const testing::TestParamInfo<std::string>& info);
/// One by its name; std::out_of_range.
const ComposedMachine& composed_machine(const std::string& name);

/// What a function's link runs at and could, as the kernel writes it: "16.0 GT/s PCIe", lanes.
struct FakeLink {
  std::string speed = "16.0 GT/s PCIe";
  unsigned width = 16;
  std::string max_speed = "16.0 GT/s PCIe";
  unsigned max_width = 16;
};
void put_link(FakeKernel& kernel, const std::string& address, const FakeLink& link);

/// A VM that holds a device through a node.
vfio::DeviceUser vm_user(const std::string& name, int pid, const std::string& node);

}  // namespace ferry::test
