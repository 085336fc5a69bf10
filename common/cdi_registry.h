// SPDX-License-Identifier: Apache-2.0
// All CDI specifications of a host, read by the rules of the library that Kata's runtime has.
//
// The library refuses the whole registry when one file of it is wrong, whoever has written that file: no pod
// of Kata's gets a device then. ABI: Container Device Interface, its Go library v0.6.0: files *.json and
// *.yaml of each directory, unknown fields refused, versions 0.3.0 to 0.6.0; of two files in one directory
// neither may have a name of the other's.
//
// The library also refuses a map that has a key of its own and the same key by a merge (<<). We take such a
// file, since the reader has merged the two by then; no program writes one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/host_fs.h"

namespace ferry {

struct CdiFault {
  std::filesystem::path file;  ///< on the host: "/etc/cdi/nvidia.yaml"
  std::string what;            ///< with the line of the file where there is one
  bool operator==(const CdiFault&) const = default;
};

struct CdiRegistry {
  std::size_t files = 0;
  std::vector<CdiFault> faults;  ///< empty: Kata reads it
};

/// `directories`: relative to the host's root; one that is not there has no files.
CdiRegistry read_cdi_registry(const HostFs& host, std::span<const std::filesystem::path> directories);

/// Other text whenever a file of these directories is another one. Reads no file.
std::string cdi_registry_stamp(const HostFs& host, std::span<const std::filesystem::path> directories);

}  // namespace ferry
