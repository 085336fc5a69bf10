// SPDX-License-Identifier: Apache-2.0
#include "host/all_use_probes.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "host/console_use_probe.h"
#include "host/fabric_use_probe.h"
#include "host/libvirt_use_probe.h"
#include "host/mount_use_probe.h"
#include "host/network_use_probe.h"
#include "host/offered_use_probe.h"
#include "host/proc_use_probe.h"
#include "host/screen_use_probe.h"

namespace ferry {
namespace {

bool same_vm(const Holder& a, const Holder& b) {
  return a.kind == Holder::Kind::virtual_machine && b.kind == Holder::Kind::virtual_machine &&
         a.name == b.name && (!a.pid || !b.pid || a.pid == b.pid);
}

void add(std::vector<Holder>& known, const std::vector<Holder>& found) {
  const std::vector<Holder> earlier = known;
  for (const Holder& holder : found) {
    const auto told = [&](const Holder& other) { return same_vm(other, holder); };
    if (std::ranges::none_of(earlier, told)) known.push_back(holder);
  }
}

// NVIDIA's driver makes its nodes without telling sysfs: /dev/nvidia<minor>, major 195, the minor being in
// the function's information file under /proc/driver/nvidia (NVIDIA's driver README, "/proc interface").
void add_driver_nodes(const HostFs& host, UseQuestion& question) {
  constexpr std::uint32_t kMajor = 195;
  constexpr std::string_view kKey = "Device Minor:";
  const auto text =
      host.read_file(std::filesystem::path("proc/driver/nvidia/gpus") / question.device / "information");
  if (!text) return;
  const auto at = text->find(kKey);
  if (at == std::string::npos) return;
  const auto digits = text->find_first_of("0123456789", at + kKey.size());
  if (digits == std::string::npos || digits > text->find('\n', at)) return;
  std::uint32_t minor = 0;
  if (std::from_chars(text->data() + digits, text->data() + text->size(), minor).ec != std::errc()) return;
  question.nodes.push_back(
      {.name = "/dev/nvidia" + std::to_string(minor), .number = {.major = kMajor, .minor = minor}});
}

}  // namespace

Result<UseReport> CombinedUseProbe::look(std::span<const UseQuestion> asked) {
  std::vector<UseQuestion> questions(asked.begin(), asked.end());
  for (UseQuestion& question : questions) add_driver_nodes(*host_, question);
  UseReport all;
  for (const auto& probe : probes_) {
    auto report = probe->look(questions);
    if (!report) return report;
    for (const auto& [device, holders] : report->holders) add(all.holders[device], holders);
    if (all.blind.empty()) all.blind = report->blind;
    all.unknown.insert(all.unknown.end(), report->unknown.begin(), report->unknown.end());
  }
  return all;
}

std::unique_ptr<UseProbe> all_use_probes(const HostFs& host, const AcceleratorRules& rules,
                                         ListPodDevices pods) {
  std::vector<std::unique_ptr<UseProbe>> probes;
  probes.push_back(std::make_unique<ProcUseProbe>(host));
  probes.push_back(std::make_unique<MountUseProbe>(host));
  probes.push_back(std::make_unique<NetworkUseProbe>(host));
  probes.push_back(std::make_unique<ScreenUseProbe>(host));
  probes.push_back(std::make_unique<ConsoleUseProbe>(host));
  probes.push_back(std::make_unique<FabricUseProbe>(host, rules));
  probes.push_back(std::make_unique<LibvirtUseProbe>(
      host, VirtHelper{.program = virt_program(), .host_root = host.root()}));
  probes.push_back(std::make_unique<PodUseProbe>(host, pods));
  probes.push_back(std::make_unique<OfferedUseProbe>(host, std::move(pods)));
  return std::make_unique<CombinedUseProbe>(host, std::move(probes));
}

}  // namespace ferry
