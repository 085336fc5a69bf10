// SPDX-License-Identifier: Apache-2.0
// The output about binding and unbinding.
#pragma once

#include <map>
#include <string>

#include "cli/output/document.h"
#include "cli/session.h"
#include "vfio/bind/rebind_apply.h"

namespace ferry::cli {

/// `unmanaged`: accelerators that --all or a filter left out, with the reason.
VerbOutput show_rebinds(const Session& session, const vfio::RebindPreview& preview,
                        const std::map<vfio::PciAddress, std::string>& skipped, vfio::Direction direction);
VerbOutput show_rebinds(const Session& session, const vfio::RebindOutcome& outcome,
                        const std::map<vfio::PciAddress, std::string>& skipped, vfio::Direction direction);

}  // namespace ferry::cli
