// SPDX-License-Identifier: Apache-2.0
// Reads from KVM's modules whether this host can run confidential VMs, as NVIDIA's CC manager does. The
// mode of its GPUs is in the labels nvidia.com/cc.mode and nvidia.com/cc.ready.state. ABI:
// arch/x86/kvm/svm/sev.c (sev_snp), arch/x86/kvm/vmx/tdx.c (tdx), read-only parameters.
#pragma once

#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/classes/class_file.h"

namespace ferry::kata {

/// The device node of IOMMUFD, without which Kata gives a confidential VM no GPU.
inline constexpr const char* kIommufd = "dev/iommu";

struct ConfidentialHost {
  bool snp = false;
  bool tdx = false;

  /// A missing parameter reads as false. Errors: a parameter that is there cannot be read.
  static Result<ConfidentialHost> read(const HostFs& host);
  /// "SEV-SNP", "TDX" or "neither SEV-SNP nor TDX", for people.
  std::string text() const;
  /// Errc::unsupported: this host cannot run the class's VMs. Classes that are not confidential pass.
  Result<> admits(const KataClass& kata) const;
};

}  // namespace ferry::kata
