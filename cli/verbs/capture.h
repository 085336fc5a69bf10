// SPDX-License-Identifier: Apache-2.0
// Captures a host as a tree of plain files that --host-root reads back, for support and for tests.
//
// The tree has all that the read-only verbs read of sysfs, procfs, Ferry's files and the files of module
// loading. A test compares the verbs' output for the tree with that for the host. Left out is everything that
// could hang, has a side effect when read, or is private. These are processes and device users (names,
// containers, files), BARs and ROMs, VPD, serial numbers (without_serial_numbers(): in config space), UUIDs
// of GPUs and of the machine, and words of the kernel's command line without a device. Links stay links;
// device nodes become empty files. A file of the tree lists the vGPUs that Ferry made
// (mdev/vgpu_inventory.h), since the machine ID that would show them is left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/pci/inventory.h"

namespace ferry::cli {

// The config space of a PCI function as a capture keeps it. ABI: PCI Local Bus 3.0, 6.7 (capabilities) and
// appendix I (VPD); PCI Express Base 5.0, 7.6.3 (extended capabilities), 7.9.3 (Device Serial Number).

/// Returns config space (64, 256 or 4096 bytes) with zeros in place of data that identifies one card. This is
/// each Device Serial Number capability's number (a network card's is mostly its MAC address), and the four
/// bytes of VPD that were read last. All other bytes keep their places, so that it reads as before. Broken
/// lists and loops are followed as far as they go.
std::string without_serial_numbers(std::string config);

struct Captured {
  std::size_t files = 0;
  std::size_t links = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> left_out;  ///< parts of the host that the tree lacks, with the reason
};

/// Writes the tree to `to`, a folder of this process's own file system that is empty or absent. `reader`
/// reads files that the kernel serves under a lock, with its deadline. Errors: Errc::usage, the folder is not
/// empty; the operating system's errors of writing.
Result<Captured> capture_host(const HostFs& host, HostWriter& reader, const vfio::AcceleratorRules& rules,
                              const std::filesystem::path& to);

/// The words of a /proc/cmdline that concern devices and their drivers. Any other word may be a secret.
std::string without_private_words(std::string_view command_line);

/// The lines of a pci.ids text for these devices ("10de:2684").
std::string only_these_ids(std::string_view pci_ids, const std::vector<std::string>& devices);

}  // namespace ferry::cli
