// SPDX-License-Identifier: Apache-2.0
#include "vfio/move_look.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/counted.h"
#include "common/stuck_writes.h"
#include "vfio/driver_modules.h"
#include "vfio/driver_override.h"
#include "vfio/letting_go.h"
#include "vfio/unit_move.h"

namespace ferry {

Error gone(const PciAddress& device) {
  return {.code = make_error_code(Errc::not_found),
          .message = "there is no PCI function " + device.text() + " any more",
          .hint = {}};
}

namespace {

// Counts sys/devices/.../0000:01:00.0/UUID/mdev_type. ABI: Documentation/driver-api/vfio-mediated-device.rst
std::size_t mediated_devices(const HostFs& host, const PciAddress& parent) {
  constexpr std::size_t kUuid = 36;  // in letters
  const auto entries = host.entries(sysfs_path(parent)).value_or(std::vector<DirectoryEntry>{});
  return static_cast<std::size_t>(std::ranges::count_if(entries, [&](const DirectoryEntry& entry) {
    return entry.is_directory && entry.name.size() == kUuid &&
           host.link_name(sysfs_path(parent) / entry.name / "mdev_type").has_value();
  }));
}

}  // namespace

Result<MoveLook> look(const MoveContext& context, const std::vector<PciAddress>& accelerators,
                      const std::set<PciAddress>& with) {
  MoveLook out;
  auto inventory = scan(*context.host);
  if (!inventory) return fail(std::move(inventory).error());
  out.inventory = std::move(*inventory);
  out.drivers = VfioDriverTable::read(*context.host);
  auto record = read_records(*context.host);
  if (!record) return fail(std::move(record).error());
  out.record = std::move(*record);
  find_lost_modules(*context.host, out.inventory, out.record);

  std::vector<PciAddress> there;
  std::ranges::copy_if(accelerators, std::back_inserter(there),
                       [&](const PciAddress& device) { return out.inventory.find(device) != nullptr; });
  auto along = out.record.gone_along();
  along.insert(with.begin(), with.end());
  const auto members = concerned(out.inventory, there, along);
  read_overrides(*context.host, *context.writer, members, out.inventory);
  auto use = context.probe->look(use_questions(*context.host, out.inventory, members));
  if (!use) return fail(std::move(use).error().during("ask who uses the devices"));
  out.use = std::move(*use);
  for (const PciAddress& address : members) {
    if (const std::size_t count = mediated_devices(*context.host, address); count > 0)
      out.mediated.emplace(address, count);
  }

  auto stuck = stuck_writes(*context.host);
  if (!stuck) return fail(std::move(stuck).error());
  for (const StuckWrite& write : *stuck) {
    if (is_read(write)) continue;  // read_overrides() reports it
    for (const PciAddress& address : members) {
      if (concerns(write, address.text())) out.stuck.insert(address.text());
    }
  }
  return out;
}

MovePlan plan(const MoveContext& context, const MoveLook& seen, const MoveRequest& request,
              Direction direction) {
  if (direction == Direction::back)
    return plan_unbind(seen.inventory, context.rules, request, seen.use, seen.record, seen.stuck);
  MoveRequest possible = request;
  possible.release = possible_release(std::move(possible.release), context.releaser);
  for (const auto& [address, count] : seen.mediated) {
    if (!request.sheds_functions.contains(address))
      possible.untouchable.emplace(address, "carries " + counted(count, "mediated device"));
  }
  possible.persistence_by_gpu = context.persistence != nullptr;
  return plan_bind(seen.inventory, context.rules, possible, seen.use, seen.drivers, seen.record, seen.stuck);
}

Result<FirstLook> look_at_all(const MoveContext& context, const MoveRequest& request, Direction direction) {
  auto seen = look(context, request.accelerators, request.with);
  if (!seen) return fail(std::move(seen).error());
  if (direction == Direction::to_vfio) {
    if (auto iommu = require_iommu(seen->inventory); !iommu) return fail(std::move(iommu).error());
  }
  FirstLook out{.seen = std::move(*seen), .request = request, .vanished = {}};
  out.request.accelerators.clear();
  for (const PciAddress& device : request.accelerators) {
    if (out.seen.inventory.find(device) != nullptr) {
      out.request.accelerators.push_back(device);
    } else if (request.by_name.contains(device)) {
      return fail(gone(device));
    } else {
      out.vanished.push_back(device);
    }
  }
  return out;
}

std::vector<std::string> MoveLook::notes(Direction direction) const {
  std::vector<std::string> out = use.unknown;
  out.insert(out.end(), record.notes.begin(), record.notes.end());
  if (direction == Direction::to_vfio && !drivers.warning().empty()) out.push_back(drivers.warning());
  return out;
}

}  // namespace ferry
