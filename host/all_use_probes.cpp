// SPDX-License-Identifier: Apache-2.0
#include "host/all_use_probes.h"

#include <algorithm>

#include "host/libvirt_use_probe.h"
#include "host/mount_use_probe.h"
#include "host/proc_use_probe.h"

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

}  // namespace

Result<UseReport> CombinedUseProbe::look(std::span<const UseQuestion> questions) {
  UseReport all;
  for (const auto& probe : probes_) {
    auto report = probe->look(questions);
    if (!report) return report;
    for (const auto& [device, holders] : report->holders) add(all.holders[device], holders);
    all.unknown.insert(all.unknown.end(), report->unknown.begin(), report->unknown.end());
  }
  return all;
}

std::unique_ptr<UseProbe> all_use_probes(const HostFs& host) {
  std::vector<std::unique_ptr<UseProbe>> probes;
  probes.push_back(std::make_unique<ProcUseProbe>(host));
  probes.push_back(std::make_unique<MountUseProbe>(host));
  probes.push_back(std::make_unique<LibvirtUseProbe>(
      host, VirtHelper{.program = virt_program(), .host_root = host.root()}));
  return std::make_unique<CombinedUseProbe>(std::move(probes));
}

}  // namespace ferry
