// SPDX-License-Identifier: Apache-2.0
#include "api/claimable_gpus.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "api/files.h"
#include "common/text/json.h"
#include "common/text/json_fields.h"

namespace ferry::api {
namespace {

constexpr const char* kHint = "ferry hostd writes it: is it of the same version? A restart writes it anew";

}  // namespace

template <typename Io, SameAs<VgpuType> Value>
void fields(Io& io, Value& type) {
  io("id", type.id);
  io.check("id", !type.id.empty(), "expected the ID of a vGPU type");
  io.or_default("name", type.name);
  io.or_default("short_name", type.short_name);
  io("framebuffer_mib", type.framebuffer_mib);
  io.or_null("most_per_gpu", type.most_per_gpu);
  io("allowed", type.allowed);
  io("size", type.size);
  io("placements", type.placements);
  io.or_null("fills", type.fills);
}

template <typename Io, SameAs<ClaimableGpu> Value>
void fields(Io& io, Value& gpu) {
  io("address", gpu.address);
  io.or_null("iommu_group", gpu.iommu_group);
  io("vendor", gpu.vendor);
  io("device", gpu.device);
  io.or_default("product", gpu.product);
  io("memory_mib", gpu.memory_mib);
  io.or_default("bar_mib", gpu.bar_mib);
  io.or_null("numa_node", gpu.numa_node);
  io.or_null("pcie_root", gpu.pcie_root);
  io("for_dra", gpu.for_dra);
  io("whole", gpu.whole);
  io("framework", gpu.framework);
  io("mixed_sizes", gpu.mixed_sizes);
  io("types", gpu.types);
  io("health", gpu.health);
  io.or_null("reason", gpu.reason);
  io.or_null("vgpu_reason", gpu.vgpu_reason);
  io.or_default("lost_claims", gpu.lost_claims);
  io.or_default("unplugged", gpu.unplugged);
}

namespace {

struct File {
  std::vector<ClaimableGpu> gpus = {};
};

template <typename Io, SameAs<File> Value>
void fields(Io& io, Value& file) {
  io.version(kClaimableGpusVersion);
  io("gpus", file.gpus);
  if constexpr (Io::kReads) {
    auto sorted = file.gpus;
    std::ranges::sort(sorted, {}, &ClaimableGpu::address);
    const auto twice = std::ranges::adjacent_find(sorted, {}, &ClaimableGpu::address);
    if (twice != sorted.end()) io.check("gpus", false, twice->address.text() + " stands twice");
  }
}

}  // namespace

std::string claimable_gpus_text(const std::vector<ClaimableGpu>& gpus) {
  File file{.gpus = gpus};
  std::ranges::stable_sort(file.gpus, {}, &ClaimableGpu::address);
  return json_text(written_fields(file));
}

Result<std::vector<ClaimableGpu>> read_claimable_gpus(std::string_view text) {
  auto file = read_json(text, kClaimableGpusFile, kHint, read_fields<File>);
  if (!file) return fail(std::move(file).error());
  return std::move(file->gpus);
}

}  // namespace ferry::api
