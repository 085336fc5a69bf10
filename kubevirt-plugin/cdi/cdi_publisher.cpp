// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/cdi/cdi_publisher.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

namespace ferry::plugin {

void CdiPublisher::begin(std::set<std::string> listed) {
  former_ = std::move(listed);
  former_.merge(files_.resources());
  core_.came_before(former_);
}

bool CdiPublisher::replace(std::span<const Resource> found, std::vector<Resource>& advertised,
                           bool allocations_known) {
  entries_.replace(found, advertised);
  const auto failures = files_.update(entries_.resources(), former_in_use(allocations_known));
  for (const auto& [failed, error] : failures) {
    spdlog::error("{}", error.message);
    for (auto& resource : advertised) {
      if (resource.name.text() != failed) continue;
      for (auto& device : resource.devices)
        device.problem = "Kata would not find it, without its CDI specification: " + error.message;
    }
  }
  check_files();
  return failures.empty();
}

void CdiPublisher::check_files() {
  auto faults = watch_.look();
  if (!faults) return;
  for (const CdiFault& fault : *faults) {
    if (std::ranges::find(faults_, fault) != faults_.end()) continue;
    spdlog::warn("{}: {}: Kata reads no CDI file while this one is wrong, and its pods get no device",
                 fault.file.string(), fault.what);
  }
  if (faults->empty() && !faults_.empty()) spdlog::info("Kata can read all CDI files again");
  faults_ = std::move(*faults);
}

std::set<std::string> CdiPublisher::former_in_use(bool allocations_known) const {
  auto in_use = former_;
  if (allocations_known)
    std::erase_if(in_use, [this](const std::string& name) { return !core_.is_claimed(name); });
  return in_use;
}

bool CdiPublisher::drop_released(bool allocations_known) {
  if (!allocations_known) return true;
  const bool dropped = entries_.drop_released(*core_.snapshot());
  const auto in_use = former_in_use(allocations_known);
  if (!dropped && in_use == former_) return true;
  const auto failures = files_.update(entries_.resources(), in_use);
  for (const auto& failure : failures) spdlog::error("{}", failure.error.message);
  if (failures.empty()) former_ = in_use;  // the dropped resources do not come back
  return failures.empty();
}

}  // namespace ferry::plugin
