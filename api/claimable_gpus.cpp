// SPDX-License-Identifier: Apache-2.0
#include "api/claimable_gpus.h"

#include <algorithm>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "api/files.h"
#include "common/text/json.h"
#include "common/text/words.h"

namespace ferry::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHint = "ferry hostd writes it: is it of the same version? A restart writes it anew";

constexpr Words<VgpuFramework, 3> kFrameworks = {{{"none", VgpuFramework::none},
                                                  {"mdev", VgpuFramework::mdev},
                                                  {"vendor_vfio", VgpuFramework::vendor_vfio}}};

constexpr Words<GpuHealth, 2> kHealth = {{{"ready", GpuHealth::ready}, {"unhealthy", GpuHealth::unhealthy}}};

std::optional<VgpuFramework> parse_framework(std::string_view word) {
  return value_for(kFrameworks, word);
}

std::optional<GpuHealth> parse_health(std::string_view word) {
  return value_for(kHealth, word);
}

Json json_of(const VgpuType& type) {
  return {{"id", type.id},
          {"name", type.name},
          {"short_name", type.short_name},
          {"framebuffer_mib", type.framebuffer_mib},
          {"most_per_gpu", or_null(type.most_per_gpu)},
          {"allowed", type.allowed},
          {"size", type.size},
          {"placements", type.placements}};
}

Json json_of(const ClaimableGpu& gpu) {
  auto types = Json::array();
  for (const VgpuType& type : gpu.types) types.push_back(json_of(type));
  return {{"address", gpu.address.text()},
          {"iommu_group", or_null(gpu.iommu_group)},
          {"vendor", gpu.vendor},
          {"device", gpu.device},
          {"product", gpu.product},
          {"memory_mib", gpu.memory_mib},
          {"numa_node", or_null(gpu.numa_node)},
          {"pcie_root", or_null(gpu.pcie_root)},
          {"for_dra", gpu.for_dra},
          {"whole", gpu.whole},
          {"framework", word_for(kFrameworks, gpu.framework)},
          {"mixed_sizes", gpu.mixed_sizes},
          {"types", std::move(types)},
          {"health", word_for(kHealth, gpu.health)},
          {"reason", or_null(gpu.reason)},
          {"vgpu_reason", or_null(gpu.vgpu_reason)},
          {"lost_claims", gpu.lost_claims}};
}

VgpuType read_type(const JsonObject& type) {
  VgpuType out{.id = type.text("id"),
               .name = type.text_or_none("name"),
               .short_name = type.text_or_none("short_name"),
               .framebuffer_mib = type.number<std::uint32_t>("framebuffer_mib"),
               .most_per_gpu = type.number_or_none<std::uint32_t>("most_per_gpu"),
               .allowed = type.flag("allowed"),
               .size = type.number<std::uint32_t>("size"),
               .placements = type.numbers("placements")};
  if (out.id.empty()) type.blame("id", "expected the ID of a vGPU type");
  return out;
}

ClaimableGpu read_gpu(const JsonObject& gpu) {
  const auto address = vfio::PciAddress::parse(gpu.text("address"));
  if (!address) gpu.blame("address", address.error().message);
  return {.address = address.value_or(vfio::PciAddress()),
          .iommu_group = gpu.number_or_none<std::uint32_t>("iommu_group"),
          .vendor = gpu.number<std::uint16_t>("vendor"),
          .device = gpu.number<std::uint16_t>("device"),
          .product = gpu.text_or_none("product"),
          .memory_mib = gpu.number<std::uint32_t>("memory_mib"),
          .numa_node = gpu.number_or_none<int>("numa_node"),
          .pcie_root = gpu.text_or_none("pcie_root"),
          .for_dra = gpu.flag("for_dra"),
          .whole = gpu.flag("whole"),
          .framework = gpu.word("framework", parse_framework, VgpuFramework::none),
          .mixed_sizes = gpu.flag("mixed_sizes"),
          .types = gpu.list("types", read_type),
          .health = gpu.word("health", parse_health, GpuHealth::unhealthy),
          .reason = gpu.text_or_none("reason"),
          .vgpu_reason = gpu.text_or_none("vgpu_reason"),
          .lost_claims = gpu.texts_or_none("lost_claims")};
}

std::vector<ClaimableGpu> read_whole(const JsonObject& file) {
  file.expect_version(kClaimableGpusVersion);
  std::vector<ClaimableGpu> out = file.list("gpus", read_gpu);
  std::set<vfio::PciAddress> seen;
  for (const ClaimableGpu& gpu : out)
    if (!seen.insert(gpu.address).second) file.blame("gpus", gpu.address.text() + " stands twice");
  return out;
}

}  // namespace

std::string claimable_gpus_text(const std::vector<ClaimableGpu>& gpus) {
  std::vector<ClaimableGpu> sorted = gpus;
  std::ranges::stable_sort(sorted, {}, &ClaimableGpu::address);
  auto list = Json::array();
  for (const ClaimableGpu& gpu : sorted) list.push_back(json_of(gpu));
  return json_text({{"version", kClaimableGpusVersion}, {"gpus", std::move(list)}});
}

Result<std::vector<ClaimableGpu>> read_claimable_gpus(std::string_view text) {
  return read_json(text, kClaimableGpusFile, kHint, read_whole);
}

}  // namespace ferry::api
