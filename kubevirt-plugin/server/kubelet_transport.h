// SPDX-License-Identifier: Apache-2.0
// The plugin's side towards the kubelet: a socket for each resource in the kubelet's directory, and
// registration. A resource counts as registered exactly while a kubelet reads its list. It is registered
// again when no kubelet reads it, because the kubelet ended or dropped the plugin, which leaves no trace on
// disk. It is also registered again when the kubelet's socket appears or the plugin's vanishes. A kubelet
// that starts removes every socket in the directory, so an earlier reader is no kubelet then. A kubelet that
// finds plugins by itself removes no sockets and cannot be told from the one before. Registration is repeated
// with a growing pause, for ever.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "kubevirt-plugin/allocation/allocate_gate.h"
#include "kubevirt-plugin/allocation/allocation_core.h"

namespace ferry {
class RpcQueue;
}  // namespace ferry

namespace ferry::plugin {

struct PluginOptions;

/// Answers the kubelet for one resource over connections from add_connection(). It serves
/// v1beta1.DevicePlugin, and pluginregistration.Registration for a kubelet that finds plugins by itself.
class ResourceServer : Pinned {
 public:
  using Stream = std::uint64_t;  ///< unique within a server
  /// A client has begun to read the list, or no longer reads it. Called on the queue's thread.
  using StreamHook = std::function<void(Stream stream, bool begins)>;

  /// The references must outlive this object. Allocate calls pass `gate`, and none may wait there when this
  /// object ends. `cdi_names`: answers name devices as RESOURCE=ID, for the runtime to look up, instead of
  /// their nodes.
  static std::unique_ptr<ResourceServer> make(RpcQueue& queue, AllocationCore& core, AllocateGate& gate,
                                              std::string resource, bool cdi_names, StreamHook hook);
  /// Stops the server, if it still runs.
  virtual ~ResourceServer() = default;

  /// Serves a connected, non-blocking socket.
  virtual void add_connection(UniqueFd connection) = 0;

  /// Ends every stream with OK and accepts no more calls; does not wait.
  virtual void begin_stop() = 0;
  /// Waits until all calls are over, and cancels those that are not over at `give_up`.
  virtual void wait_stopped(std::chrono::steady_clock::time_point give_up) = 0;
};

/// Tells the kubelet, in Register and in the options, that GetPreferredAllocation is served.
constexpr bool kPrefersAllocations = true;

/// Belongs to the loop's thread.
class KubeletTransport : Pinned {
 public:
  struct Listener {
    /// registered() has a new result.
    std::function<void()> changed;
    /// The transport cannot go on: the directory is gone.
    std::function<void(Error)> failed;
  };

  /// The objects that the transport works with. All must outlive it.
  struct Parts {
    EventLoop& loop;
    RpcQueue& queue;
    AllocationCore& core;
    AllocateGate& gate;
    const PluginOptions& options;
  };

  /// `directory` is the kubelet's, opened; `where` is its path for people. Errors: the directory cannot be
  /// watched.
  static Result<std::unique_ptr<KubeletTransport>> open(const Parts& parts, UniqueFd directory,
                                                        std::string where, Listener listener);
  /// Ends every stream with OK, waits only briefly for calls in progress and removes its sockets. No call may
  /// wait at the gate any more.
  virtual ~KubeletTransport() = default;

  /// Serves and registers those of the core's resources that `names` has and that are not served yet. Errors:
  /// the first socket that cannot be created; the others are served all the same.
  virtual Result<> advertise_resources(const std::set<std::string>& names) = 0;

  virtual bool serves_any() const = 0;

  /// The resources whose lists a kubelet reads.
  virtual std::set<std::string> registered() const = 0;
};

}  // namespace ferry::plugin
