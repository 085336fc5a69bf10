// SPDX-License-Identifier: Apache-2.0
// Resets a GPU between two VMs, and reads what its registers prove afterwards, in a child of the host writer.
//
// The child holds the node of the GPU's IOMMU group, so that no VM opens the group meanwhile. The first
// method is the kernel's hot reset through that group: vfio-pci stays bound, no file of sysfs is written, and
// the kernel itself names every function that the reset touches. If that is not possible, the child writes to
// the sysfs file `reset`, for which the kernel chooses the first of its methods (`reset_method`).
//
// ABI: linux/vfio.h, VFIO_DEVICE_GET_PCI_HOT_RESET_INFO and VFIO_DEVICE_PCI_HOT_RESET; sysfs `reset` and,
// since Linux 5.15, `reset_method`.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/pci/pci_address.h"
#include "vfio/registers/register_facts.h"

namespace ferry::vfio {

/// The method by which the group's own descriptors reset a GPU.
inline constexpr const char* kHotReset = "hot-reset";

struct Sanitizing {
  /// A VM or another program has the group open. Without a method nothing was reset; otherwise it came
  /// before the registers proved anything.
  bool in_use = false;
  /// kHotReset, or the kernel's word for a method of `reset_method`: "flr", "bus", "pm". "reset" where the
  /// kernel does not name its methods. Empty: no reset was made.
  std::string method = {};
  /// Why no reset was made, why one failed, or the fault that the registers show after it. Empty: none.
  /// Names the GPU.
  std::string problem = {};
  /// Why a reset proves nothing, as a clause: "its registers are not known". Empty: it is proven.
  std::string unproven = {};
  /// The registers after the reset. Absent: they were not read.
  std::optional<RegisterFacts> registers = {};

  bool is_reset() const { return problem.empty() && !method.empty(); }
  bool is_proven() const { return is_reset() && unproven.empty(); }
};

/// A GPU of Blackwell takes 10 s at most to boot after a reset, and its memory is cleared within 5 s more.
inline constexpr std::chrono::seconds kSanitizeDeadline{20};

/// Resets a GPU on vfio-pci, and waits until its registers prove that it has booted and that its memory was
/// cleared. A GPU of another vendor or with unknown registers is reset alone. Never fails. Only one call at a
/// time may concern the functions of one IOMMU group; several groups may be sanitized side by side. If a hot
/// reset would touch a group that is held, the function is reset by sysfs.
/// `deadline` is that of the proof, which begins after the reset. It may take kRegisterDeadline longer.
Sanitizing sanitize(HostWriter& writer, const HostFs& host, const PciAddress& gpu,
                    std::chrono::milliseconds deadline = kSanitizeDeadline,
                    std::chrono::milliseconds reset_deadline = kWriteDeadline);

/// The child's side, a HostLibrary of this name. The request is an address.
inline constexpr std::string_view kSanitizeLibrary = "sanitize";
std::string answer_sanitize_call(const HostFs& host, std::string_view request);

// The child chooses how a function on vfio-pci is reset, and resets it.

/// A function that a hot reset touches, and its IOMMU group.
struct TouchedFunction {
  PciAddress address;
  std::uint32_t group = 0;
};

/// The calls to VFIO that a reset makes.
class GroupCalls : Pinned {
 public:
  virtual ~GroupCalls() = default;

  /// Opens a group's node, which no VM can open then, and keeps it. EBUSY: a VM or another program has it.
  virtual Result<> hold(std::uint32_t group) = 0;
  /// Opens a function of a held group, and returns all functions that its hot reset touches, itself included.
  virtual Result<std::vector<TouchedFunction>> open_and_list(const PciAddress& function,
                                                             std::uint32_t group) = 0;
  /// Makes the hot reset of the opened function, with the descriptors of all held groups.
  virtual Result<> hot_reset() = 0;
  /// Closes the function, and keeps the groups.
  virtual void close_function() = 0;
};

/// Resets a function, unless its group cannot be held. The answer lacks what registers prove. Never fails.
Sanitizing reset_function(HostFs& host, const PciAddress& address, GroupCalls& calls);

}  // namespace ferry::vfio
