// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"

namespace ferry::kata {

/// fetch() of artifacts.h, inside ferry-fetch.
Result<Artifact> fetch_here(HostFs& host, const FetchRequest& request);

}  // namespace ferry::kata
