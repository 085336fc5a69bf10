// SPDX-License-Identifier: Apache-2.0
// The side of `ferry dra` towards the kubelet: the socket of the DRA plugin, and the socket by which the
// kubelet's plugin watcher finds it.
//
// ABI: kubernetes/kubelet, pkg/apis/dra/v1 and v1beta1, whose messages are the same; pkg/apis/dra-health;
// pkg/apis/pluginregistration/v1.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "dra/slices/node_model.h"
#include "dra/slices/publication.h"
#include "hostfs/host_fs.h"

namespace ferry {
class RpcQueue;
}  // namespace ferry

namespace ferry::dra {

class ClaimDriver;

/// The names of the two sockets. With the pod's UID in them, two pods can be registered at a time, as in a
/// rolling update; kubelets from 1.33 on know how to treat them. `pod_uid` empty: fixed names.
struct SocketNames {
  std::string plugin;        ///< "dra.sock", "dra-<UID>.sock"
  std::string registration;  ///< "gpu-ferry.io-reg.sock", "gpu-ferry.io-<UID>-reg.sock"
};
/// `registry`: the folder's absolute path on the host. A UID that would make the path of a socket too long is
/// replaced by a hash.
SocketNames socket_names(const std::filesystem::path& registry, std::string_view pod_uid);

/// The health of a published device, which the kubelet shows in the status of the pods that have it.
struct DeviceHealth {
  std::string pool;
  std::string device;
  std::string message = {};  ///< why it is unhealthy; empty: it is healthy
  bool operator==(const DeviceHealth&) const = default;
};

/// Why the claim that has the device cannot use it any more: a GPU of it is gone, or another program has
/// taken the device away. Empty: it can.
std::string loss_of(const NodeModel& node, const HeldDevice& held);

/// The health of all devices of the publication. A device whose GPU is gone is unhealthy. A whole device is
/// unhealthy if one of the GPUs of its IOMMU group is, or is gone.
std::vector<DeviceHealth> device_health(const NodeModel& node, const Publication& publication);

/// Belongs to the loop's thread.
class DraServer : Pinned {
 public:
  struct Listener {
    /// A kubelet has registered the plugin. A kubelet that has just started has deleted all ResourceSlices of
    /// the node, so they must be compared with the API server again.
    std::function<void()> registered;
    /// The kubelet refuses the plugin.
    std::function<void(const Error&)> refused;
    /// The server cannot go on: a folder of the kubelet is gone.
    std::function<void(Error)> failed;
  };

  /// All must outlive the server.
  struct Parts {
    EventLoop& loop;
    RpcQueue& queue;
    HostFs& host;
    ClaimDriver& driver;
  };

  /// Paths are relative to the host's root, and are the same on the host: the kubelet opens them.
  struct Settings {
    std::filesystem::path plugin_folder = "var/lib/kubelet/plugins/gpu-ferry.io";
    std::filesystem::path registry_folder = "var/lib/kubelet/plugins_registry";
    std::string pod_uid = {};  ///< as socket_names()
    /// The pause after which the health of devices is sent again. The kubelet takes a health that is three
    /// times as old for unknown.
    std::chrono::milliseconds health_interval = std::chrono::minutes(1);
  };

  /// Serves the plugin's socket first, then the registration's. Removes sockets of former processes that are
  /// not served any more. Errc::not_found: the kubelet's folder of plugins does not exist.
  /// Errc::invalid_config: the path of a socket is too long for the kubelet. Other errors: a socket cannot be
  /// made.
  static Result<std::unique_ptr<DraServer>> open(const Parts& parts, const Settings& settings,
                                                 Listener listener);
  /// Answers calls in progress that the driver has not answered with UNAVAILABLE, ends the health streams,
  /// and removes the sockets.
  virtual ~DraServer() = default;

  /// The health of all devices, which all streams get if it has changed.
  virtual void set_health(std::vector<DeviceHealth> devices) = 0;
};

}  // namespace ferry::dra
