// SPDX-License-Identifier: Apache-2.0
#include "mdev/nvml.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "mdev/nvml_library.h"

namespace ferry {
namespace {

using nvml::Library;

GpuSwitch switch_of(nvml::Status status, unsigned value) {
  if (status != nvml::kSuccess) return GpuSwitch::unsupported;
  return value == 0 ? GpuSwitch::off : GpuSwitch::on;
}

void read_mig(const Library& library, nvml::Device device, ManagedGpu& gpu) {
  unsigned current = 0;
  unsigned pending = 0;
  const auto status = library.call("nvmlDeviceGetMigMode", device, &current, &pending);
  gpu.mig = switch_of(status, current);
  gpu.mig_pending = switch_of(status, pending);
}

GpuSwitch mixed_sizes_of(const Library& library, nvml::Device device) {
  nvml::HeterogeneousMode mode{.version = nvml::version_of<nvml::HeterogeneousMode>(1)};
  const auto status = library.call("nvmlDeviceGetVgpuHeterogeneousMode", device, &mode);
  return switch_of(status, mode.mode);
}

// NVML's name is "MIG 2g.35gb"; other tools leave out the first word.
std::string profile_name(const nvml::GpuInstanceProfileInfo& info) {
  const auto* const end = std::find(info.name.begin(), info.name.end(), '\0');
  std::string_view name(info.name.data(), static_cast<std::size_t>(end - info.name.begin()));
  constexpr std::string_view kMig = "MIG ";
  if (name.starts_with(kMig)) name.remove_prefix(kMig.size());
  return std::string(name);
}

// NVML reports placements also while MIG mode is off.
void read_places(const Library& library, nvml::Device device, GpuInstanceProfile& profile) {
  std::vector<nvml::GpuInstancePlacement> places(nvml::kInstancePlacements);
  unsigned count = nvml::kInstancePlacements;
  const auto status = library.call("nvmlDeviceGetGpuInstancePossiblePlacements_v2", device, profile.id,
                                   places.data(), &count);
  places.resize(status == nvml::kSuccess ? std::min(count, nvml::kInstancePlacements) : 0);
  profile.starts.reserve(places.size());
  for (const nvml::GpuInstancePlacement& place : places) {
    profile.size = place.size;
    profile.starts.push_back(place.start);
  }
  std::ranges::sort(profile.starts);
}

// `number` is nvml.h's own profile number; a GPU's profile ids are other numbers.
std::vector<GpuInstanceProfile> profiles_of(const Library& library, nvml::Device device) {
  std::vector<GpuInstanceProfile> out;
  for (unsigned number = 0; number < nvml::kInstanceProfiles; ++number) {
    nvml::GpuInstanceProfileInfo info{.version = nvml::version_of<nvml::GpuInstanceProfileInfo>(2)};
    if (library.call("nvmlDeviceGetGpuInstanceProfileInfoV", device, number, &info) != nvml::kSuccess)
      continue;
    unsigned left = 0;
    (void)library.call("nvmlDeviceGetGpuInstanceRemainingCapacity", device, info.id, &left);
    out.push_back({.id = info.id,
                   .name = profile_name(info),
                   .most = info.instance_count,
                   .left = left,
                   .slices = info.slice_count});
    read_places(library, device, out.back());
  }
  std::ranges::sort(out, {}, &GpuInstanceProfile::id);
  return out;
}

std::vector<nvml::Instance> handles_of(const Library& library, nvml::Device device, unsigned profile,
                                       unsigned most) {
  // This call cannot report the number of instances first: it fills the array that it gets.
  std::vector<nvml::Instance> out(most);
  unsigned count = most;
  const auto status = library.call("nvmlDeviceGetGpuInstances", device, profile, out.data(), &count);
  out.resize(status == nvml::kSuccess ? std::min(count, most) : 0);
  return out;
}

/// The compute instances of a GPU instance.
struct ComputeInstances {
  std::vector<nvml::ComputeInstance> all;
  std::optional<unsigned> filling;  ///< the profile with the most slices, which fills the GPU instance
  bool one_fills = false;           ///< exactly one exists, and it has that profile
};

ComputeInstances compute_instances_in(const Library& library, nvml::Instance instance) {
  constexpr unsigned kSharedEngines = 0;  // NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
  constexpr unsigned kMost = 8;           // slices of a GPU, each with at most one
  ComputeInstances out;
  unsigned most_slices = 0;
  for (unsigned number = 0; number < nvml::kComputeProfiles; ++number) {
    nvml::ComputeInstanceProfileInfo info;
    const auto status =
        library.call("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, number, kSharedEngines, &info);
    if (status != nvml::kSuccess) continue;
    std::vector<nvml::ComputeInstance> found(kMost);
    unsigned count = kMost;
    if (library.call("nvmlGpuInstanceGetComputeInstances", instance, info.id, found.data(), &count) !=
        nvml::kSuccess)
      count = 0;
    found.resize(std::min(count, kMost));
    if (!out.filling || info.slice_count > most_slices) {
      most_slices = info.slice_count;
      out.filling = info.id;
      out.one_fills = found.size() == 1 && out.all.empty();
    } else if (!found.empty()) {
      out.one_fills = false;
    }
    out.all.insert(out.all.end(), found.begin(), found.end());
  }
  return out;
}

bool is_divided(const ComputeInstances& inside) {
  return !inside.all.empty() && !inside.one_fills;
}

Result<> fill(const Library& library, nvml::Instance instance, const ComputeInstances& inside,
              const std::string& what) {
  if (!inside.filling) return fail(Errc::failed, what + ": it offers no compute instance");
  nvml::ComputeInstance made = nullptr;
  return library.checked(
      library.call("nvmlGpuInstanceCreateComputeInstance", instance, *inside.filling, &made), what);
}

std::vector<GpuInstance> instances_of(const Library& library, nvml::Device device,
                                      const std::vector<GpuInstanceProfile>& profiles) {
  std::vector<GpuInstance> out;
  for (const GpuInstanceProfile& profile : profiles) {
    for (nvml::Instance handle : handles_of(library, device, profile.id, profile.most)) {
      nvml::GpuInstanceInfo info;
      if (library.call("nvmlGpuInstanceGetInfo", handle, &info) != nvml::kSuccess) continue;
      out.push_back({.id = info.id,
                     .profile = info.profile_id,
                     .start = info.placement_start,
                     .divided = is_divided(compute_instances_in(library, handle))});
    }
  }
  std::ranges::sort(out, {}, &GpuInstance::id);
  return out;
}

std::string type_name(const Library& library, unsigned id) {
  constexpr unsigned kLongest = 64;  // NVML_VGPU_NAME_BUFFER_SIZE
  std::string name(kLongest, '\0');
  unsigned size = kLongest;
  if (library.call("nvmlVgpuTypeGetName", id, name.data(), &size) != nvml::kSuccess) return {};
  name.resize(std::min(name.find('\0'), name.size()));
  return name;
}

ManagedType type_of(const Library& library, nvml::Device device, unsigned id) {
  ManagedType type{.id = id, .name = type_name(library, id)};
  unsigned long long framebuffer = 0;
  (void)library.call("nvmlVgpuTypeGetFramebufferSize", id, &framebuffer);
  type.framebuffer = framebuffer;
  unsigned profile = nvml::kNoInstanceProfile;
  (void)library.call("nvmlVgpuTypeGetGpuInstanceProfileId", id, &profile);
  if (profile != nvml::kNoInstanceProfile) type.instance_profile = profile;
  unsigned most = 0;
  if (library.call("nvmlVgpuTypeGetMaxInstances", device, id, &most) == nvml::kSuccess)
    type.most_per_gpu = most;
  nvml::MaxInstancesPerGpuInstance per{
      .version = nvml::version_of<nvml::MaxInstancesPerGpuInstance>(1), .type_id = id, .most = 0};
  if (library.call("nvmlVgpuTypeGetMaxInstancesPerGpuInstance", &per) == nvml::kSuccess)
    type.most_per_instance = per.most;
  return type;
}

std::vector<ManagedType> types_of(const Library& library, nvml::Device device) {
  const auto ids = library.list<unsigned>([&](unsigned* count, unsigned* into) {
    return library.call("nvmlDeviceGetSupportedVgpus", device, count, into);
  });
  std::vector<ManagedType> out;
  out.reserve(ids.size());
  for (const unsigned id : ids) out.push_back(type_of(library, device, id));
  std::ranges::sort(out, {}, &ManagedType::id);
  return out;
}

/// The loaded library, and the GPU that a call is about.
struct Opened {
  Library loaded;
  nvml::Device device = nullptr;
};
Result<Opened> open(const HostFs& host, const PciAddress& gpu) {
  auto library = Library::open(host);
  if (!library) return fail(std::move(library).error());
  const auto device = library->device(gpu);
  if (!device) return fail(Error(device.error()));
  return Opened{.loaded = std::move(*library), .device = *device};
}

}  // namespace

Result<ManagedGpu> Nvml::read(const PciAddress& gpu) {
  const auto opened = open(*host_, gpu);
  if (!opened) return fail(Error(opened.error()));
  const Library& library = opened->loaded;
  nvml::Device device = opened->device;
  ManagedGpu out;
  unsigned mode = 0;
  out.vgpu_host = library.call("nvmlDeviceGetVirtualizationMode", device, &mode) == nvml::kSuccess &&
                  mode == nvml::kModeHostVgpu;
  read_mig(library, device, out);
  out.mixed_sizes = mixed_sizes_of(library, device);
  out.profiles = profiles_of(library, device);
  if (out.mig == GpuSwitch::on) out.instances = instances_of(library, device, out.profiles);
  if (out.vgpu_host) out.types = types_of(library, device);
  return out;
}

Result<> Nvml::make_instance(const PciAddress& gpu, std::uint32_t profile) {
  const auto opened = open(*host_, gpu);
  if (!opened) return fail(Error(opened.error()));
  const Library& library = opened->loaded;
  nvml::Device device = opened->device;
  const std::string what = fmt::format("make a GPU instance of profile {}", profile);
  nvml::Instance made = nullptr;
  auto done = library.checked(library.call("nvmlDeviceCreateGpuInstance", device, profile, &made), what);
  if (!done) return done;
  done = fill(library, made, compute_instances_in(library, made), what);
  if (!done) (void)library.call("nvmlGpuInstanceDestroy", made);  // useless without a compute instance
  return done;
}

Result<> Nvml::remove_instance(const PciAddress& gpu, std::uint32_t instance) {
  const auto opened = open(*host_, gpu);
  if (!opened) return fail(Error(opened.error()));
  const Library& library = opened->loaded;
  nvml::Device device = opened->device;
  const std::string what = fmt::format("remove GPU instance {}", instance);
  nvml::Instance handle = nullptr;
  auto found = library.checked(library.call("nvmlDeviceGetGpuInstanceById", device, instance, &handle), what);
  if (!found) return found;
  const ComputeInstances inside = compute_instances_in(library, handle);
  if (is_divided(inside)) {
    return fail(
        Errc::refused, fmt::format("{}: it is divided into compute instances", what),
        fmt::format("`nvidia-smi mig -dci -gi {}` takes them away, once nothing uses them", instance));
  }
  for (nvml::ComputeInstance one : inside.all) {
    if (auto gone = library.checked(library.call("nvmlComputeInstanceDestroy", one), what); !gone)
      return gone;
  }
  auto gone = library.checked(library.call("nvmlGpuInstanceDestroy", handle), what);
  if (!gone && inside.one_fills) (void)fill(library, handle, inside, what);  // restores the compute instance
  return gone;
}

Result<> Nvml::set_mixed_sizes(const PciAddress& gpu, bool on) {
  const auto opened = open(*host_, gpu);
  if (!opened) return fail(Error(opened.error()));
  const nvml::HeterogeneousMode mode{.version = nvml::version_of<nvml::HeterogeneousMode>(1),
                                     .mode = on ? 1U : 0U};
  return opened->loaded.checked(
      opened->loaded.call("nvmlDeviceSetVgpuHeterogeneousMode", opened->device, &mode),
      fmt::format("switch vGPUs of different sizes {}", on ? "on" : "off"));
}

Result<> Nvml::set_mig(const PciAddress& gpu, bool on) {
  const auto opened = open(*host_, gpu);
  if (!opened) return fail(Error(opened.error()));
  const std::string what = fmt::format("switch MIG mode {}", on ? "on" : "off");
  nvml::Status activation = nvml::kSuccess;  // a mode that waits for a reset is no failure: read() shows it
  auto done = opened->loaded.checked(
      opened->loaded.call("nvmlDeviceSetMigMode", opened->device, on ? 1U : 0U, &activation), what);
  if (done && activation == nvml::kInUse) return opened->loaded.checked(activation, what);
  return done;
}

}  // namespace ferry
