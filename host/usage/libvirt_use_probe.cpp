// SPDX-License-Identifier: Apache-2.0
#include "host/usage/libvirt_use_probe.h"

#include <algorithm>

namespace ferry::host {
namespace {

bool has(const virt::Domain& domain, const std::string& device) {
  return std::ranges::find(domain.mdev, device) != domain.mdev.end() ||
         std::ranges::find(domain.pci, device, &vfio::PciAddress::text) != domain.pci.end();
}

}  // namespace

Result<vfio::UseReport> LibvirtUseProbe::look(std::span<const vfio::UseQuestion> questions) {
  vfio::UseReport report;
  const bool present =
      host_->exists("run/libvirt/libvirt-sock") || host_->exists("run/libvirt/virtqemud-sock");
  if (questions.empty() || !present) return report;
  const auto domains = virt::running_domains(helper_, deadline_);
  if (!domains) {
    report.unknown.push_back("libvirt: " + domains.error().message);
    return report;
  }
  for (const vfio::UseQuestion& question : questions) {
    for (const virt::Domain& domain : *domains) {
      if (!has(domain, question.device)) continue;
      report.holders[question.device].push_back({.kind = vfio::Holder::Kind::virtual_machine,
                                                 .name = domain.name,
                                                 .pid = domain.pid,
                                                 .what = question.device + " as a host device",
                                                 .pod_uid = {}});
    }
  }
  return report;
}

}  // namespace ferry::host
