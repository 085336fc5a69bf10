// SPDX-License-Identifier: Apache-2.0
// NVML's calls, made in the host writer's child, so that a library that hangs or crashes does no harm here. A
// change that does not return is recorded like a stuck write, and its GPU is left alone.
#pragma once

#include <string>
#include <string_view>

#include "common/host_writer.h"
#include "mdev/gpu_management.h"

namespace ferry {

/// The library's name in a LibraryCall.
inline constexpr std::string_view kGpuLibrary = "nvml";

class CalledGpuManagement final : public GpuManagement {
 public:
  explicit CalledGpuManagement(HostWriter& writer) : writer_(&writer) {}
  // Errors: those of GpuManagement and of HostWriter::call().
  Result<ManagedGpu> read(const PciAddress& gpu) override;
  Result<> make_instance(const PciAddress& gpu, std::uint32_t profile) override;
  Result<> remove_instance(const PciAddress& gpu, std::uint32_t instance) override;
  Result<> set_mixed_sizes(const PciAddress& gpu, bool on) override;
  Result<> set_mig(const PciAddress& gpu, bool on) override;

 private:
  HostWriter* writer_;
};

/// The child's end: performs a request on `management` and returns the answer. Both are JSON objects. Both
/// ends are one executable, so the format is no interface for other programs.
std::string answer_gpu_call(GpuManagement& management, std::string_view request);

/// answer_gpu_call() on the host's own NVML: the function that the host writer's child calls for kGpuLibrary.
std::string answer_nvml_call(const HostFs& host, std::string_view request);

}  // namespace ferry
