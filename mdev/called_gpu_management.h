// SPDX-License-Identifier: Apache-2.0
// The driver's library, asked through the host writer's child: it may hang or crash there, and a change that
// does not return is recorded and left alone as any other.
#pragma once

#include <string>
#include <string_view>

#include "common/host_writer.h"
#include "mdev/gpu_management.h"

namespace ferry {

/// The name in a LibraryCall.
inline constexpr std::string_view kGpuLibrary = "nvml";

class CalledGpuManagement final : public GpuManagement {
 public:
  explicit CalledGpuManagement(HostWriter& writer) : writer_(&writer) {}
  // Beside the errors of GpuManagement those of HostWriter::call().
  Result<ManagedGpu> read(const PciAddress& gpu) override;
  Result<> make_instance(const PciAddress& gpu, std::uint32_t profile) override;
  Result<> remove_instance(const PciAddress& gpu, std::uint32_t instance) override;
  Result<> set_mixed_sizes(const PciAddress& gpu, bool on) override;
  Result<> set_mig(const PciAddress& gpu, bool on) override;

 private:
  HostWriter* writer_;
};

/// The other end: does to `management` what a request says, and answers. A request or answer is a JSON
/// object; both ends are one executable, and it is no interface for others.
std::string answer_gpu_call(GpuManagement& management, std::string_view request);

/// What the host writer's child offers: answer_gpu_call() on the host's own library.
std::string answer_nvml_call(const HostFs& host, std::string_view request);

}  // namespace ferry
