// SPDX-License-Identifier: Apache-2.0
// vGPUs of the fake kernel without mdev: what writes to nvidia/current_vgpu_type of a virtual function do.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/fake_mdev.h"

namespace ferry::test {

/// Keeps what changes in the kernel's tree, so that a process which dies leaves what it has done.
class FakeVendorVfio {
 public:
  explicit FakeVendorVfio(FakeKernel& kernel);
  FakeVendorVfio(const FakeVendorVfio&) = delete;
  FakeVendorVfio& operator=(const FakeVendorVfio&) = delete;
  FakeVendorVfio(FakeVendorVfio&&) = delete;
  FakeVendorVfio& operator=(FakeVendorVfio&&) = delete;
  ~FakeVendorVfio() = default;

  /// Gives the attributes to each virtual function that a function has or is given later. Of the types' IDs
  /// the numbers count.
  void add_gpu(const std::string& address, const std::vector<FakeVgpuType>& types = l40s_types());
  /// A vGPU that somebody else makes, or takes away with 0 (not counted as a change).
  void set(const std::string& function, const std::string& number);
  /// A VM has this virtual function, or lets go of it.
  void hold(const std::string& function, bool held = true);

  /// "L40S-12Q 0000:17:00.4" of each vGPU on a GPU, sorted.
  std::vector<std::string> devices_on(const std::string& address) const;

  // Drivers that misbehave.
  bool swallow_creates = false;  ///< the write succeeds and does nothing
  bool swallow_removes = false;
  unsigned hidden_vgpus = 0;  ///< so many fewer can be created than the lists say
  std::string header = "ID    : vGPU Name\n";

 private:
  int write(const std::string& function, const std::string& value);
  void add_function(const std::string& function);
  void update_creatable(const std::string& address);
  struct Carried {
    unsigned all = 0;
    unsigned framebuffer = 0;  ///< of each
    std::map<std::string, bool> free;
  };
  Carried carried_by(const std::string& address) const;
  static bool creatable(const Carried& carried, const std::string& function, const FakeVgpuType& type);
  const FakeVgpuType* find(const std::string& address, const std::string& number) const;
  std::string type_on(const std::string& function) const;
  std::string owner(const std::string& function) const;

  FakeKernel& kernel_;
  std::map<std::string, std::vector<FakeVgpuType>> gpus_;
};

}  // namespace ferry::test
