// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "mdev/framework.h"
#include "vfio/use_probe.h"
#include "vgpu-dm/apply/gpu_run.h"
#include "vgpu-dm/profile/vgpu_params.h"

namespace ferry::vgpu {
namespace {

constexpr const char* kPlacementHint =
    "which placement IDs there are depends on the GPU, the type and what else is on it; without placement "
    "the driver chooses";

bool is_errno(const Error& error, int number) {
  return error.code == std::error_code(number, std::generic_category());
}

Error held_by_a_vm(const Error& error) {
  return {.code = Errc::refused, .message = "a VM holds it: " + error.message, .hint = "stop the VM first"};
}

using Kind = VgpuStep::Kind;

tl::unexpected<Error> lied(const VgpuStep& step, const char* what) {
  return fail(Errc::failed, fmt::format("{}: the kernel took the write, but {}", step.text(), what));
}

Result<> verify_vgpu(const VgpuStep& step, const mdev::VgpuGpu& now) {
  const auto device = std::ranges::find(now.devices, step.id, &mdev::VgpuDevice::id);
  if (step.kind == Kind::remove) {
    if (device != now.devices.end() && device->type_id == step.type_id)
      return lied(step, "the vGPU is still there");
    return {};
  }
  if (device == now.devices.end()) return lied(step, "there is no such vGPU");
  if (device->type_id != step.type_id || device->parent != step.parent)
    return lied(step, "it is another vGPU");
  if (!device->iommu_group) return lied(step, "no driver has taken the vGPU");
  if (step.placement && device->placement != step.placement) return lied(step, "it is at another placement");
  if (step.kind == Kind::set_params) {
    const auto desired = VgpuParams::parse(step.params);
    const auto found = VgpuParams::parse(device->params.value_or(""));
    if (!desired || !found || !(*desired == *found)) return lied(step, "other parameters are read back");
  }
  return {};
}

Result<> verify_functions(const VgpuStep& step, const mdev::VgpuGpu& now) {
  if (step.kind == Kind::set_autoprobe) {
    if (now.vf_autoprobe == (step.number != 0)) return {};
    return lied(step, "another value is read back");
  }
  if (step.kind == Kind::disable_vfs) {
    if (now.function.sriov_numvfs == 0) return {};
    return lied(step, "they are still there");
  }
  if (now.on_virtual_functions() && !now.parents.empty()) return {};
  return fail(Errc::failed, fmt::format("{}: they are there, and {}", step.text(), now.obstacle),
              "is its driver one that makes vGPUs?");
}

bool has_held(const VgpuStep& step, const mdev::ManagedGpu& now) {
  const mdev::GpuSwitch desired = step.number == 0 ? mdev::GpuSwitch::off : mdev::GpuSwitch::on;
  if (step.kind == Kind::set_mig) {
    return now.mig == desired || now.mig_pending == desired;  // the next plan reports that a reset is due
  }
  if (step.kind == Kind::set_mixed_sizes) return now.mixed_sizes == desired;
  if (step.kind == Kind::make_instance)
    return std::ranges::count(now.instances, step.number, &mdev::GpuInstance::profile) > 0;
  return std::ranges::count(now.instances, step.number, &mdev::GpuInstance::id) == 0;
}

}  // namespace

Result<> place(const VgpuHost& on, const VgpuStep& step, std::uint32_t placement) {
  const AttributeWrite write = step.framework->placement_write(step.parent, step.id, placement);
  if (const auto now = on.host.read_attribute(write.path); now && *now == write.value) return {};
  auto done = on.writer.write(write.path, write.value);
  if (done) return done;
  Error error = std::move(done).error();
  if (is_errno(error, EPERM)) return fail(held_by_a_vm(error));
  if (error.hint.empty()) error.hint = kPlacementHint;
  return fail(std::move(error));
}

Error explained(const VgpuHost& on, const VgpuStep& step, Error error) {
  // The number still available changes with each vGPU that is made, by any program.
  if (step.kind == VgpuStep::Kind::create && error.code != Errc::stuck &&
      step.framework->available_now(on.host, step.parent, step.type_id).value_or(1) == 0) {
    return {.code = Errc::failed,
            .message =
                fmt::format("{} no longer offers {}: {}", step.parent.text(), step.short_name, error.message),
            .hint = "something else may be creating vGPUs on this node"};
  }
  const bool tells = step.kind == VgpuStep::Kind::set_params ||
                     (step.kind == VgpuStep::Kind::remove && step.framework->refuses_removal_in_use());
  if (!tells || !is_errno(error, EPERM)) return error;
  return held_by_a_vm(error);
}

Result<std::vector<AttributeWrite>> writes_of(const HostFs& host, const VgpuStep& step) {
  if (step.kind == Kind::set_params)
    return step.framework->params_writes(host, step.parent, step.id, step.params);
  return std::vector{step.kind == Kind::create
                         ? step.framework->creation_write(step.parent, step.type_id, step.id)
                         : step.framework->removal_write(step.parent, step.id)};
}

Result<> have_library_do(mdev::GpuManagement& library, const VgpuStep& step) {
  if (step.kind == Kind::make_instance) return library.make_instance(step.parent, step.number);
  if (step.kind == Kind::remove_instance) return library.remove_instance(step.parent, step.number);
  if (step.kind == Kind::set_mig) return library.set_mig(step.parent, step.number != 0);
  return library.set_mixed_sizes(step.parent, step.number != 0);
}

Result<> verify(const VgpuStep& step, const mdev::VgpuGpu& now, const Result<mdev::ManagedGpu>* said) {
  const VgpuStep::Target target = step.target();
  if (target == VgpuStep::Target::vgpu) return verify_vgpu(step, now);
  if (target == VgpuStep::Target::functions) return verify_functions(step, now);
  if (said == nullptr) return fail(Errc::failed, step.text() + ": Ferry cannot find out whether it was done");
  if (!*said) return fail(Error(said->error()).during(step.text()));
  if (has_held(step, **said)) return {};
  return fail(Errc::failed, fmt::format("{}: the driver took it, but it is not so", step.text()));
}

RemovalFence::RemovalFence(const HostFs& host)
    : open_([&host](const std::filesystem::path& relative) { return host.open(relative, O_RDWR); }) {}

Result<> RemovalFence::close(const mdev::VgpuGpu& gpu, std::span<const VgpuStep> removals) {
  for (const VgpuStep& step : removals) {
    const auto device = std::ranges::find(gpu.devices, step.id, &mdev::VgpuDevice::id);
    if (step.framework->refuses_removal_in_use() || device == gpu.devices.end() || !device->iommu_group)
      continue;
    for (const std::string& name : vfio::group_node_names(*device->iommu_group)) {
      auto node = open_("dev/vfio/" + name);
      if (node) {
        held_.emplace(step.id.text, std::move(*node));
        break;
      }
      if (node.error().code != std::errc::device_or_resource_busy) continue;
      open();
      return fail(Errc::refused,
                  fmt::format("{}: vGPU {} ({}) would have to be removed: /dev/vfio/{} was opened after the "
                              "check for device users",
                              gpu.label(), step.id.text, step.short_name, name),
                  "stop the VM first");
    }
  }
  return {};
}

bool RemovalFence::leaves_open(const VgpuStep& removal) const {
  return !removal.framework->refuses_removal_in_use() && !held_.contains(removal.id.text);
}

}  // namespace ferry::vgpu
