// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// Adds to the report of `inner` the ResourceClaims that have a
/// device by hostd's record (claims/claim_record.h). The pod of a claim may not have opened the device yet.
/// If the record is there and cannot be read, the report is blind. Only commands of people use it, not hostd.
class ClaimUseProbe final : public vfio::UseProbe {
 public:
  /// Both must outlive this object.
  ClaimUseProbe(const HostFs& host, vfio::UseProbe& inner) : host_(&host), inner_(&inner) {}
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override;

 private:
  const HostFs* host_;
  vfio::UseProbe* inner_;
};

}  // namespace ferry::host
