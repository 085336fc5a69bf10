// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/use_probe.h"
#include "virt/virt_client.h"

namespace ferry {

/// Asks libvirt which running domains have a device: also one that is just starting and has opened nothing
/// yet. A host without a libvirt socket has nobody to ask. No answer in time is told in UseReport::unknown;
/// never an error.
class LibvirtUseProbe final : public UseProbe {
 public:
  LibvirtUseProbe(const HostFs& host, VirtHelper helper,
                  std::chrono::milliseconds deadline = kDomainsDeadline)
      : host_(&host), helper_(std::move(helper)), deadline_(deadline) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
  VirtHelper helper_;
  std::chrono::milliseconds deadline_;
};

}  // namespace ferry
