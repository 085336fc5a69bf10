// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/inventory.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Finds GPUs and switches that are part of an NVLink fabric whose manager runs on this host: taking one away
/// breaks the links of the others, those of running VMs too. The host has a fabric when nv-fabricmanager runs
/// and its switches (the classes that `rules` takes on request) are on a driver of its own, or PCI shows
/// none.
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
