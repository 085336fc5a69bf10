// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/canvas.h"
#include "host/node_view.h"

namespace ferry {

/// `ferry status` for people: a row for each accelerator, those of an IOMMU group together with all else that
/// is in it; beside what is wrong, or below where there is no room, the reason.
std::string status_text(const NodePicture& view, const Canvas& canvas);

/// What a health is drawn in.
Tint tint_of(Health health);

/// Who holds something, without what it holds: "VM gpu (pid 670)".
std::string who(const Holder& holder);

}  // namespace ferry
