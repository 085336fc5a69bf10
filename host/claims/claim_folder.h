// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "api/claim_files.h"
#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry::host {

/// Relative to the host's root. A folder of the kubelet's, since SELinux lets containers read files there.
inline constexpr const char* kClaimMetadataFolder = "var/lib/kubelet/plugins/gpu-ferry.io.hostd";

/// The files of claims on the host (api/claim_files.h). Root alone may write their folders.
class ClaimFolder {
 public:
  /// `metadata` is relative to the root of `host`, which must outlive this object.
  ClaimFolder(HostFs& host, std::filesystem::path metadata) : host_(host), metadata_(std::move(metadata)) {}

  /// Writes the files that are missing or differ.
  Result<> write(const api::ClaimRequest& claim, std::span<const api::PreparedDevice> devices);
  /// Removes the files of all claims for which `over` is true, by UID; the CDI files first, since they name
  /// the metadata.
  Result<> remove(const std::function<bool(const std::string& uid)>& over);

 private:
  HostFs& host_;
  const std::filesystem::path metadata_;
};

}  // namespace ferry::host
