// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"

namespace ferry::kata {

/// Compares an artifact's files with its record. Returns a sentence for each difference, sorted by path: a
/// missing file, another size, another link target, or other content of the same size. Every byte is read,
/// and `told` is called meanwhile. A folder that `file://` names has no hashes to compare. Errors: read
/// errors.
Result<std::vector<std::string>> changes_since_fetch(
    const HostFs& host, const Artifact& artifact, const std::function<void(const FetchProgress&)>& told = {});

}  // namespace ferry::kata
