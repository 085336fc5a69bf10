// SPDX-License-Identifier: Apache-2.0
// The GPUs that --device of the vGPU verbs names.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "mdev/vgpu.h"

namespace ferry {

/// Errc::usage: a text is no PCI address.
Result<std::set<PciAddress>> parse_gpus(const std::vector<std::string>& addresses);

/// Checks that each is a GPU of this host. Errc::not_found names the first that is not.
Result<> check_gpus(const std::set<PciAddress>& gpus, const VgpuInventory& inventory);

}  // namespace ferry
