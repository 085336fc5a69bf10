// SPDX-License-Identifier: Apache-2.0
// How long planning takes on a big node, 16 GPUs with 32 virtual functions each, all of which carry a vGPU:
// against copying what it is planned from, and at most 20 ms.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "mdev/framework.h"
#include "tests/bench/pairs.h"
#include "tests/support/must.h"
#include "vgpu-dm/plan/plan.h"
#include "vgpu-dm/plan/stable_uuid.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::test {
namespace {

constexpr unsigned kGpus = 16;
constexpr unsigned kFunctions = 32;
constexpr unsigned kTypes = 24;
constexpr double kMostMilliseconds = 20;

// Half of the functions carry what the profile asks for, half another series of the same size.
mdev::VgpuGpu gpu_number(unsigned index) {
  mdev::VgpuGpu gpu;
  gpu.index = index;
  gpu.function.address.bus = static_cast<std::uint8_t>(index + 1);
  gpu.framework = &mdev::mediated_on_functions();
  for (unsigned f = 0; f < kFunctions; ++f) {
    mdev::VgpuParent parent;
    parent.address = gpu.function.address;
    parent.address.device = static_cast<std::uint8_t>(1 + f / 8);
    parent.address.function = static_cast<std::uint8_t>(f % 8);
    for (unsigned t = 0; t < kTypes; ++t) {
      mdev::VgpuType type;
      type.id = fmt::format("nvidia-{}", 1100 + t);
      type.short_name = fmt::format("L40S-{}{}", 1 + t / 4, "QCBA"[t % 4]);
      type.name = "NVIDIA " + type.short_name;
      type.max_instances = kFunctions;
      type.framebuffer_mib = (1 + t / 4) * 1024;
      parent.types.push_back(std::move(type));
    }
    const mdev::VgpuType& present = parent.types.at(f % 2);
    mdev::VgpuDevice device;
    device.parent = parent.address;
    device.id = vgpu::stable_uuid("node-a", parent.address, present.short_name, 0);
    device.type_id = present.id;
    device.type_name = present.name;
    device.short_name = present.short_name;
    device.iommu_group = 100 * index + f;
    gpu.devices.push_back(std::move(device));
    gpu.parents.push_back(std::move(parent));
  }
  return gpu;
}

double best_of(int passes, const std::function<void()>& work) {
  double best = 1e9;
  for (int pass = 0; pass < passes; ++pass) {
    const std::clock_t begin = std::clock();
    work();
    best = std::min(best, 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return best;
}

int run(int argc, char** argv) {
  vgpu::VgpuSnapshot snapshot;
  snapshot.node = "node-a";
  for (unsigned i = 0; i < kGpus; ++i) snapshot.inventory.gpus.push_back(gpu_number(i));
  const auto file = must(vgpu::read_profiles(
      {.file = "p.yaml",
       .text = "version: v1\nvgpu-configs:\n  all:\n  - {devices: all, vgpu-devices: {L40S-1Q: 32}}\n",
       .first_line = 1,
       .one_line = false}));
  const vgpu::Profile& profile = file.profiles.front();
  const vgpu::VgpuPlan plan = vgpu::plan_profile(profile, snapshot);
  if (plan.gpus.at(0).steps.size() != kFunctions)
    throw std::runtime_error("the plan is not what it should be");

  const double took = best_of(10, [&] { vgpu::plan_profile(profile, snapshot); });
  const bool soon = took <= kMostMilliseconds;
  fmt::print("planning {} GPUs with {} functions each: {:.2f} ms (bound {:.0f} ms): {}\n", kGpus, kFunctions,
             took, kMostMilliseconds, soon ? "ok" : "TOO SLOW");
  const int ratio = run_contest({.name = fmt::format("planning {} vGPUs", kGpus * kFunctions),
                                 .baseline = "copying what they are planned from",
                                 .ours = [&] { vgpu::plan_profile(profile, snapshot); },
                                 .theirs = [&] { const vgpu::VgpuSnapshot copy(snapshot); },
                                 .bound = 4.0},
                                argc, argv);
  return soon ? ratio : EXIT_FAILURE;
}

}  // namespace
}  // namespace ferry::test

int main(int argc, char** argv) {
  return ferry::test::run_benchmark(argc, argv, ferry::test::run);
}
