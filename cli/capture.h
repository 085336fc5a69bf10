// SPDX-License-Identifier: Apache-2.0
// A host as a tree of plain files that --host-root reads back: for support, and for tests.
//
// Taken is what the verbs that look read of sysfs, procfs and the files of Ferry and of module loading; a
// test holds what they say of the captured tree against what they say of the host. Left out is what could
// hang, has a side effect when read, or is nobody's business: processes and who uses what (their names,
// containers and files), BARs and ROMs, VPD, serial numbers (captured_config.h tells of those in config
// space) and UUIDs of GPUs and of the machine, words of the kernel's command line that have nothing to do
// with devices. Links stay links; device nodes become empty files. Which vGPUs Ferry made is written down
// beside them (mdev/captured_vgpus.h): the machine's ID, by which it would be known, is not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "vfio/inventory.h"

namespace ferry {

struct Captured {
  std::size_t files = 0;
  std::size_t links = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> left_out;  ///< what was there and is not in it, with the reason
};

/// Writes the tree to `to`, a folder of this process's own file system that is empty or not there yet. What
/// the kernel serves under a lock is asked of `reader`, with its deadline. Errors: Errc::usage, something is
/// in the folder; what the operating system says of writing.
Result<Captured> capture_host(const HostFs& host, HostWriter& reader, const AcceleratorRules& rules,
                              const std::filesystem::path& to);

/// Of a /proc/cmdline the words that have to do with devices and their drivers. Any other may be a secret.
std::string without_private_words(std::string_view command_line);

/// The lines of a pci.ids text that name these devices ("10de:2684").
std::string only_these_ids(std::string_view pci_ids, const std::vector<std::string>& devices);

}  // namespace ferry
