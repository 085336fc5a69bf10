// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"

namespace ferry::kata {

/// A fetch's connections to its caller.
struct FetchWorld {
  /// Called as bytes arrive; false: the caller is gone, and the fetch ends.
  std::function<bool(const FetchProgress&)> on_progress = {};
  std::function<void(std::chrono::milliseconds)> pause = {};  ///< absent: sleeps
};

/// fetch() of artifacts.h, inside ferry-fetch.
Result<Artifact> fetch_here(HostFs& host, const FetchRequest& request, const FetchWorld& world = {});

}  // namespace ferry::kata
