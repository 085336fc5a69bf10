// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/result.h"
#include "dra/slices/node_model.h"
#include "dra/slices/publication.h"

namespace ferry::dra {

/// Succeeds if a claim can have these devices now, all of them. The scheduler may have allocated devices that
/// it cannot have: the scheduler saw older slices, or the vGPUs of the GPU have another size.
/// Errc::not_found: the node has no such device. Errc::refused: another claim has the device, its GPU or the
/// memory, or the GPU is not ready; the claim waits. Errc::unsupported: KubeVirt cannot take the device,
/// since its PCI domain has more than four digits. `claim`: its UID; devices that it has already are no
/// obstacle.
Result<> check_available(const NodeModel& node, const Publication& publication,
                         std::span<const std::string> devices, std::string_view claim);

}  // namespace ferry::dra
