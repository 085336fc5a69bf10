// SPDX-License-Identifier: Apache-2.0
// Checks if this host can advertise its GPUs and vGPUs to KubeVirt, and which change is needed if not.
//
// The checks write nothing and cover the present devices. Other checks say if more could be advertised.
#pragma once

#include <vector>

#include "common/check.h"
#include "common/host_fs.h"
#include "kubevirt-plugin/offer_rules.h"
#include "kubevirt-plugin/scanner.h"

namespace ferry {

/// The checks of the host, then those of each device that is not advertised. Check IDs are stable; their
/// order is not. `read_vgpus`: the plugin's function.
std::vector<Check> kubevirt_checks(const HostFs& host, const OfferRules& rules,
                                   ReadVgpus read_vgpus = scan_vgpus);

}  // namespace ferry
