// SPDX-License-Identifier: Apache-2.0
// The kubelet's side of the plugin: one socket for each resource in its directory, registered for as long as
// it takes.
//
// A resource is registered exactly when its list is being read. So it is registered again whenever nobody
// reads it (the kubelet ended, or dropped us, which leaves no trace on disk), and as well when the kubelet's
// socket appears or ours vanishes, since a starting kubelet removes every socket in the directory: who read
// it before and still does is no kubelet's then (a kubelet that finds us by itself removes none, and is not
// told from the one before). Retried with a growing pause, for ever.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "common/event_loop.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "kubevirt-plugin/allocate_gate.h"
#include "kubevirt-plugin/allocation_core.h"

namespace ferry {

class RpcQueue;

/// Belongs to the loop's thread.
class KubeletTransport {
 public:
  struct Listener {
    /// registered() is another.
    std::function<void()> changed;
    /// It cannot go on: the directory is gone.
    std::function<void(Error)> failed;
  };

  /// What it works with. All of it must outlive the transport.
  struct Parts {
    EventLoop& loop;
    RpcQueue& queue;
    AllocationCore& core;
    AllocateGate& gate;
    /// Answer for Kata with CDI names in place of device nodes.
    bool cdi_names = false;
    /// The kubelet finds our sockets and asks what they serve (its plugin watcher), rather than being told.
    bool found_by_kubelet = false;
    /// Until a registration that the kubelet does not answer is tried again. It may take 10 s to dial back.
    std::chrono::milliseconds unanswered = std::chrono::seconds(20);
    /// Until a kubelet that has taken a registration and does not read the list is told once more.
    std::chrono::milliseconds unread = std::chrono::seconds(30);
  };

  /// `directory` is the kubelet's, opened; `where` what people call it. Errors: the directory cannot be
  /// watched.
  static Result<std::unique_ptr<KubeletTransport>> open(const Parts& parts, UniqueFd directory,
                                                        std::string where, Listener listener);
  KubeletTransport(const KubeletTransport&) = delete;
  KubeletTransport& operator=(const KubeletTransport&) = delete;
  KubeletTransport(KubeletTransport&&) = delete;
  KubeletTransport& operator=(KubeletTransport&&) = delete;
  /// Ends every stream with OK, waits at most a moment for calls in progress and removes its sockets. No call
  /// may wait at the gate any more.
  ~KubeletTransport();

  /// Serves and registers the core's resources that it does not serve yet. Errors: a socket cannot be made,
  /// the first of them; the others are served all the same.
  Result<> offer_resources();

  bool serves_any() const;

  /// The resources whose lists are being read.
  std::set<std::string> registered() const;

 private:
  class Impl;
  explicit KubeletTransport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
