// SPDX-License-Identifier: Apache-2.0
// Checks all CDI specifications of a host by the rules of the library in Kata's runtime.
//
// The library refuses the whole registry if one file is wrong, no matter who wrote it: then no Kata pod gets
// a device. ABI: Container Device Interface, Go library v0.6.0: files *.json and *.yaml of each directory;
// unknown fields are refused; versions 0.3.0 to 0.6.0; no device twice in one directory.
//
// The library also refuses a map that has a key of its own and the same key by a merge (<<). Ferry takes such
// a file, since its reader has merged the two by then; no program writes one.
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
  std::string what;            ///< includes the line of the file, if known
  bool operator==(const CdiFault&) const = default;
};

struct CdiRegistry {
  std::size_t files = 0;
  std::vector<CdiFault> faults;  ///< empty: Kata can read the registry
};

/// `directories` are relative to the host's root; a missing directory has no files.
CdiRegistry read_cdi_registry(const HostFs& host, std::span<const std::filesystem::path> directories);

/// A text that changes whenever a file in these directories changes. Reads no file.
std::string cdi_registry_stamp(const HostFs& host, std::span<const std::filesystem::path> directories);

}  // namespace ferry
