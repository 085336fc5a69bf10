// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/artifacts.h"

namespace ferry {

/// What of an artifact's files is not as it was fetched, a sentence for each, sorted by path: what is not
/// there, has another size, leads elsewhere, or has other bytes in the same size. Every byte is read; `told`
/// is called as it goes. Of a folder that `file://` names nothing is recorded that could be compared, and so
/// nothing is found.
/// Errors: those of reading.
Result<std::vector<std::string>> changes_since_fetch(
    const HostFs& host, const Artifact& artifact, const std::function<void(const FetchProgress&)>& told = {});

}  // namespace ferry
