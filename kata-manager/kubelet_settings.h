// SPDX-License-Identifier: Apache-2.0
// What this node's kubelet was told, as far as files say it: its command line, and the configuration file
// that it names. A kubelet that is part of another program (k3s, rke2) has none of its own.
// ABI: kubelet.config.k8s.io/v1beta1 KubeletConfiguration; flags count more than the file.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

struct KubeletSettings {
  std::filesystem::path file;  ///< its configuration file; empty: it has none
  /// The gate KubeletPodResourcesGet; absent: not said, which is off before Kubernetes 1.34.
  std::optional<bool> pod_resources_get = {};
  /// How long it waits for the container runtime; absent: not said, which is two minutes.
  std::optional<std::chrono::seconds> request_timeout = {};

  /// Where no kubelet runs, of the file that one would read. Errc::not_found: no kubelet runs, and there is
  /// no such file; Errc::invalid_config: the file cannot be read.
  static Result<KubeletSettings> read(const HostFs& host);
};

/// A duration of Go's, "2m0s" or "1h15m", less what is below a second; absent: it is none.
std::optional<std::chrono::seconds> parse_go_duration(std::string_view text);

}  // namespace ferry
