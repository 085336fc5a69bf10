// SPDX-License-Identifier: Apache-2.0
// Virtual functions of a GPU switched on, all of them, and off again. A driver that makes vGPUs on them has
// none after a boot.
//
// The driver's own tool does it where there is one: it takes the driver's unbind lock and binds the GPU anew,
// without which the driver may refuse. Its exit status says nothing (it has been 0 where no function came,
// and other tools' failures pass through), so that the links to the functions are counted after it. ABI:
// NVIDIA's sriov-manage; sriov_numvfs: Documentation/ABI/testing/sysfs-bus-pci.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "vfio/pci_address.h"

namespace ferry {

struct VfSwitch {
  const HostFs& host;
  HostWriter& writer;
  std::chrono::milliseconds deadline = kWriteDeadline;
  std::function<void(std::chrono::milliseconds)> pause;  ///< between two tries of the tool
};

/// `sriov-manage -e ADDRESS` (or -d) of the host or of a driver container's root; absent: there is none.
std::optional<HostCommand> sriov_tool(const HostFs& host, const PciAddress& gpu, bool on);

/// How many virtual functions a GPU has now.
Result<std::uint32_t> count_vfs(const HostFs& host, const PciAddress& gpu);

/// Gives a GPU that has none `total` virtual functions or, by the tool, all that it can have. The tool is
/// tried again, up to five times a second apart, while none has come: whoever opens the GPU for a moment
/// keeps it from the lock. A GPU that it leaves without a driver is bound to the one that it had. Errors: the
/// tool's or the write's, where nothing came, or the bind's; Errc::failed: not all came, or the GPU is on
/// another driver; Errc::stuck.
Result<> enable_vfs(const VfSwitch& on, const PciAddress& gpu, std::uint32_t total);

/// Takes them away. Nothing may be on them. The tool is tried again, as above, while any is left; errors as
/// above, where any is left.
Result<> disable_vfs(const VfSwitch& on, const PciAddress& gpu);

}  // namespace ferry
