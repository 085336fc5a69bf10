// SPDX-License-Identifier: Apache-2.0
// What the kubelet has given out: its pod resources API.
//
// Between a device plugin's Allocate and the VM's start nobody has the device open, so that /proc shows it
// free; the kubelet alone knows better. It never says that a device came free: it just no longer lists it.
//
// ABI: k8s.io/kubelet podresources v1, List (stable since Kubernetes 1.28, there since 1.20). Older kubelets
// list pods that have ended too.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "vfio/pod_device.h"

namespace ferry {

/// Where every kubelet listens, relative to the host's root.
inline constexpr const char* kPodResourcesSocket = "var/lib/kubelet/pod-resources/kubelet.sock";

/// A healthy kubelet answers in milliseconds.
inline constexpr std::chrono::milliseconds kPodListDeadline{2000};

/// A connection to where it listens. Absent: no socket, so no kubelet here, and nothing given out. Errors as
/// below.
Result<std::optional<UniqueFd>> connect_pod_resources(const HostFs& host,
                                                      const std::filesystem::path& socket);

/// Asks the kubelet once and waits. No socket: no kubelet here, and nothing given out. Leaves no thread and
/// no connection behind. Errors: Errc::unreachable: nobody listens on the socket, or there is no answer by
/// the deadline; Errc::malformed_host: the answer cannot be read; Errc::failed: the kubelet answers with an
/// error, or with more than could be true (16 MiB); an errno: the socket may not be used (it is root's).
Result<std::vector<PodDevice>> list_pod_devices(const HostFs& host,
                                                const std::filesystem::path& socket = kPodResourcesSocket,
                                                std::chrono::milliseconds deadline = kPodListDeadline);

}  // namespace ferry
