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
/// Before a Kata handler's name; "ready": pods can be started with it here.
inline constexpr const char* kKataPrefix = "gpu-ferry.io/kata.";
/// A NodeCondition.
inline constexpr const char* kStateLabel = "gpu-ferry.io/state";
/// What is wrong, for people; absent when nothing is.
inline constexpr const char* kErrorAnnotation = "gpu-ferry.io/last-error";
/// Likewise, of Kata's runtimes.
inline constexpr const char* kKataErrorAnnotation = "gpu-ferry.io/kata-error";
/// That pods which hold the GPUs are evicted, or why that has ended (drain_mark.h).
inline constexpr const char* kDrainAnnotation = "gpu-ferry.io/drain";
/// The labels of features that are ours (label_record.h).
inline constexpr const char* kFeaturesAnnotation = "gpu-ferry.io/feature-labels";
/// Of Node Feature Discovery's master: the labels that it has set, separated by commas; those of its own
/// domain without that.
inline constexpr const char* kNfdAnnotation = "nfd.node.kubernetes.io/feature-labels";
/// "true": it is cordoned by us, and nobody else.
inline constexpr const char* kCordonedAnnotation = "gpu-ferry.io/cordoned";

}  // namespace ferry
