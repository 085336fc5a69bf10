// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/fence.h"

#include <algorithm>
#include <fcntl.h>
#include <utility>

#include <fmt/format.h>

#include "hostfs/kernel_facts.h"
#include "hostfs/stuck_writes.h"
#include "vfio/use_probe.h"

namespace ferry::vfio {
namespace {

constexpr const char* kDirectory = "run/ferry/hostd/unbind-locks";

std::filesystem::path file_of(const PciAddress& device) {
  return std::filesystem::path(kDirectory) / device.text();
}

Result<> forget_lock(HostFs& host, const PciAddress& device) {
  return host.remove_file(file_of(device));
}

}  // namespace

Result<> record_lock(HostFs& host, const PciAddress& device) {
  const auto boot = boot_id(host);
  if (!boot) return fail(Error(boot.error()).during("record which locks are held"));
  return host.write_file(file_of(device), *boot + "\n");
}

Result<std::vector<PciAddress>> recorded_locks(const HostFs& host) {
  std::vector<PciAddress> out;
  const auto names = host.list(kDirectory);
  if (!names) {
    if (is_gone(names.error())) return out;
    return fail(Error(names.error()).during("look for locks that an earlier run has left"));
  }
  const auto boot = boot_id(host);
  if (!boot) return fail(Error(boot.error()).during("look for locks that an earlier run has left"));
  for (const std::string& name : *names) {
    const auto device = PciAddress::parse(name);
    const auto of_boot = host.read_attribute(std::filesystem::path(kDirectory) / name);
    if (device && device->text() == name && of_boot && *of_boot == *boot) out.push_back(*device);
  }
  return out;
}

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
  for (const PciAddress& device : std::exchange(locked_, {}))
    if (!give_back(device)) break;
}

// A lock that cannot be released stays recorded, so that the next run tries again.
bool Fence::give_back(const PciAddress& device) const {
  const auto released = lock_->release(device);
  if (released) (void)forget_lock(*host_, device);
  return released || released.error().code != Errc::stuck;
}

Result<> Fence::close(const Inventory& inventory, const Rebind& rebind) {
  for (const Step& step : rebind.steps) {
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
    if (is_gone(held.error())) {
      // sysfs decides, since a /dev that is not the host's lacks a group's node as well.
      const auto entry = host_->open("sys/class/vfio/" + name, O_PATH);
      if (!entry && is_gone(entry.error())) continue;
    }
    if (held.error().code == std::errc::device_or_resource_busy) {
      return fail(Errc::refused, "/" + node + " was opened after the check for device users",
                  "stop the VM first");
    }
    auto error = std::move(held).error().during("keep VMs from group " + std::to_string(group));
    error.hint =
        "a process of `kubectl exec` may not open it: use Ferry's package on the node. A container needs the "
        "host's /dev/vfio, and the right to open it. A group without an IOMMU also needs CAP_SYS_RAWIO";
    return fail(std::move(error));
  }
  return {};  // a kernel without group nodes
}

Result<> Fence::hold_driver(const PciAddress& device) {
  if (lock_ == nullptr || !lock_->has(device)) return {};
  if (auto recorded = record_lock(*host_, device); !recorded) return recorded;
  auto taken = lock_->take(device);
  if (taken) {
    locked_.push_back(device);
  } else if (taken.error().code == Errc::refused) {
    (void)forget_lock(*host_, device);
  } else if (taken.error().code == Errc::stuck || !give_back(device)) {
    abandon_locks();
  }
  return taken;
}

std::vector<std::string> release_left_locks(HostFs& host, DriverLock& lock) {
  const auto left = recorded_locks(host);
  if (!left) return {left.error().message};
  std::vector<std::string> notes;
  for (const PciAddress& device : *left) {
    const auto stuck = stuck_writes(host);  // an earlier release may be stuck by now
    if (!stuck) return {stuck.error().message};
    // A group with a stuck write gets no further write.
    const auto hangs = [&](const std::string& member) {
      return std::ranges::any_of(*stuck, [&](const StuckWrite& act) { return concerns(act, member); });
    };
    const auto folder = std::filesystem::path("sys/bus/pci/devices") / device.text() / "iommu_group/devices";
    const auto members = host.list(folder).value_or(std::vector<std::string>{device.text()});
    if (std::ranges::any_of(members, hangs)) continue;
    const bool held = lock.has(device);
    auto done = lock.release(device);
    if (done) done = forget_lock(host, device);
    if (!done) {
      notes.push_back(
          fmt::format("the lock of {} against unbinding was left by an earlier run and stays taken: {}",
                      device.text(), done.error().message));
    } else if (held) {
      notes.push_back(fmt::format(
          "the lock of {} against unbinding was left by an earlier run and is given back", device.text()));
    }
  }
  return notes;
}

}  // namespace ferry::vfio
