// SPDX-License-Identifier: Apache-2.0
#include "host/usage/libvirt_use_probe.h"

#include <algorithm>

namespace ferry {
namespace {

bool has(const Domain& domain, const std::string& device) {
  return std::ranges::find(domain.mdev, device) != domain.mdev.end() ||
         std::ranges::find(domain.pci, device, &PciAddress::text) != domain.pci.end();
}

}  // namespace

Result<UseReport> LibvirtUseProbe::look(std::span<const UseQuestion> questions) {
  UseReport report;
  const bool present =
      host_->exists("run/libvirt/libvirt-sock") || host_->exists("run/libvirt/virtqemud-sock");
  if (questions.empty() || !present) return report;
  const auto domains = running_domains(helper_, deadline_);
  if (!domains) {
    report.unknown.push_back("libvirt: " + domains.error().message);
    return report;
  }
  for (const UseQuestion& question : questions) {
    for (const Domain& domain : *domains) {
      if (!has(domain, question.device)) continue;
      report.holders[question.device].push_back({.kind = Holder::Kind::virtual_machine,
                                                 .name = domain.name,
                                                 .pid = domain.pid,
                                                 .what = question.device + " as a host device",
                                                 .pod_uid = {}});
    }
  }
  return report;
}

}  // namespace ferry
