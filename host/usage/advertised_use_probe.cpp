// SPDX-License-Identifier: Apache-2.0
#include "host/usage/advertised_use_probe.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/stat.h>
#include <utility>

#include "common/text/text.h"
#include "host/usage/use_probes.h"
#include "hostfs/locks.h"

namespace ferry::host {

Result<std::optional<api::AdvertisedResources>> read_advertised_resources(
    const HostFs& host, const std::filesystem::path& file,
    Result<api::AdvertisedResources> (*read)(std::string_view)) {
  const auto text = host.read_file(file);
  if (!text && is_gone(text.error())) return std::optional<api::AdvertisedResources>();
  if (!text) return fail(text.error());
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

namespace {

// The kubelet lists a pod within a second or two of its Allocate.
constexpr std::chrono::seconds kUntilListed{30};

vfio::DeviceUser by_the_kubelet(std::string name, std::string what) {
  return {.kind = vfio::DeviceUser::Kind::pod, .name = std::move(name), .what = std::move(what)};
}

/// True if the file is so new that the kubelet may not list its pods yet, or if its age is not known. A file
/// from the future, after the clock was set back, does not stay fresh for ever.
bool is_fresh(const HostFs& host) {
  const auto fd = host.open(api::kAdvertisedFile, O_RDONLY | O_NONBLOCK);
  struct stat status {};
  if (!fd || ::fstat(fd->get(), &status) != 0) return true;
  const auto written = std::chrono::system_clock::from_time_t(status.st_mtime);
  const auto age = std::chrono::system_clock::now() - written;
  return age > -kUntilListed && age < kUntilListed;
}

bool lists(const std::vector<vfio::PodDevice>& pods, const api::AdvertisedDevice& device) {
  return std::ranges::any_of(pods, [&](const vfio::PodDevice& given) {
    return given.resource == device.resource && std::ranges::find(given.ids, device.id) != given.ids.end();
  });
}

}  // namespace

Result<vfio::UseReport> allocated_users(const HostFs& host, const ListPodDevices& list_devices,
                                        std::span<const vfio::UseQuestion> questions) {
  vfio::UseReport report;
  if (questions.empty()) return report;
  auto read = read_advertised_resources(host, api::kAdvertisedFile, api::read_allocations);
  if (!read) report.unknown.push_back(read.error().message);
  api::AdvertisedResources given = read.value_or(std::nullopt).value_or(api::AdvertisedResources());
  std::erase_if(given.devices, [](const api::AdvertisedDevice& device) { return !device.allocated; });
  if (given.devices.empty()) return report;
  if (const auto pods = list_devices()) {
    if (!is_fresh(host)) return report;
    std::erase_if(given.devices, [&](const api::AdvertisedDevice& device) { return lists(*pods, device); });
  }
  for (const vfio::UseQuestion& question : questions) {
    const auto* const device = find_device(host, given, question.device);
    if (device == nullptr) continue;
    report.users[question.device] = {by_the_kubelet(device->pod.empty() ? "(not listed yet)" : device->pod,
                                                    device->resource + " (allocated by the kubelet)")};
  }
  return report;
}

bool plugin_runs(const HostFs& host, const std::filesystem::path& liveness) {
  return is_present(host, liveness).value_or(true);
}

Result<vfio::UseReport> StillAdvertisedProbe::look(std::span<const vfio::UseQuestion> questions) {
  auto report = inner_->look(questions);
  // The liveness is checked at each scan, because a plugin may have started since the plan.
  if (!report || !plugin_runs(*host_, files_.liveness)) return report;
  // An unreadable file does not show that the device is not advertised.
  auto read = read_advertised_resources(*host_, files_.advertised);
  if (!read) return fail(std::move(read).error());
  const api::AdvertisedResources advertised = std::move(*read).value_or(api::AdvertisedResources());
  const bool answered = advertised.state_generation >= asked_.generation;
  for (const vfio::UseQuestion& question : questions) {
    const auto* const listed = find_device(*host_, advertised, question.device);
    auto& users = report->users[question.device];
    if (listed != nullptr) {
      users.push_back(
          listed->allocated
              ? by_the_kubelet(kSomePod, listed->resource)
              : by_the_kubelet(kAnyPod, listed->resource + ", which the device plugin still advertises"));
    } else if (!answered && asked_.devices.contains(question.device)) {
      users.push_back(by_the_kubelet(kAnyPod, "it, which the device plugin has not made unavailable"));
    }
  }
  return report;
}

}  // namespace ferry::host
