// SPDX-License-Identifier: Apache-2.0
// Can this host offer its GPUs and vGPUs to KubeVirt, and if not, what would have to be changed where?
//
// Looks only, at what is offered now: whether more could be is for the other checks to say.
#pragma once

#include <vector>

#include "common/check.h"
#include "common/host_fs.h"
#include "kubevirt-plugin/offer_rules.h"
#include "kubevirt-plugin/scanner.h"

namespace ferry {

/// Those about the host first, then those of each device that is not offered. Ids are stable, their order is
/// not. `read_vgpus`: the plugin's.
std::vector<Check> kubevirt_checks(const HostFs& host, const OfferRules& rules,
                                   ReadVgpus read_vgpus = scan_vgpus);

}  // namespace ferry
