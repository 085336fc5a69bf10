// SPDX-License-Identifier: Apache-2.0
#include "mdev/vgpu_writes.h"

#include <algorithm>

#include <fmt/format.h>

#include "mdev/mdev_bus.h"
#include "mdev/text_parts.h"
#include "mdev/vendor_vfio.h"

namespace ferry::mdev {

AttributeWrite creation_write(VgpuFramework framework, const vfio::PciAddress& parent,
                              const std::string& type_id, const VgpuId& id) {
  if (framework == VgpuFramework::vendor_vfio)
    return {.path = current_type_path(parent), .value = type_id, .only_if_unset = true};
  return {.path = create_path(parent, type_id), .value = id.text};
}

AttributeWrite removal_write(VgpuFramework framework, const vfio::PciAddress& parent, const VgpuId& id) {
  if (framework == VgpuFramework::vendor_vfio) return {.path = current_type_path(parent), .value = "0"};
  return {.path = remove_path(parent, id), .value = "1"};
}

AttributeWrite params_write(VgpuFramework framework, const vfio::PciAddress& parent, const VgpuId& id,
                            const std::string& params) {
  const bool vendor = framework == VgpuFramework::vendor_vfio;
  return {.path = vendor ? params_path(parent) : params_path(parent, id), .value = params};
}

AttributeWrite placement_write(VgpuFramework framework, const vfio::PciAddress& parent, const VgpuId& id,
                               std::uint32_t placement) {
  const bool vendor = framework == VgpuFramework::vendor_vfio;
  return {.path = vendor ? placement_path(parent) : placement_path(parent, id),
          .value = std::to_string(placement)};
}

Result<std::uint32_t> available_now(const HostFs& host, VgpuFramework framework,
                                    const vfio::PciAddress& parent, const std::string& type_id) {
  if (framework == VgpuFramework::vendor_vfio) {
    auto types = read_creatable_types(host, parent);
    if (!types) return fail(std::move(types).error());
    return std::ranges::find(*types, type_id, &CreatableType::id) == types->end() ? 0U : 1U;
  }
  const auto path = available_path(parent, type_id);
  auto text = host.read_attribute(path);
  if (!text) return fail(std::move(text).error());
  const auto number = number_at_start(*text);
  if (!number) {
    return fail(Errc::malformed_host, fmt::format("/{}: '{}' is not a number", path.string(), *text));
  }
  return *number;
}

}  // namespace ferry::mdev
