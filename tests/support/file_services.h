// SPDX-License-Identifier: Apache-2.0
// The services of a host, for tests of whom they let go for.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/support/fake_kernel.h"
#include "vfio/quiesce/release.h"

namespace ferry::test {

/// Services whose state lies in the tree, so that it outlives a process, and whose orders are changes of the
/// host like others.
class FileServices final : public vfio::ServiceManager {
 public:
  explicit FileServices(FakeKernel& kernel) : kernel_(&kernel) {}
  std::set<std::string> stop_fails;
  std::set<std::string> start_fails;
  std::set<std::string> will_not_stop;
  std::vector<std::string> orders;

  void add(const std::string& unit) const { kernel_->file("services/" + unit, "running"); }
  bool runs(const std::string& unit) const {
    return kernel_->read_attribute("services/" + unit).value() == "running";
  }
  Result<> stop(const std::string& unit) override {
    orders.push_back("stop " + unit);
    if (will_not_stop.contains(unit)) return {};
    auto done = kernel_->write("services/" + unit, "stopped");
    if (done && stop_fails.contains(unit)) return fail(Errc::failed, "systemd: the job timed out");
    return done;
  }
  Result<> start(const std::string& unit) override {
    orders.push_back("start " + unit);
    if (start_fails.contains(unit)) return fail(Errc::failed, "systemd: the unit failed");
    if (runs(unit)) return {};
    return kernel_->write("services/" + unit, "running");
  }

 private:
  FakeKernel* kernel_;
};

}  // namespace ferry::test
