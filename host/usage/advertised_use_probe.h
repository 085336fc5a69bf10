// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "api/advertised_resources.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// Absent: there is no such file, so no device is advertised. `read` may be api::read_allocations instead.
Result<std::optional<api::AdvertisedResources>> read_advertised_resources(
    const HostFs& host,
    Result<api::AdvertisedResources> (*read)(std::string_view) = api::read_advertised_resources);

/// The IOMMU group of a PCI function or a mediated device; absent: it has none.
std::optional<std::uint32_t> iommu_group_of(const HostFs& host, const std::string& device);

/// The advertised device that is this function or mediated device, by ID or group. nullptr: there is none.
const api::AdvertisedDevice* find_device(const HostFs& host, const api::AdvertisedResources& advertised,
                                         const std::string& device);

/// The list of the device plugin that runs; absent: none runs. An error: its file is torn, empty or gone.
Result<std::optional<api::AdvertisedResources>> read_list_of_running_plugin(const HostFs& host);

/// The list of the device plugin that runs; absent: none runs, or the list is not known. While one runs and
/// its file is torn, empty or gone, the report is blind to each device that the list may have: functions on a
/// vfio driver, vGPUs, and those of `asked`.
std::optional<api::AdvertisedResources> list_of_running_plugin(const HostFs& host,
                                                               const std::set<std::string>& asked,
                                                               std::span<const vfio::UseQuestion> questions,
                                                               vfio::UseReport& report);

/// Adds the blindness of list_of_running_plugin() to the report of `inner`, for commands of people.
class RunningPluginProbe final : public vfio::UseProbe {
 public:
  /// `host` must outlive this object.
  RunningPluginProbe(const HostFs& host, std::unique_ptr<vfio::UseProbe> inner)
      : host_(&host), inner_(std::move(inner)) {}
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override;

 private:
  const HostFs* host_;
  std::unique_ptr<vfio::UseProbe> inner_;
};

/// Serves binds of devices that must be unavailable first. It adds list_of_running_plugin() to the report of
/// `inner`: the kubelet counts as the user of each device that the plugin still lists, allocated or not. The
/// same holds for a device of which the plugin has not confirmed that it is unavailable.
class StillAdvertisedProbe final : public vfio::UseProbe {
 public:
  struct Asked {
    std::set<std::string> devices;  ///< the devices that the plugin must make unavailable
    std::uint64_t generation = 0;   ///< of the status.json with these unavailable devices
  };
  /// All must outlive this object.
  StillAdvertisedProbe(const HostFs& host, vfio::UseProbe& inner, Asked asked)
      : host_(&host), inner_(&inner), asked_(std::move(asked)) {}
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override;

 private:
  const HostFs* host_;
  vfio::UseProbe* inner_;
  Asked asked_;
};

/// DeviceUser::name of a device that the plugin still lists and no pod has.
inline constexpr const char* kAnyPod = "(any that asks for it)";

/// DeviceUser::name of a device with an unidentified pod; the kubelet names the pod in another device user.
inline constexpr const char* kSomePod = "(by the kubelet)";

/// True if a plugin runs, or if that is not known.
bool plugin_runs(const HostFs& host);

}  // namespace ferry::host
