// SPDX-License-Identifier: Apache-2.0
#include "host/usage/advertised_use_probe.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "api/files.h"
#include "common/file_status.h"
#include "common/text/text.h"
#include "host/usage/use_probes.h"
#include "hostfs/locks.h"
#include "vfio/pci/inventory.h"

namespace ferry::host {

Result<std::optional<api::AdvertisedResources>> read_advertised_resources(
    const HostFs& host, Result<api::AdvertisedResources> (*read)(std::string_view)) {
  // Its folder belongs to a less trusted process, which must not choose what hostd opens.
  const auto text = host.read_file(api::kAdvertisedFile, HostFs::Links::refused);
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
  const auto fd = host.open(api::kAdvertisedFile, O_PATH | O_NOFOLLOW);
  const auto status = fd ? file_status(fd->get()) : std::nullopt;
  if (!status) return true;
  const auto written = std::chrono::system_clock::from_time_t(status->st_mtime);
  const auto age = std::chrono::system_clock::now() - written;
  return age > -kUntilListed && age < kUntilListed;
}

}  // namespace

Result<vfio::UseReport> allocated_users(const HostFs& host, const ListPodDevices& list_devices,
                                        std::span<const vfio::UseQuestion> questions) {
  vfio::UseReport report;
  if (questions.empty()) return report;
  auto read = read_advertised_resources(host, api::read_allocations);
  if (!read) report.unknown.push_back(read.error().message);
  api::AdvertisedResources given = read.value_or(std::nullopt).value_or(api::AdvertisedResources());
  std::erase_if(given.devices, [](const api::AdvertisedDevice& device) { return !device.allocated; });
  if (given.devices.empty()) return report;
  if (const auto pods = list_devices()) {
    if (!is_fresh(host)) return report;
    std::erase_if(given.devices, [&](const api::AdvertisedDevice& device) {
      return std::ranges::any_of(*pods, [&](const vfio::PodDevice& listed) {
        return listed.resource == device.resource &&
               std::ranges::find(listed.ids, device.id) != listed.ids.end();
      });
    });
  }
  for (const vfio::UseQuestion& question : questions) {
    const auto* const device = find_device(host, given, question.device);
    if (device == nullptr) continue;
    report.users[question.device] = {by_the_kubelet(device->pod.empty() ? "(not listed yet)" : device->pod,
                                                    device->resource + " (allocated by the kubelet)")};
  }
  return report;
}

bool plugin_runs(const HostFs& host) {
  return is_present(host, api::kPluginLiveness).value_or(true);
}

Result<std::optional<api::AdvertisedResources>> read_list_of_running_plugin(const HostFs& host) {
  if (!plugin_runs(host)) return std::optional<api::AdvertisedResources>();
  auto read = read_advertised_resources(host);
  if (read && *read) return read;
  const std::string fault =
      read ? fmt::format("/{} is not there", api::kAdvertisedFile) : read.error().message;
  return fail(Errc::malformed_host, "the device plugin runs, and its list is not known: " + fault,
              "see its log, and restart it");
}

std::optional<api::AdvertisedResources> list_of_running_plugin(const HostFs& host,
                                                               const std::set<std::string>& asked,
                                                               std::span<const vfio::UseQuestion> questions,
                                                               vfio::UseReport& report) {
  // The liveness is checked at each look, because a plugin may have started since the plan.
  if (questions.empty()) return std::nullopt;
  auto read = read_list_of_running_plugin(host);
  if (read) return std::move(*read);
  const std::string why = fmt::format("{}; {}", read.error().message, read.error().hint);
  for (const vfio::UseQuestion& question : questions) {
    // A plugin lists a function on a vfio driver whole, and a mediated device or a virtual function as a
    // vGPU. It lists no others, and no function that has gone.
    bool is_whole = false;
    bool is_vgpu = true;
    if (const auto address = vfio::PciAddress::parse(question.device)) {
      const auto function = vfio::read_function(host, *address);
      is_vgpu = function && function->is_virtual_function();
      is_whole = function && !is_vgpu && vfio::on_vfio_driver(*function);
    }
    if (is_whole || is_vgpu || asked.contains(question.device)) report.unseen[question.device] = why;
    if (!is_vgpu) continue;
    report.blind = why;  // a deleted vGPU cannot be put back
    report.blind_hint = "`kubectl logs`, or the journal, shows what the device plugin says";
  }
  return std::nullopt;
}

Result<vfio::UseReport> RunningPluginProbe::look(std::span<const vfio::UseQuestion> questions) {
  auto report = inner_->look(questions);
  if (report) (void)list_of_running_plugin(*host_, {}, questions, *report);
  return report;
}

Result<vfio::UseReport> StillAdvertisedProbe::look(std::span<const vfio::UseQuestion> questions) {
  auto report = inner_->look(questions);
  if (!report) return report;
  const auto advertised = list_of_running_plugin(*host_, asked_.devices, questions, *report);
  if (!advertised) return report;
  const bool answered = advertised->state_generation >= asked_.generation;
  for (const vfio::UseQuestion& question : questions) {
    const auto* const listed = find_device(*host_, *advertised, question.device);
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
