// SPDX-License-Identifier: Apache-2.0
// The words in which a cluster and the agent speak to each other: labels and annotations of a Node.
//
// Those under nvidia.com/ are the gpu-operator's and the vGPU device manager's, with their meaning.
#pragma once

namespace ferry {

/// Names a policy of the configurations: a mode for each GPU.
inline constexpr const char* kPolicyLabel = "gpu-ferry.io/policy";
/// "container", "vm-passthrough" or "vm-vgpu", for the whole node.
inline constexpr const char* kWorkloadLabel = "nvidia.com/gpu.workload.config";
/// "false": nothing of the gpu-operator's, and nothing of ours, shall be done to this node.
inline constexpr const char* kOperandsLabel = "nvidia.com/gpu.deploy.operands";
/// Before an operand's name; "true" has its pod run on the node.
inline constexpr const char* kDeployPrefix = "nvidia.com/gpu.deploy.";

/// "pending", "success" or "failed": what became of the vGPU configuration.
inline constexpr const char* kVgpuStateLabel = "nvidia.com/vgpu.config.state";
/// A NodeCondition.
inline constexpr const char* kStateLabel = "gpu-ferry.io/state";
/// What is wrong, for people; absent when nothing is.
inline constexpr const char* kErrorAnnotation = "gpu-ferry.io/last-error";

}  // namespace ferry
