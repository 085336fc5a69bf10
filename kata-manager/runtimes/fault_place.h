// SPDX-License-Identifier: Apache-2.0
// Finds the place of a fault that containerd reports.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "hostfs/host_fs.h"
#include "kata-manager/runtimes/containerd_config.h"

namespace ferry::kata {

/// "/etc/containerd/config.toml:13" for containerd's words, from which places in the copies are taken out.
/// Empty: not found, or not certain. `copies`: the files' texts as containerd read them.
std::string place_of_fault(const HostFs& host, std::span<const ContainerdFile> files,
                           const std::vector<std::string>& copies, std::string& words);

}  // namespace ferry::kata
