// SPDX-License-Identifier: Apache-2.0
// Whether this host can have confidential VMs, by what KVM's modules say of themselves, as NVIDIA's CC
// manager asks them. Whether its GPUs are in a fitting mode is the cluster's to say: the labels
// nvidia.com/cc.mode and nvidia.com/cc.ready.state. ABI: arch/x86/kvm/svm/sev.c (sev_snp),
// arch/x86/kvm/vmx/tdx.c (tdx), read-only parameters.
#pragma once

#include <string>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/class_file.h"

namespace ferry {

/// The node of the kernel's IOMMUFD, without which Kata gives a confidential VM no GPU.
inline constexpr const char* kIommufd = "dev/iommu";

struct ConfidentialHost {
  bool snp = false;
  bool tdx = false;

  /// A kernel or a module without such a parameter has none of it. Errors: it is there and cannot be read.
  static Result<ConfidentialHost> read(const HostFs& host);
  /// What is there, for people: "SEV-SNP", or "neither SEV-SNP nor TDX".
  std::string text() const;
  /// Errc::unsupported: the class's VMs cannot be had here. A class that is not confidential always can.
  Result<> admits(const KataClass& kata) const;
};

}  // namespace ferry
