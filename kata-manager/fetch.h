// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/artifacts.h"

namespace ferry {

/// What the world is to a fetch, beside the host.
struct FetchWorld {
  /// As bytes arrive; false: nobody waits for it any more.
  std::function<bool(const FetchProgress&)> told = {};
  std::function<void(std::chrono::milliseconds)> pause = {};  ///< absent: really waits
};

/// fetch() (artifacts.h) in this process, which is ferry-fetch's.
Result<Artifact> fetch_here(HostFs& host, const FetchRequest& request, const FetchWorld& world = {});

}  // namespace ferry
