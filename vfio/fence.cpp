// SPDX-License-Identifier: Apache-2.0
#include "vfio/fence.h"

#include <fcntl.h>
#include <utility>

#include "vfio/group_nodes.h"

namespace ferry {
namespace {

// The kernel's word: a /dev that is not the host's lacks the node of a group all the same.
bool has_no_node(const HostFs& host, const std::string& name) {
  const auto entry = host.open("sys/class/vfio/" + name, O_PATH);
  return !entry && is_gone(entry.error());
}

}  // namespace

Fence::Fence(Fence&& other) noexcept
    : host_(other.host_),
      lock_(other.lock_),
      groups_(std::move(other.groups_)),
      locked_(std::exchange(other.locked_, {})) {}

Fence::~Fence() {
  open();
}

void Fence::open() {
  groups_.clear();
  // A lock that cannot be released ends with the driver's hold on the device; nobody could do more about it.
  for (const PciAddress& device : std::exchange(locked_, {})) (void)lock_->release(device);
}

Result<> Fence::close(const Inventory& inventory, const Move& move) {
  for (const Step& step : move.steps) {
    if (step.kind != Step::Kind::unbind) continue;
    const PciFunction* function = inventory.find(step.address);
    if (function == nullptr) continue;
    auto held = on_vfio_driver(*function)
                    ? (function->iommu_group ? hold_group(*function->iommu_group) : Result<>())
                    : hold_driver(step.address);
    if (!held) {
      open();
      return held;
    }
  }
  return {};
}

Result<> Fence::hold_group(std::uint32_t group) {
  if (groups_.contains(group)) return {};
  for (const std::string& name : group_node_names(group)) {
    const std::string node = "dev/vfio/" + name;
    auto held = host_->open(node, O_RDWR);
    if (held) {
      groups_.emplace(group, std::move(*held));
      return {};
    }
    if (is_gone(held.error()) && has_no_node(*host_, name)) continue;
    if (held.error().code == std::errc::device_or_resource_busy) {
      return fail(Errc::refused, "somebody has opened /" + node + " since its users were looked for",
                  "stop the VM first");
    }
    auto error = std::move(held).error().during("keep VMs from group " + std::to_string(group));
    error.hint =
        "a container needs the host's /dev/vfio, and leave to open it; for a group without an IOMMU "
        "CAP_SYS_RAWIO too";
    return fail(std::move(error));
  }
  return {};  // a kernel without group nodes
}

Result<> Fence::hold_driver(const PciAddress& device) {
  if (lock_ == nullptr) return {};
  auto taken = lock_->take(device);
  if (!taken) return fail(std::move(taken).error());
  if (*taken) locked_.push_back(device);
  return {};
}

}  // namespace ferry
