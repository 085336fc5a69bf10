// SPDX-License-Identifier: Apache-2.0
// What a node is told through Kubernetes, read from files: a Node object's label chooses the profile, a
// ConfigMap carries the profiles.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/config_tree.h"
#include "common/result.h"
#include "policy/policy.h"
#include "vgpu-dm/profile.h"
#include "vgpu-dm/profile_yaml.h"

namespace ferry {

/// The label that names a node's profile, as NVIDIA's vGPU device manager has it.
inline constexpr const char* kVgpuConfigLabel = "nvidia.com/vgpu.config";

/// The part of a Node object that concerns us.
struct NodeObject {
  std::string file;
  std::string name;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations = {};
  /// By name, as status.runtimeHandlers has them: a kubelet's from 1.30 on, where its container runtime tells
  /// them (containerd from 2.0 on). Empty: nobody lists them.
  std::set<std::string> runtime_handlers = {};
};

/// Reads a Node object, YAML or JSON. Errc::invalid_config with "file:line".
Result<NodeObject> read_node_object(const std::filesystem::path& path);

/// The profile that the node's label names, or `otherwise` where the label is absent or empty.
/// Errc::invalid_config when there is neither.
Result<std::string> profile_name(const NodeObject& node, const std::optional<std::string>& otherwise);

/// Reads profiles from a profile file, or from a ConfigMap: its key config.yaml, or its only key. Places in
/// errors are lines of the file itself. "-" is standard input.
Result<ProfileFile> read_profile_file(const std::filesystem::path& path, Reading how = Reading::strict);

/// The same for policies, v2 or v1.
Result<PolicyFile> read_policy_file(const std::filesystem::path& path, Reading how = Reading::strict);

}  // namespace ferry
