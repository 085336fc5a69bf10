// SPDX-License-Identifier: Apache-2.0
#include "host/validation_files.h"

#include <algorithm>
#include <vector>

#include <spdlog/spdlog.h>

namespace ferry::host {
namespace {

constexpr const char* kReady = "gpu-ferry\n";
// No consumer waits for workload-type on a node for containers.
constexpr std::array kWorkloads = {"vm-passthrough\n", "vm-vgpu\n"};

}  // namespace

void ValidationFiles::keep(const api::HostStatus& status, const policy::Policy* policy) {
  const bool vgpu = policy != nullptr && policy->asks_for(policy::Mode::vgpu);
  const bool passthrough = policy != nullptr && policy->asks_for(policy::Mode::passthrough);
  const bool good = status.phase == api::NodePhase::ready;
  // The operator's validator says ready without a GPU, too, but no VM can have one then.
  const bool all_on_vfio =
      !status.accelerators.empty() &&
      std::ranges::all_of(status.accelerators, [](const api::AcceleratorStatus& gpu) {
        return gpu.desired != policy::Mode::passthrough ||
               (gpu.mode == policy::Mode::passthrough && gpu.state == api::GpuState::ready);
      });
  const bool have_vgpus = std::ranges::any_of(status.accelerators, [](const api::AcceleratorStatus& gpu) {
    return gpu.desired == policy::Mode::vgpu && !gpu.vgpus.empty();
  });

  // An outdated file is removed first: a consumer that has seen workload-type must find the right ready file.
  keep(kVfioReady, good && passthrough && all_on_vfio ? kReady : nullptr);
  keep(kVgpuReady, good && vgpu && have_vgpus ? kReady : nullptr);
  // On a node with several modes the consumers wait for vGPUs, which are created last.
  if (policy != nullptr) keep(kWorkloadType, vgpu ? kWorkloads[1] : passthrough ? kWorkloads[0] : nullptr);
}

void ValidationFiles::keep(std::string_view path, const char* content) {
  const auto warn_once = [this](const Error& error) {
    if (warned_.insert(error.message).second) spdlog::warn("{}", error.text());
  };
  const bool is_workload = path == kWorkloadType;
  const auto now = host_.read_file(path, HostFs::Links::refused);
  if (!now && !is_gone(now.error())) return warn_once(now.error());
  const bool is_ours =
      now && (is_workload ? std::ranges::find(kWorkloads, *now) != kWorkloads.end() : *now == kReady);
  const bool is_right = content != nullptr ? now && (!is_workload || *now == content) : !is_ours;
  if (is_right) return;
  const auto done = content != nullptr ? host_.write_file(path, content) : host_.remove_file(path);
  if (!done) return warn_once(done.error());
  spdlog::info("/{}: {}", path, content != nullptr ? "written" : "removed");
}

}  // namespace ferry::host
