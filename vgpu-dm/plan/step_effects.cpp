// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/step_effects.h"

#include <algorithm>

#include <fmt/format.h>

#include "vgpu-dm/apply/vgpu_params.h"

namespace ferry::vgpu {
namespace {

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
    const auto wanted = VgpuParams::parse(step.params);
    const auto found = VgpuParams::parse(device->params.value_or(""));
    if (!wanted || !found || !(*wanted == *found)) return lied(step, "other parameters are read back");
  }
  return {};
}

Result<> verify_functions(const VgpuStep& step, const mdev::VgpuGpu& now) {
  if (step.kind == Kind::disable_vfs) {
    if (now.function.sriov_numvfs == 0) return {};
    return lied(step, "they are still there");
  }
  if (now.on_virtual_functions()) return {};
  return fail(Errc::failed, fmt::format("{}: they are there, and {}", step.text(), now.obstacle),
              "is its driver one that makes vGPUs?");
}

bool has_held(const VgpuStep& step, const mdev::ManagedGpu& now) {
  const mdev::GpuSwitch wanted = step.number == 0 ? mdev::GpuSwitch::off : mdev::GpuSwitch::on;
  if (step.kind == Kind::set_mig) {
    return now.mig == wanted || now.mig_pending == wanted;  // the next plan reports that a reset is due
  }
  if (step.kind == Kind::set_mixed_sizes) return now.mixed_sizes == wanted;
  if (step.kind == Kind::make_instance)
    return std::ranges::count(now.instances, step.number, &mdev::GpuInstance::profile) > 0;
  return std::ranges::count(now.instances, step.number, &mdev::GpuInstance::id) == 0;
}

}  // namespace

AttributeWrite write_of(const VgpuStep& step) {
  if (step.kind == Kind::create)
    return mdev::creation_write(step.framework, step.parent, step.type_id, step.id);
  if (step.kind == Kind::set_params)
    return mdev::params_write(step.framework, step.parent, step.id, step.params);
  return mdev::removal_write(step.framework, step.parent, step.id);
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
  if (said == nullptr) return fail(Errc::failed, step.text() + ": nobody says whether it is so");
  if (!*said) return fail(Error(said->error()).during(step.text()));
  if (has_held(step, **said)) return {};
  return fail(Errc::failed, fmt::format("{}: the driver took it, but it is not so", step.text()));
}

}  // namespace ferry::vgpu
