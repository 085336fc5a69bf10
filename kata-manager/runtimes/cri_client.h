// SPDX-License-Identifier: Apache-2.0
// Queries the container runtime on its socket. ABI: the container runtime interface, v1 (proto/cri.proto),
// and the JSON that containerd adds to a verbose status.
#pragma once

#include <chrono>
#include <filesystem>
#include <string_view>

#include "hostfs/host_fs.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {

/// A healthy runtime answers in milliseconds; while its plugins start, in some seconds.
inline constexpr std::chrono::milliseconds kCriDeadline{5000};

class CriClient final : public ContainerRuntime {
 public:
  /// `socket` is a path of the host; `host` must outlive this object.
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

/// containerd's runtimes in a verbose status (`config` of its info, JSON); absent: it has none.
/// Errc::malformed_host: unreadable JSON.
Result<std::optional<std::vector<KnownRuntime>>> runtimes_of_info(std::string_view config);

}  // namespace ferry::kata
