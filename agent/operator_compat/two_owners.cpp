// SPDX-License-Identifier: Apache-2.0
#include "agent/operator_compat/two_owners.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/labels.h"

namespace ferry::agent {
namespace {

struct Program {
  std::string_view name;  ///< the rest of its label, after api::kDeployPrefix
  std::string_view daemon_set;
  std::string_view hand_over;
  bool advertised_as = false;  ///< registers the same resources with the kubelet as Ferry's plugin
};
constexpr std::array kPrograms = {
    Program{.name = "vfio-manager", .daemon_set = "nvidia-vfio-manager", .hand_over = "vfioManager"},
    Program{.name = "vgpu-device-manager",
            .daemon_set = "nvidia-vgpu-device-manager",
            .hand_over = "vgpuDeviceManager"},
    Program{.name = "sandbox-device-plugin",
            .daemon_set = "nvidia-sandbox-device-plugin-daemonset",
            .hand_over = "sandboxDevicePlugin",
            .advertised_as = true},
    Program{.name = "kata-sandbox-device-plugin",
            .daemon_set = "nvidia-kata-sandbox-device-plugin-daemonset",
            .hand_over = "kataSandboxDevicePlugin",
            .advertised_as = true},
    // The device plugin installed without the operator.
    Program{.name = "kubevirt-gpu-device-plugin",
            .daemon_set = "nvidia-kubevirt-gpu-dp-daemonset",
            .hand_over = "",
            .advertised_as = true}};

/// Absent: the program does not own the GPUs.
std::optional<OtherOwner> owner_of(const Program& program, const Labels& labels,
                                   const OtherPrograms& others) {
  const auto owner = [&](std::string why, bool seen) {
    return OtherOwner{
        .name = program.name, .why = std::move(why), .hand_over = program.hand_over, .seen = seen};
  };
  if (others.pods) {
    const auto pod = std::ranges::find(*others.pods, program.daemon_set, &PodOnNode::daemon_set);
    if (pod != others.pods->end()) return owner(fmt::format("its pod {} is here", pod->text()), true);
  }
  const auto label = labels.find(api::kDeployPrefix + std::string(program.name));
  if (label == labels.end()) return std::nullopt;
  const std::string value = resumed_value(label->second);
  if (value != "true" && !is_paused(value)) return std::nullopt;
  if (others.daemon_sets && !others.daemon_sets->contains(std::string(program.daemon_set)))
    return std::nullopt;
  return owner(fmt::format("label {}={}", label->first, value), others.daemon_sets.has_value());
}

/// The device plugin that the pod belongs to; end(): none.
const Program* offering_program(const PodOnNode& pod) {
  return std::ranges::find_if(kPrograms, [&](const Program& program) {
    return program.advertised_as && program.daemon_set == pod.daemon_set;
  });
}

}  // namespace

BelievedOwners believed_owners(const std::vector<std::string>& owner_spaces,
                               const std::string& operator_space) {
  BelievedOwners out{.spaces = {owner_spaces.begin(), owner_spaces.end()}, .operator_space = operator_space};
  if (!operator_space.empty()) out.spaces.insert(operator_space);
  return out;
}

bool is_another_program(std::string_view daemon_set) {
  return std::ranges::find(kPrograms, daemon_set, &Program::daemon_set) != kPrograms.end();
}

bool are_of_the_operator(const std::set<std::string>& daemon_sets) {
  return std::ranges::any_of(daemon_sets, [](const std::string& name) {
    return name.starts_with("nvidia-") || name == "gpu-feature-discovery";
  });
}

std::vector<OtherOwner> other_owners(const Labels& labels, const OtherPrograms& others) {
  std::vector<OtherOwner> out;
  if (others.are_neighbours) return out;
  for (const Program& program : kPrograms)
    if (auto owner = owner_of(program, labels, others)) out.push_back(std::move(*owner));
  return out;
}

std::string hand_over_text(const std::vector<OtherOwner>& owners) {
  std::vector<std::string> keys;
  for (const OtherOwner& owner : owners)
    if (!owner.hand_over.empty()) keys.push_back(fmt::format("{}: {{enabled: false}}", owner.hand_over));
  return keys.empty() ? std::string() : fmt::format("spec: {{{}}}", fmt::join(keys, ", "));
}

bool has_another_plugin(const OtherPrograms& others) {
  return others.pods && std::ranges::any_of(*others.pods, [](const PodOnNode& pod) {
           return offering_program(pod) != kPrograms.end();
         });
}

std::optional<std::string> plugin_is_on_standby(const OtherPrograms& others) {
  if (!others.pods) return std::nullopt;
  for (const PodOnNode& pod : *others.pods) {
    const auto* const program = offering_program(pod);
    // Leaves out the pod's name, which changes at each restart.
    if (pod.runs && program != kPrograms.end())
      return fmt::format("NVIDIA's {} serves this node", program->name);
  }
  if (has_another_plugin(others) || others.unserved < kUnservedPatience) return std::nullopt;
  return std::string();
}

std::string standby_because(const std::vector<OtherOwner>& owners) {
  std::vector<std::string> parts;
  parts.reserve(owners.size());
  for (const OtherOwner& owner : owners) parts.push_back(fmt::format("{} ({})", owner.name, owner.why));
  const std::string lines = hand_over_text(owners);
  const bool unseen = std::ranges::any_of(owners, [](const OtherOwner& owner) { return !owner.seen; });
  return fmt::format(
      "Ferry is on standby: NVIDIA's {} {} this node; {}{}", fmt::join(parts, ", "),
      owners.size() == 1 ? "serves" : "serve",
      lines.empty() ? "remove it to hand the node over" : "ClusterPolicy hands it over with " + lines,
      unseen ? "; the operator's DaemonSets have not been seen: --operator-namespace says where they are, "
               "and a label that an operator left behind is to be removed"
             : "");
}

}  // namespace ferry::agent
