// SPDX-License-Identifier: Apache-2.0
// Words for the state of GPUs and nodes. Files, labels, metrics and tables have the same ones.
#pragma once

#include <optional>
#include <string_view>

namespace ferry::api {

/// The use that a GPU is made ready for.
enum class Mode {
  host,         ///< on its own driver, without vGPUs
  passthrough,  ///< whole, on a vfio driver
  vgpu,         ///< on its own driver, divided
};
std::string_view text(Mode mode);
/// Absent for another word; so below.
std::optional<Mode> parse_mode(std::string_view word);

enum class NodePhase {
  idle,  ///< there is no desired.json, and nothing is changed
  ready,
  applying,  ///< hostd waits until the kubelet no longer lists the devices, or writes to the host
  blocked,   ///< a device is in use or cannot be bound whole; the rest is as desired
  failed,    ///< a change was attempted and did not succeed, or the desired state cannot be read
};
std::string_view text(NodePhase phase);
std::optional<NodePhase> parse_node_phase(std::string_view word);

/// The state of one accelerator in relation to its desired mode.
enum class GpuState {
  ready,
  blocked,
  failed,
  pending,    ///< about to be changed
  unmanaged,  ///< the policy does not cover it
};
std::string_view text(GpuState state);
std::optional<GpuState> parse_gpu_state(std::string_view word);

/// The program that gives the devices of a GPU to pods and VMs.
enum class Allocation {
  device_plugin,  ///< `ferry plugin`, by resources of the node
  dra,            ///< `ferry dra`, by ResourceClaims
};
/// "device-plugin", "dra"
std::string_view text(Allocation allocation);
std::optional<Allocation> parse_allocation(std::string_view word);

}  // namespace ferry::api
