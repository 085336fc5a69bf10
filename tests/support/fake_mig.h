// SPDX-License-Identifier: Apache-2.0
// GPU instances and mixed sizes on a fake GPU of vendor-specific VFIO: an H200 with the profiles that one
// showed, asked as NVML is.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mdev/gpu_management.h"
#include "tests/support/fake_vendor_vfio.h"

namespace ferry::test {

/// Time-sliced and MIG-backed types of an H200.
std::vector<FakeVgpuType> h200_types();

/// An instance gets the last place that is free for its profile, and keeps it. With mixed sizes vGPUs have
/// places: an H200X-35C one unit at 0 or 3, an H200X-70C two units from 1 or 2 on.
///
/// Keeps what changes in the kernel's tree. Switching virtual functions on or off takes all GPU instances,
/// and mixed sizes, as it does on the real thing.
class FakeMig final : public mdev::GpuManagement {
 public:
  FakeMig(FakeKernel& kernel, FakeVendorVfio& vendor);
  FakeMig(const FakeMig&) = delete;
  FakeMig& operator=(const FakeMig&) = delete;
  FakeMig(FakeMig&&) = delete;
  FakeMig& operator=(FakeMig&&) = delete;
  ~FakeMig() override = default;

  Result<mdev::ManagedGpu> read(const vfio::PciAddress& gpu) override;
  Result<> make_instance(const vfio::PciAddress& gpu, std::uint32_t profile) override;
  Result<> remove_instance(const vfio::PciAddress& gpu, std::uint32_t instance) override;
  Result<> set_mixed_sizes(const vfio::PciAddress& gpu, bool on) override;
  Result<> set_mig(const vfio::PciAddress& gpu, bool on) override;

  /// "2g.35gb" of each GPU instance, sorted.
  std::vector<std::string> instances(const std::string& gpu) const;

  bool vgpu_host = true;     ///< the driver is one that makes vGPUs
  bool knows_types = true;   ///< the library lists the types that the driver has
  bool needs_reset = false;  ///< MIG mode waits for the GPU's next reset
  bool swallow = false;      ///< changes succeed and do nothing

 private:
  struct State {
    bool mig = false;
    bool pending = false;
    bool mixed = false;
    std::uint32_t next = 1;
    struct Instance {
      std::uint32_t profile = 0;
      std::uint32_t start = 0;  ///< its first memory slice
    };
    std::map<std::uint32_t, Instance> instances;  ///< by id
  };
  /// Where one more of a profile could begin.
  static std::vector<std::uint32_t> free_starts(const State& state, std::uint32_t profile);
  State load(const std::string& gpu) const;
  void store(const std::string& gpu, const State& state);
  std::optional<bool> fits(const std::string& gpu, const FakeVgpuType& type,
                           const std::vector<FakeVgpuType>& present) const;

  FakeKernel& kernel_;
  FakeVendorVfio& vendor_;
};

}  // namespace ferry::test
