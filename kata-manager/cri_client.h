// SPDX-License-Identifier: Apache-2.0
// The container runtime asked over its own socket. ABI: the container runtime interface, v1
// (proto/cri.proto), and the JSON that containerd adds to a verbose status.
#pragma once

#include <chrono>
#include <filesystem>
#include <string_view>

#include "common/host_fs.h"
#include "kata-manager/container_runtime.h"

namespace ferry {

/// A healthy runtime answers in milliseconds; one that is starting its plugins in some seconds.
inline constexpr std::chrono::milliseconds kCriDeadline{5000};

class CriClient final : public ContainerRuntime {
 public:
  /// `socket` as the host's programs name it; `host` must outlive this.
  CriClient(const HostFs& host, std::filesystem::path socket,
            std::chrono::milliseconds deadline = kCriDeadline)
      : host_(&host), socket_(std::move(socket)), deadline_(deadline) {}

  Result<RuntimeState> state() override;
  Result<std::vector<RunningPod>> pods() override;

 private:
  const HostFs* host_;
  std::filesystem::path socket_;
  std::chrono::milliseconds deadline_;
};

/// What a verbose status says of containerd's runtimes (`config` of its info, JSON); absent: no such thing is
/// in there. Errc::malformed_host: it cannot be read.
Result<std::optional<std::vector<KnownRuntime>>> runtimes_of_info(std::string_view config);

}  // namespace ferry
