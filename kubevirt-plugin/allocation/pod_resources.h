// SPDX-License-Identifier: Apache-2.0
// The kubelet's allocations, from its pod resources API.
//
// Between Allocate and the VM's start no process has the device open, so /proc shows it free and only the
// kubelet knows its pod. The kubelet never reports a release; it only stops listing the device.
//
// ABI: k8s.io/kubelet podresources v1, List (stable since Kubernetes 1.28, there since 1.20). Older kubelets
// also list pods that have ended.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "kubevirt-plugin/allocation/kubelet_call.h"
#include "kubevirt-plugin/allocation/pod_list.h"
#include "vfio/use_probe.h"

namespace ferry::plugin {

/// The path of every kubelet's socket, relative to the host's root.
inline constexpr const char* kPodResourcesSocket = "var/lib/kubelet/pod-resources/kubelet.sock";

/// A healthy kubelet answers in milliseconds.
inline constexpr std::chrono::milliseconds kPodListDeadline{2000};

/// A connection to the kubelet's socket. Absent: there is no socket, so no kubelet and no allocations. Errors
/// as in list_pod_devices().
Result<std::optional<UniqueFd>> connect_pod_resources(const HostFs& host,
                                                      const std::filesystem::path& socket);

/// Asks the kubelet once and waits. Without a socket there is no kubelet and the list is empty. Leaves no
/// thread and no connection. Errc::unreachable: no listener, or no answer by the deadline.
/// Errc::malformed_host: the answer cannot be read. Errc::failed: the kubelet answers with an error or with
/// more than 16 MiB. An errno: the socket, which belongs to root, may not be used.
Result<std::vector<vfio::PodDevice>> list_pod_devices(
    const HostFs& host, const std::filesystem::path& socket = kPodResourcesSocket,
    std::chrono::milliseconds deadline = kPodListDeadline);

/// Asks the kubelet, with kPodListDeadline. `done` runs once, on the queue's thread; its errors are those of
/// list_pod_devices(). The end of the returned object cancels the call.
std::unique_ptr<KubeletCall> list_pods(RpcQueue& queue, UniqueFd connection,
                                       std::function<void(Result<PodList>)> done);

}  // namespace ferry::plugin
