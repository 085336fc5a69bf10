// SPDX-License-Identifier: Apache-2.0
// The confidential computing mode of a node's GPUs, from their registers as hostd reports them, else from the
// labels of NVIDIA's CC manager. This code reads no GPU and switches none. ABI: nvidia.com/cc.mode, the
// requested mode (on, off, devtools, ppcie); nvidia.com/cc.mode.state, the mode that the manager reached, or
// "failed".
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "api/host_status.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/classes/class_file.h"

namespace ferry::kata {

// Reads from KVM's modules whether this host can run confidential VMs, as NVIDIA's CC manager does. ABI:
// arch/x86/kvm/svm/sev.c (sev_snp), arch/x86/kvm/vmx/tdx.c (tdx), read-only parameters.

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

struct ConfidentialMode {
  enum class State {
    unknown,  ///< no register and no label shows the mode
    off,
    on,
    devtools,  ///< VMs get the GPU as with `on`, but nothing is protected
    ppcie,     ///< on for GPUs and NVSwitches together
    failed,    ///< a switch failed, or the GPUs' registers show several modes
  };
  State state = State::unknown;
  std::string why_unknown = "no Node object was named";  ///< used with State::unknown only
  std::string asked_for = {};                            ///< nvidia.com/cc.mode; empty: no mode
  /// nvidia.com/cc.ready.state, which RuntimeClasses select; absent: no such label, or no Node was named.
  std::optional<std::string> ready = {};
  bool of_a_node = false;  ///< a Node was named
  /// "off by the registers of 0000:17:00.0"; empty: the mode is that of the label.
  std::string by_registers = {};

  /// The mode from a Node's labels. A value that the manager does not write is unknown, and so is a mode
  /// that is only requested.
  static ConfidentialMode of_labels(const std::map<std::string, std::string>& labels);
  /// Takes the mode that the registers of all GPUs show, whatever the label has, or of one that is in no
  /// confidential mode. Else the mode stays as it is.
  void take_registers(const api::HostStatus& host);
  /// "on", "off; on is asked for" or "unknown: REASON", for people.
  std::string text() const;
  bool known() const { return state != State::unknown; }
  /// Errc::unsupported: the class's VMs are confidential, and the GPUs' mode does not fit. An unknown mode
  /// is not refused.
  Result<> admits(const KataClass& kata) const;
};

/// "on", for example; "unknown" for State::unknown.
std::string_view text(ConfidentialMode::State state);
/// Parses a mode. Absent: the manager writes no such text; it never writes "unknown".
std::optional<ConfidentialMode::State> confidential_state(std::string_view text);

}  // namespace ferry::kata
