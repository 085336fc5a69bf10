// SPDX-License-Identifier: Apache-2.0
#include "host/usage/all_use_probes.h"

#include <algorithm>
#include <utility>

#include "host/usage/console_use_probe.h"
#include "host/usage/disk_use_probe.h"
#include "host/usage/fabric_use_probe.h"
#include "host/usage/libvirt_use_probe.h"
#include "host/usage/module_use_probe.h"
#include "host/usage/network_use_probe.h"
#include "host/usage/offered_use_probe.h"
#include "host/usage/proc_use_probe.h"
#include "host/usage/screen_use_probe.h"

namespace ferry::host {
namespace {

bool same_vm(const vfio::Holder& a, const vfio::Holder& b) {
  return a.kind == vfio::Holder::Kind::virtual_machine && b.kind == vfio::Holder::Kind::virtual_machine &&
         a.name == b.name && (!a.pid || !b.pid || a.pid == b.pid);
}

void add(std::vector<vfio::Holder>& known, const std::vector<vfio::Holder>& found) {
  const std::vector<vfio::Holder> earlier = known;
  for (const vfio::Holder& holder : found) {
    const auto told = [&](const vfio::Holder& other) { return same_vm(other, holder); };
    if (std::ranges::none_of(earlier, told)) known.push_back(holder);
  }
}

}  // namespace

Result<vfio::UseReport> CombinedUseProbe::look(std::span<const vfio::UseQuestion> asked) {
  std::vector<vfio::UseQuestion> questions(asked.begin(), asked.end());
  vfio::UseReport all;
  for (vfio::UseQuestion& question : questions) {
    if (auto added = add_nvidia_nodes(*host_, read_, question); !added)
      all.unseen.emplace(question.device, added.error().message);
  }
  for (const auto& probe : probes_) {
    auto report = probe->look(questions);
    if (!report) return report;
    for (const auto& [device, holders] : report->holders) add(all.holders[device], holders);
    if (all.blind.empty()) all.blind = report->blind;
    all.unseen.insert(report->unseen.begin(), report->unseen.end());
    all.unknown.insert(all.unknown.end(), report->unknown.begin(), report->unknown.end());
  }
  return all;
}

std::unique_ptr<vfio::UseProbe> all_use_probes(const HostFs& host, const vfio::AcceleratorRules& rules,
                                               ListPodDevices pods, KubeletSilence silence) {
  std::vector<std::unique_ptr<vfio::UseProbe>> probes;
  probes.push_back(std::make_unique<ProcUseProbe>(host));
  probes.push_back(std::make_unique<DiskUseProbe>(host, claim_by_another_process(host)));
  probes.push_back(std::make_unique<NetworkUseProbe>(host));
  probes.push_back(std::make_unique<ScreenUseProbe>(host));
  probes.push_back(std::make_unique<ConsoleUseProbe>(host));
  probes.push_back(std::make_unique<ModuleUseProbe>(host));
  probes.push_back(std::make_unique<FabricUseProbe>(host, rules));
  probes.push_back(std::make_unique<LibvirtUseProbe>(
      host, virt::VirtHelper{.program = virt::virt_program(), .host_root = host.root()}));
  probes.push_back(std::make_unique<PodUseProbe>(host, pods, silence));
  probes.push_back(std::make_unique<OfferedUseProbe>(host, std::move(pods)));
  return std::make_unique<CombinedUseProbe>(host, read_by_another_process(host), std::move(probes));
}

}  // namespace ferry::host
