// SPDX-License-Identifier: Apache-2.0
// NVIDIA's CC manager, which sets the confidential mode of a node's GPUs. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/operator_compat/operands.h"
#include "api/host_status.h"
#include "vfio/pci/pci_address.h"

namespace ferry::agent {

/// True if the gpu-operator lets NVIDIA's CC manager run on a node with these labels. It writes the labels of
/// the confidential mode, too.
bool has_cc_manager(const Labels& node);

/// A GPU in use that a requested change of the mode resets.
struct ResetInUse {
  vfio::PciAddress gpu;
  std::string text;  ///< a sentence without its full stop
};

/// The GPUs in use that the CC manager resets now: the Node's label asks for another mode than the one
/// reached, and the manager looks at no VM.
std::vector<ResetInUse> resets_in_use(const Labels& node, const api::HostStatus& host);

}  // namespace ferry::agent
