// SPDX-License-Identifier: Apache-2.0
#include "host/usage/advertised_resources.h"

#include <set>
#include <utility>

#include "common/text/text.h"

namespace ferry::host {

Result<std::optional<api::AdvertisedResources>> read_advertised_resources(
    const HostFs& host, const std::filesystem::path& file,
    Result<api::AdvertisedResources> (*read)(std::string_view)) {
  const auto text = host.read_file(file);
  if (!text && is_gone(text.error())) return std::optional<api::AdvertisedResources>();
  if (!text) return fail(Error(text.error()));
  auto advertised = read(*text);
  if (!advertised) return fail(std::move(advertised).error());
  return std::optional(std::move(*advertised));
}

std::optional<std::uint32_t> iommu_group_of(const HostFs& host, const std::string& device) {
  for (const char* bus : {"pci", "mdev"}) {
    const auto name =
        host.link_name(std::filesystem::path("sys/bus") / bus / "devices" / device / "iommu_group");
    if (const auto number = name ? whole_number(*name) : std::nullopt) return number;
  }
  return std::nullopt;
}

const api::AdvertisedDevice* find_device(const HostFs& host, const api::AdvertisedResources& advertised,
                                         const std::string& device) {
  std::set<std::uint32_t> groups;
  if (const auto group = iommu_group_of(host, device)) groups.insert(*group);
  return advertised.find({device}, groups);
}

}  // namespace ferry::host
