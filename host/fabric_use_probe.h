// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/inventory.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Finds the GPUs and switches of an NVLink fabric whose manager runs on this host. Taking one of them away
/// breaks the links of the others, including those of running VMs. The host has a fabric if nv-fabricmanager
/// runs and a host driver has the switches (the classes that `rules` take on request), or PCI shows no
/// switch.
class FabricUseProbe final : public UseProbe {
 public:
  /// `host` must outlive this.
  FabricUseProbe(const HostFs& host, AcceleratorRules rules) : host_(&host), rules_(std::move(rules)) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
  AcceleratorRules rules_;
};

}  // namespace ferry
