// SPDX-License-Identifier: Apache-2.0
// Reads from files the configuration that a node gets through Kubernetes: a Node object's label names the
// profile, and a ConfigMap carries the profiles.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/config/config_tree.h"
#include "common/result.h"
#include "policy/policy.h"
#include "vgpu-dm/profile/profile.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::policy {

/// The label that names a node's profile under NVIDIA's vGPU device manager.
inline constexpr const char* kVgpuConfigLabel = "nvidia.com/vgpu.config";

/// The parts of a Node object that Ferry uses.
struct NodeObject {
  std::string file;
  std::string name;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations = {};
  /// Names in status.runtimeHandlers, which a kubelet from 1.30 on lists if its container runtime reports
  /// them (containerd from 2.0 on). Empty: there is no list.
  std::set<std::string> runtime_handlers = {};
};

/// Reads a Node object, YAML or JSON. Errc::invalid_config with "file:line".
Result<NodeObject> read_node_object(const std::filesystem::path& path);

/// The profile that the node's label names, or `otherwise` if the label is absent or empty.
/// Errc::invalid_config if there is neither.
Result<std::string> profile_name(const NodeObject& node, const std::optional<std::string>& otherwise);

/// Reads profiles from a profile file, or from a ConfigMap: its key config.yaml, or its only key. Errors name
/// lines of the file itself. "-" is standard input.
Result<vgpu::ProfileFile> read_profile_file(const std::filesystem::path& path, Reading how = Reading::strict);

/// Reads policies, v2 or v1, in the same way.
Result<PolicyFile> read_policy_file(const std::filesystem::path& path, Reading how = Reading::strict);

}  // namespace ferry::policy
