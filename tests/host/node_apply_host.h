// SPDX-License-Identifier: Apache-2.0
// A host with three T4s, and hostd's stages by a policy.
#pragma once

#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "host/node_apply.h"
#include "policy/policy_yaml.h"
#include "tests/host/three_t4s.h"

namespace ferry::host {

/// The policy `a` with these items.
inline policy::Policy policy(const std::string& items) {
  const auto file = policy::read_policies({.file = "p.yaml",
                                           .text = "version: v2\npolicies:\n  a:\n" + items,
                                           .first_line = 1,
                                           .one_line = false});
  if (!file) throw std::logic_error(file.error().message);
  return policy::select_policy(*file, {}).value();
}

/// Free, unless a device is named.
class SomeUser final : public vfio::UseProbe {
 public:
  std::string held;
  std::string held_by_service;
  std::function<void()> before_scan;  ///< what happens on the host meanwhile
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override {
    if (before_scan) before_scan();
    vfio::UseReport report;
    for (const vfio::UseQuestion& question : questions) {
      if (question.device == held_by_service) {
        report.users[held_by_service] = {{.name = "nvidia-persiste",
                                          .pid = 77,
                                          .what = "/dev/nvidia0",
                                          .pod_uid = {},
                                          .service = "nvidia-persistenced.service"}};
      }
      if (question.device != held) continue;
      report.users[held] = {{.kind = vfio::DeviceUser::Kind::virtual_machine,
                             .name = "tenant",
                             .pid = 412,
                             .what = "its group",
                             .pod_uid = {}}};
    }
    return report;
  }
};

class NodeApplyTest : public ThreeT4s {
 protected:
  NodeContext context() {
    const vfio::AcceleratorRules rules{.vendors = {0x10de}, .classes = {vfio::PciClass::display_3d}};
    return {.rebind_context =
                {.host = &kernel_, .writer = &kernel_, .probe = &probe_, .rules = rules, .on_step = {}},
            .vgpu_host = {.host = kernel_,
                          .writer = kernel_,
                          .uses = probe_,
                          .rules = rules,
                          .node = "node-a",
                          .pause = [](auto) {}}};
  }
  NodeOutcome apply(const std::string& items) { return apply_policy(context(), policy(items)).value(); }
  /// "nvidia" or "vfio-pci", and how many vGPUs.
  std::vector<std::string> state() const {
    std::vector<std::string> out;
    out.reserve(kGpus.size());
    for (const char* address : kGpus)
      out.push_back(kernel_.driver_of(address) + " " + std::to_string(mdev_.devices_on(address).size()));
    return out;
  }

  SomeUser probe_;
};

inline constexpr const char* kMixed =
    "  - {devices: all, mode: passthrough}\n"
    "  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 3}}\n"
    "  - {devices: [2], mode: host}\n";
inline constexpr const char* kOther =
    "  - {devices: [0], mode: vgpu, vgpu-devices: {T4-8Q: 1}}\n"
    "  - {devices: [1, 2], mode: passthrough}\n";

}  // namespace ferry::host
