// SPDX-License-Identifier: Apache-2.0
#include "host/offered_use_probe.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/stat.h>
#include <utility>

#include "common/presence.h"

namespace ferry {
namespace {

Holder by_the_kubelet(std::string name, std::string what) {
  return {
      .kind = Holder::Kind::pod, .name = std::move(name), .pid = {}, .what = std::move(what), .pod_uid = {}};
}

/// True if the file is so new that the kubelet may not list its pods yet, or if its age is not known. A file
/// from the future, after the clock was set back, does not stay fresh for ever.
bool is_fresh(const HostFs& host) {
  const auto fd = host.open(kOfferedFile, O_RDONLY | O_NONBLOCK);
  struct stat status {};
  if (!fd || ::fstat(fd->get(), &status) != 0) return true;
  const auto written = std::chrono::system_clock::from_time_t(status.st_mtime);
  const auto age = std::chrono::system_clock::now() - written;
  return age > -OfferedUseProbe::kUntilListed && age < OfferedUseProbe::kUntilListed;
}

bool lists(const std::vector<PodDevice>& pods, const OfferedToKubelet& device) {
  return std::ranges::any_of(pods, [&](const PodDevice& given) {
    return given.resource == device.resource && std::ranges::find(given.ids, device.id) != given.ids.end();
  });
}

}  // namespace

Result<UseReport> OfferedUseProbe::look(std::span<const UseQuestion> questions) {
  UseReport report;
  if (questions.empty()) return report;
  auto read = read_offered_devices(*host_);
  if (!read) report.unknown.push_back(read.error().message);
  OfferedDevices given = read.value_or(std::nullopt).value_or(OfferedDevices());
  std::erase_if(given.devices, [](const OfferedToKubelet& device) { return !device.allocated; });
  if (given.devices.empty()) return report;
  if (const auto pods = list_()) {
    if (!is_fresh(*host_)) return report;
    std::erase_if(given.devices, [&](const OfferedToKubelet& device) { return lists(*pods, device); });
  }
  for (const UseQuestion& question : questions) {
    const auto* const device = find_device(*host_, given, question.device);
    if (device == nullptr) continue;
    report.holders[question.device] = {by_the_kubelet(device->pod.empty() ? "(not listed yet)" : device->pod,
                                                      device->resource + " (allocated by the kubelet)")};
  }
  return report;
}

bool plugin_runs(const HostFs& host, const std::filesystem::path& presence) {
  return is_present(host, presence).value_or(true);
}

Result<UseReport> StillOfferedProbe::look(std::span<const UseQuestion> questions) {
  auto report = inner_->look(questions);
  // The presence is checked at each look, because a plugin may have started since the plan.
  if (!report || !plugin_runs(*host_, files_.presence)) return report;
  // An unreadable file does not show that the device is not advertised.
  auto read = read_offered_devices(*host_, files_.offered);
  if (!read) return fail(std::move(read).error());
  const OfferedDevices offered = std::move(*read).value_or(OfferedDevices());
  const bool answered = offered.state_generation >= asked_.generation;
  for (const UseQuestion& question : questions) {
    const auto* const listed = find_device(*host_, offered, question.device);
    auto& holders = report->holders[question.device];
    if (listed != nullptr) {
      holders.push_back(
          listed->allocated
              ? by_the_kubelet(kSomePod, listed->resource)
              : by_the_kubelet(kAnyPod, listed->resource + ", which the device plugin still offers"));
    } else if (!answered && asked_.devices.contains(question.device)) {
      holders.push_back(by_the_kubelet(kAnyPod, "it, which the device plugin has not withdrawn"));
    }
  }
  return report;
}

}  // namespace ferry
