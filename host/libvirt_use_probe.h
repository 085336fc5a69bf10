// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/use_probe.h"
#include "virt/virt_client.h"

namespace ferry {

/// Asks libvirt which running domains have a device, including a domain that is just starting and has opened
/// nothing yet. Without a libvirt socket nothing is asked. A missing answer is noted in UseReport::unknown
/// and is never an error.
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
