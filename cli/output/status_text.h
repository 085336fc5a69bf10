// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/output/text_output.h"
#include "host/node_description.h"

namespace ferry::cli {

/// `ferry status` for people: a row for each accelerator, those of an IOMMU group together with its other
/// members. A fault has its reason beside the row, or below it where the output is narrow.
/// `wide` adds the columns NUMA, LINK, DESIRED and RESOURCE; their facts must have been read.
std::string status_text(const host::NodeDescription& description, const TextOutput& output,
                        bool wide = false);

/// The colour of a health.
Tint tint_of(host::Health health);

/// The name of a device user, without its device: "VM gpu (pid 670)".
std::string who(const vfio::DeviceUser& user);

}  // namespace ferry::cli
