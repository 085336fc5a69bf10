// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/canvas.h"
#include "host/node_view.h"

namespace ferry {

/// `ferry status` for people: a row for each accelerator, those of an IOMMU group together with its other
/// members. A fault has its reason beside the row, or below it where the canvas is narrow.
std::string status_text(const NodePicture& view, const Canvas& canvas);

/// The colour of a health.
Tint tint_of(Health health);

/// The name of a device user, without its device: "VM gpu (pid 670)".
std::string who(const Holder& holder);

}  // namespace ferry
