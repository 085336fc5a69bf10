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
class ClientCall;
class ClientChannel;
class RpcQueue;
}  // namespace ferry

namespace ferry::plugin {

/// A call of v1beta1.Registration/Register.
class RegisterCall : Pinned {
 public:
  /// Called once, on the queue's thread. Errc::unreachable: the kubelet did not answer; Errc::refused: it
  /// answered with an error.
  using Done = std::function<void(Result<>)>;

  /// Starts the call on a connection to the kubelet's socket, which other calls may share. The kubelet calls
  /// back before it answers, and `limit` covers both.
  RegisterCall(RpcQueue& queue, std::shared_ptr<const ClientChannel> kubelet, const std::string& endpoint,
               const std::string& resource, std::chrono::milliseconds limit, Done done);
  /// Cancels the call, if it is not over.
  ~RegisterCall();

  /// Ends the call now, if it is not over; `done` is still called.
  void cancel();

 private:
  std::shared_ptr<ClientCall> call_;
};

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
  ResourceServer(RpcQueue& queue, AllocationCore& core, AllocateGate& gate, std::string resource,
                 bool cdi_names, StreamHook hook);
  /// Stops the server, if it still runs.
  ~ResourceServer();

  /// Serves a connected, non-blocking socket.
  void add_connection(UniqueFd connection);

  /// Ends every stream with OK and accepts no more calls; does not wait.
  void begin_stop();
  /// Waits until all calls are over, and cancels those that are not over at `give_up`.
  void wait_stopped(std::chrono::steady_clock::time_point give_up);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
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
    /// Answers for Kata have CDI names in place of device nodes.
    bool cdi_names = false;
    /// The kubelet finds the sockets by its plugin watcher and asks for their resources. No registration.
    bool found_by_kubelet = false;
    /// The time until an unanswered registration is repeated. The kubelet may need 10 s to dial back.
    std::chrono::milliseconds unanswered = std::chrono::seconds(20);
    /// The time until a registration is repeated if the kubelet accepted it and does not read the list.
    std::chrono::milliseconds unread = std::chrono::seconds(30);
    /// The time until a registration is repeated after the kubelet has ended the reading of a list. A kubelet
    /// marks the resource as ended a moment after it has closed the stream. A registration in between would
    /// be marked, too, and the resource would stay without allocatable devices.
    std::chrono::milliseconds dropped = std::chrono::seconds(1);
  };

  /// `directory` is the kubelet's, opened; `where` is its path for people. Errors: the directory cannot be
  /// watched.
  static Result<std::unique_ptr<KubeletTransport>> open(const Parts& parts, UniqueFd directory,
                                                        std::string where, Listener listener);
  /// Ends every stream with OK, waits only briefly for calls in progress and removes its sockets. No call may
  /// wait at the gate any more.
  ~KubeletTransport();

  /// Serves and registers the core's resources that are not served yet. Errors: the first socket that cannot
  /// be created; the others are served all the same.
  Result<> advertise_resources();

  bool serves_any() const;

  /// The resources whose lists a kubelet reads.
  std::set<std::string> registered() const;

 private:
  class Impl;
  explicit KubeletTransport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::plugin
