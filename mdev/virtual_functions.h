// SPDX-License-Identifier: Apache-2.0
// Enables virtual functions of a GPU, and disables them. After a boot a driver that makes vGPUs on virtual
// functions has none.
//
// NVIDIA's tool sriov-manage is used if the host has it: the tool takes the driver's unbind lock and rebinds
// the GPU, without which the driver may refuse. The tool's exit status is unreliable (0 without any function,
// or the failure of another tool), so the links to the functions are counted. ABI: NVIDIA's sriov-manage;
// sriov_numvfs, sriov_drivers_autoprobe: Documentation/ABI/testing/sysfs-bus-pci.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/pci/pci_address.h"

namespace ferry::mdev {

struct VfSwitch {
  HostFs& host;
  HostWriter& writer;
  std::chrono::milliseconds deadline = kWriteDeadline;
  std::function<void(std::chrono::milliseconds)> pause;  ///< waits between two tries of the tool
};

/// Enables `total` virtual functions on a GPU that has none; the tool enables all that the GPU can have.
/// While none has appeared, the tool is tried up to five times, a second apart: a process with the GPU open
/// keeps the tool from the lock. A GPU that the tool leaves without a driver is bound to its old one. Errors:
/// the tool's or the write's if none appeared, or the bind's. Errc::failed: some are missing, or the GPU is
/// on another driver. Errc::stuck.
Result<> enable_vfs(const VfSwitch& on, const vfio::PciAddress& gpu, std::uint32_t total);

/// Disables all virtual functions, which must carry nothing. The tool is tried again, as above, while any is
/// left. Errors as above, if any is left.
Result<> disable_vfs(const VfSwitch& on, const vfio::PciAddress& gpu);

// Virtual functions that no driver of the host gets, of a GPU without NVIDIA's tool.

/// sriov_drivers_autoprobe: the kernel offers new virtual functions of the GPU to drivers. Absent: the kernel
/// does not say.
std::optional<bool> read_autoprobe(const HostFs& host, const vfio::PciAddress& gpu);

/// True if sriov_drivers_autoprobe is 0 because Ferry wrote it since this boot, and did not come to write the
/// 1 that was there before: the run was killed, or a write did not return. A file below
/// run/ferry/hostd/autoprobe, named by the GPU, remembers it.
bool autoprobe_was_left_off(const HostFs& host, const vfio::PciAddress& gpu);

/// Writes sriov_drivers_autoprobe. After a 1 Ferry no longer remembers that it wrote a 0. Errors: those of
/// HostWriter::write() and HostFs::remove_file().
Result<> set_autoprobe(const VfSwitch& on, const vfio::PciAddress& gpu, bool probe);

/// Enables `number` virtual functions on a GPU that has none, by sriov_numvfs. Unless they are `for_host`,
/// sriov_drivers_autoprobe is 0 meanwhile, and then what it was before; after Errc::stuck it stays 0, and
/// autoprobe_was_left_off(). Errors: those of the writes. Errc::failed: some are missing.
Result<> enable_bare_vfs(const VfSwitch& on, const vfio::PciAddress& gpu, std::uint32_t number,
                         bool for_host);

/// Disables all virtual functions by sriov_numvfs. Errors: the write's. Errc::failed: some stayed.
Result<> disable_bare_vfs(const VfSwitch& on, const vfio::PciAddress& gpu);

}  // namespace ferry::mdev
