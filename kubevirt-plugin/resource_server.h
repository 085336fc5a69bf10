// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/unique_fd.h"
#include "kubevirt-plugin/allocate_gate.h"
#include "kubevirt-plugin/allocation_core.h"

namespace ferry {

class RpcQueue;

/// Answers the kubelet for one resource: v1beta1.DevicePlugin, and pluginregistration.Registration for a
/// kubelet that asks by itself, over connections that are handed in.
class ResourceServer {
 public:
  using Stream = std::uint64_t;  ///< of one server
  /// A list is being read by somebody, or no more. Called on the queue's thread.
  using StreamHook = std::function<void(Stream stream, bool begins)>;

  /// What is referred to must outlive this. Allocate calls pass `gate`, and none may wait there when this
  /// ends. `cdi_names`: devices are answered as RESOURCE=ID, for the runtime to look up, instead of by their
  /// nodes.
  ResourceServer(RpcQueue& queue, AllocationCore& core, AllocateGate& gate, std::string resource,
                 bool cdi_names, StreamHook hook);
  ResourceServer(const ResourceServer&) = delete;
  ResourceServer& operator=(const ResourceServer&) = delete;
  ResourceServer(ResourceServer&&) = delete;
  ResourceServer& operator=(ResourceServer&&) = delete;
  /// Stops it, if that has not been done.
  ~ResourceServer();

  /// Serves a connected, non-blocking socket.
  void add_connection(UniqueFd connection);

  /// Ends every stream with OK and takes no more calls; does not wait.
  void begin_stop();
  /// Waits until all calls are over; those that are not by `give_up` are cancelled.
  void wait_stopped(std::chrono::steady_clock::time_point give_up);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether GetPreferredAllocation is answered: said both in Register and when asked.
constexpr bool kPrefersAllocations = true;

}  // namespace ferry
