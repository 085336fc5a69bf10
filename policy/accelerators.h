// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vfio/inventory.h"

namespace ferry {

/// What counts as an accelerator unless a policy says otherwise: NVIDIA's display and 3D controllers.
AcceleratorRules default_accelerator_rules();

}  // namespace ferry
