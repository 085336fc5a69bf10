// SPDX-License-Identifier: Apache-2.0
// Labels and annotations by which the cluster and Ferry communicate. They are a Node's, unless a comment
// names another object.
//
// Names under nvidia.com/ are those of the gpu-operator and the vGPU device manager, with their meaning.
#pragma once

namespace ferry::api {

/// Names a policy of the configurations, which has a mode for each GPU.
inline constexpr const char* kPolicyLabel = "gpu-ferry.io/policy";
/// "container", "vm-passthrough" or "vm-vgpu", for the whole node.
inline constexpr const char* kWorkloadLabel = "nvidia.com/gpu.workload.config";
/// "false": neither the gpu-operator nor Ferry changes this node.
inline constexpr const char* kOperandsLabel = "nvidia.com/gpu.deploy.operands";
/// An operand's name follows; the value "true" runs its pod on the node.
inline constexpr const char* kDeployPrefix = "nvidia.com/gpu.deploy.";

/// "pending", "success" or "failed": the result of the vGPU configuration.
inline constexpr const char* kVgpuStateLabel = "nvidia.com/vgpu.config.state";
/// A Kata handler's name follows; the value "ready" means that pods can start with it on the node.
inline constexpr const char* kKataPrefix = "gpu-ferry.io/kata.";
/// The value is a NodeCondition.
inline constexpr const char* kStateLabel = "gpu-ferry.io/state";
/// The node's error, for people; absent: there is none.
inline constexpr const char* kErrorAnnotation = "gpu-ferry.io/last-error";
/// The error of Kata's runtimes, for people; absent: there is none.
inline constexpr const char* kKataErrorAnnotation = "gpu-ferry.io/kata-error";
/// The drain that runs, or why it has ended (drain_mark.h).
inline constexpr const char* kDrainAnnotation = "gpu-ferry.io/drain";
/// The feature labels that the agent has set (own_labels.h).
inline constexpr const char* kFeaturesAnnotation = "gpu-ferry.io/feature-labels";
/// Written by Node Feature Discovery's master: the labels that it has set, separated by commas. Names in its
/// own domain have no prefix.
inline constexpr const char* kNfdAnnotation = "nfd.node.kubernetes.io/feature-labels";
/// This label marks a Lease of the rollout (agent/rollout/rollout_leases.h).
inline constexpr const char* kRolloutLeaseLabel = "gpu-ferry.io/rollout-lease";
/// An annotation of such a Lease: the ID of the configuration that its holder changes to.
inline constexpr const char* kLeaseConfiguration = "gpu-ferry.io/configuration";
/// An annotation of such a Lease: the policy of that configuration, for people.
inline constexpr const char* kLeasePolicy = "gpu-ferry.io/policy";
/// "on", "off", "devtools" or "ppcie": the confidential mode that a person asks for.
inline constexpr const char* kCcModeLabel = "nvidia.com/cc.mode";
/// The mode that NVIDIA's CC manager has reached, or "failed"; without it the agent's feature label.
inline constexpr const char* kCcModeStateLabel = "nvidia.com/cc.mode.state";
/// "true", "false": the result of NVIDIA's CC manager, which sets it on the nodes where it runs.
inline constexpr const char* kCcReadyLabel = "nvidia.com/cc.ready.state";
/// "true": the agent has cordoned the node, which was schedulable before.
inline constexpr const char* kCordonedAnnotation = "gpu-ferry.io/cordoned";

}  // namespace ferry::api
