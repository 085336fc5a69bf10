// SPDX-License-Identifier: Apache-2.0
// A libnvidia-ml.so.1 for tests: one GPU with the GPU instance profiles of an H200 and a few vGPU types. What
// it keeps, it keeps in the file that FERRY_NVML_STATE names, as a driver would; without one, nowhere.
// Answers as NVML does where that was seen on a host (driver 580.159.04), else as nvml.h says.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "mdev/nvml_abi.h"

namespace nvml = ferry::mdev::nvml;
using nvml::Status;

namespace ferry::mdev::nvml {
struct DeviceHandle {};
struct GpuInstanceHandle {
  unsigned id;
  unsigned profile;
  unsigned compute;  // compute instances in it: one that fills it, or several of one slice
};
struct ComputeInstanceHandle {};
}  // namespace ferry::mdev::nvml

namespace {

constexpr const char* kGpu = "0000:17:00.0";
constexpr unsigned kMemorySlices = 8;

struct Profile {
  unsigned number;  // nvml.h's
  unsigned id;
  unsigned slices;
  unsigned most;
  unsigned memory_slices;
  unsigned places;
  const char* name;
};
constexpr std::array<Profile, 7> kProfiles = {{{0, 19, 1, 7, 1, 7, "MIG 1g.18gb"},
                                               {1, 14, 2, 3, 2, 3, "MIG 2g.35gb"},
                                               {2, 9, 3, 2, 4, 2, "MIG 3g.71gb"},
                                               {3, 5, 4, 1, 4, 1, "MIG 4g.71gb"},
                                               {4, 0, 7, 1, 8, 1, "MIG 7g.141gb"},
                                               {7, 20, 1, 1, 1, 7, "MIG 1g.18gb+me"},
                                               {9, 15, 1, 4, 2, 4, "MIG 1g.35gb"}}};

struct Type {
  unsigned id;
  const char* name;
  unsigned long long mib;
  unsigned profile;
  unsigned most;
  // With mixed sizes: the units that it takes, and where it may begin.
  unsigned size = 0;
  std::array<unsigned, 2> placements = {};
  unsigned places = 0;
};
constexpr std::array<Type, 4> kTypes = {
    {{1500, "NVIDIA H200-1-18C", 18432, 19, 7},
     {1501, "NVIDIA H200-3-71C", 72704, 9, 2},
     {1510, "NVIDIA H200-35C", 35840, nvml::kNoInstanceProfile, 4, 1, {3, 0}, 2},
     {1511, "NVIDIA H200-70C", 71680, nvml::kNoInstanceProfile, 2, 2, {1}, 1}}};

/// All that a driver keeps.
struct State {
  unsigned host = 1;  // a driver that makes vGPUs
  unsigned mig = 0;
  unsigned pending = 0;
  unsigned needs_reset = 0;
  unsigned mixed = 0;
  unsigned busy = 0;        // a vGPU is there
  unsigned opened = 0;      // a process has the GPU open, so that MIG mode stays pending
  unsigned stubborn = 0;    // a pending MIG mode cannot be taken back
  unsigned mig_unread = 0;  // the MIG mode cannot be read
  unsigned held = 0;        // GPU instances do not go
  unsigned no_compute = 0;  // compute instances cannot be made
  unsigned old = 0;         // it knows only the first version of lists of placements
  unsigned no_driver = 0;
  unsigned failing = 0;  // the calls of nvmlInit that fail before one does not
  unsigned open = 0;
  unsigned next = 1;
  std::vector<nvml::GpuInstanceHandle> instances;

  static State read() {
    State state;
    const char* path = std::getenv("FERRY_NVML_STATE");
    std::ifstream file(path == nullptr ? "" : path);
    std::string key;
    while (file >> key) {
      if (key == "instance") {
        nvml::GpuInstanceHandle one{};
        file >> one.id >> one.profile >> one.compute;
        state.instances.push_back(one);
      }
      for (auto& [name, value] : state.fields())
        if (key == name) file >> *value;
    }
    return state;
  }
  void write() {
    const char* path = std::getenv("FERRY_NVML_STATE");
    if (path == nullptr) return;
    std::ofstream file(path);
    for (auto& [name, value] : fields()) file << name << ' ' << *value << '\n';
    for (const auto& one : instances)
      file << "instance " << one.id << ' ' << one.profile << ' ' << one.compute << '\n';
  }
  unsigned left(const Profile& profile) const {
    unsigned memory = 0;
    unsigned same = 0;
    for (const auto& one : instances) {
      const auto* of = std::find_if(kProfiles.begin(), kProfiles.end(),
                                    [&](const Profile& p) { return p.id == one.profile; });
      memory += of->memory_slices;
      same += one.profile == profile.id ? 1 : 0;
    }
    return std::min(profile.most - same, (kMemorySlices - memory) / profile.memory_slices);
  }

 private:
  std::vector<std::pair<std::string_view, unsigned*>> fields() {
    return {{"host", &host},
            {"mig", &mig},
            {"pending", &pending},
            {"needs_reset", &needs_reset},
            {"mixed", &mixed},
            {"busy", &busy},
            {"opened", &opened},
            {"stubborn", &stubborn},
            {"mig_unread", &mig_unread},
            {"no_compute", &no_compute},
            {"no_driver", &no_driver},
            {"failing", &failing},
            {"old", &old},
            {"held", &held},
            {"open", &open},
            {"next", &next}};
  }
};

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): what handles point to, as in any such
// library
nvml::DeviceHandle the_device;
nvml::ComputeInstanceHandle the_compute_instance;
std::vector<nvml::GpuInstanceHandle> handed_out(64);
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

nvml::Instance hand_out(const nvml::GpuInstanceHandle& instance) {
  handed_out.at(instance.id) = instance;
  return &handed_out[instance.id];
}
nvml::GpuInstanceHandle* find(State& state, unsigned id) {
  const auto found = std::find_if(state.instances.begin(), state.instances.end(),
                                  [&](const nvml::GpuInstanceHandle& one) { return one.id == id; });
  return found == state.instances.end() ? nullptr : &*found;
}
const Type* type_of(unsigned id) {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& t) { return t.id == id; });
  return found == kTypes.end() ? nullptr : found;
}
/// nvmlVgpuPlacementList_v1_t, as nvml.h declares it.
struct OldPlacements {
  unsigned version = 0;
  unsigned size = 0;
  unsigned count = 0;
  unsigned* ids = nullptr;
};
static_assert(nvml::version_of<OldPlacements>(1) == nvml::kOldPlacements);
template <typename Placements>
Status list_placements(const Type& type, Placements& out) {
  if (out.count < type.places) return nvml::kInsufficientSize;
  out.size = type.size;
  out.count = type.places;
  std::copy_n(type.placements.begin(), type.places, out.ids);
  return nvml::kSuccess;
}

}  // namespace

extern "C" {

Status nvmlInit_v2() {
  State state = State::read();
  if (state.no_driver != 0) return nvml::kDriverNotLoaded;
  if (state.failing != 0) {
    --state.failing;
    state.write();
    return nvml::kDriverNotLoaded;
  }
  ++state.open;
  state.write();
  return nvml::kSuccess;
}
Status nvmlShutdown() {
  State state = State::read();
  --state.open;
  state.write();
  return nvml::kSuccess;
}
const char* nvmlErrorString(Status status) {
  return status == nvml::kInUse ? "In use by another client" : "Not so";
}
Status nvmlDeviceGetHandleByPciBusId_v2(const char* address, nvml::Device* device) {
  *device = &the_device;
  return std::string_view(address) == kGpu ? nvml::kSuccess : nvml::kNotFound;
}
Status nvmlDeviceGetVirtualizationMode(nvml::Device /*device*/, unsigned* mode) {
  *mode = State::read().host != 0 ? nvml::kModeHostVgpu : 0;
  return nvml::kSuccess;
}
Status nvmlDeviceGetMigMode(nvml::Device /*device*/, unsigned* current, unsigned* pending) {
  const State state = State::read();
  if (state.mig_unread != 0) return nvml::kNotSupported;
  *current = state.mig;
  *pending = state.pending;
  return nvml::kSuccess;
}
Status nvmlDeviceSetMigMode(nvml::Device /*device*/, unsigned mode, Status* activation) {
  State state = State::read();
  if (state.busy != 0 || (state.stubborn != 0 && mode == state.mig)) return nvml::kInUse;
  const bool waits = state.opened != 0 && mode != state.mig;
  *activation = waits ? nvml::kInUse : nvml::kSuccess;
  state.pending = mode;
  if (state.needs_reset == 0 && !waits) state.mig = mode;
  state.write();
  return nvml::kSuccess;
}
Status nvmlDeviceGetVgpuHeterogeneousMode(nvml::Device /*device*/, nvml::HeterogeneousMode* mode) {
  const State state = State::read();
  if (state.host == 0 || state.mig != 0) return nvml::kNotSupported;
  mode->mode = state.mixed;
  return mode->version == nvml::version_of<nvml::HeterogeneousMode>(1) ? nvml::kSuccess
                                                                       : nvml::kInvalidArgument;
}
Status nvmlDeviceSetVgpuHeterogeneousMode(nvml::Device /*device*/, const nvml::HeterogeneousMode* mode) {
  State state = State::read();
  if (state.busy != 0) return nvml::kInUse;
  state.mixed = mode->mode;
  state.write();
  return nvml::kSuccess;
}
Status nvmlDeviceGetGpuInstanceProfileInfoV(nvml::Device /*device*/, unsigned number,
                                            nvml::GpuInstanceProfileInfo* info) {
  if (info->version != nvml::version_of<nvml::GpuInstanceProfileInfo>(2)) return nvml::kInvalidArgument;
  const auto* found = std::find_if(kProfiles.begin(), kProfiles.end(),
                                   [&](const Profile& profile) { return profile.number == number; });
  if (found == kProfiles.end()) return nvml::kNotSupported;
  info->id = found->id;
  info->slice_count = found->slices;
  info->instance_count = found->most;
  std::strncpy(info->name.data(), found->name, info->name.size() - 1);
  return nvml::kSuccess;
}
// One behind the other, as on all boards that were seen; the last ones first, since no order is promised.
Status nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvml::Device /*device*/, unsigned profile,
                                                     nvml::GpuInstancePlacement* out, unsigned* count) {
  for (const Profile& known : kProfiles) {
    if (known.id != profile) continue;
    *count = known.places;
    for (unsigned i = 0; i < known.places; ++i)
      out[known.places - 1 - i] = {.start = i * known.memory_slices, .size = known.memory_slices};
    return nvml::kSuccess;
  }
  return nvml::kInvalidArgument;
}
Status nvmlDeviceGetGpuInstanceRemainingCapacity(nvml::Device /*device*/, unsigned profile, unsigned* count) {
  const State state = State::read();
  for (const Profile& known : kProfiles)
    if (known.id == profile) *count = state.left(known);
  return nvml::kSuccess;
}
Status nvmlDeviceGetGpuInstances(nvml::Device /*device*/, unsigned profile, nvml::Instance* out,
                                 unsigned* count) {
  *count = 0;
  for (const auto& one : State::read().instances)
    if (one.profile == profile) out[(*count)++] = hand_out(one);
  return nvml::kSuccess;
}
Status nvmlDeviceGetGpuInstanceById(nvml::Device /*device*/, unsigned id, nvml::Instance* out) {
  State state = State::read();
  const auto* found = find(state, id);
  if (found == nullptr) return nvml::kNotFound;
  *out = hand_out(*found);
  return nvml::kSuccess;
}
Status nvmlGpuInstanceGetInfo(nvml::Instance instance, nvml::GpuInstanceInfo* info) {
  info->id = instance->id;
  info->profile_id = instance->profile;
  info->placement_start = instance->id;  // which one does not matter here
  return nvml::kSuccess;
}
Status nvmlDeviceCreateGpuInstance(nvml::Device /*device*/, unsigned profile, nvml::Instance* out) {
  State state = State::read();
  const auto* known =
      std::find_if(kProfiles.begin(), kProfiles.end(), [&](const Profile& one) { return one.id == profile; });
  if (state.mig == 0 || known == kProfiles.end()) return nvml::kInvalidArgument;
  if (state.left(*known) == 0) return 23;  // NVML_ERROR_INSUFFICIENT_RESOURCES
  state.instances.push_back({state.next++, profile, 0});
  *out = hand_out(state.instances.back());
  state.write();
  return nvml::kSuccess;
}
Status nvmlGpuInstanceDestroy(nvml::Instance instance) {
  State state = State::read();
  const auto* found = find(state, instance->id);
  if (found == nullptr) return nvml::kNotFound;
  if (state.busy != 0 || state.held != 0 || found->compute != 0) return nvml::kInUse;
  std::erase_if(state.instances, [&](const nvml::GpuInstanceHandle& one) { return one.id == instance->id; });
  state.write();
  return nvml::kSuccess;
}
Status nvmlGpuInstanceGetComputeInstanceProfileInfo(nvml::Instance instance, unsigned number,
                                                    unsigned /*engine*/,
                                                    nvml::ComputeInstanceProfileInfo* info) {
  const auto* profile = std::find_if(kProfiles.begin(), kProfiles.end(),
                                     [&](const Profile& one) { return one.id == instance->profile; });
  if (number >= profile->slices) return nvml::kNotSupported;
  info->id = number;
  info->slice_count = number + 1;
  return nvml::kSuccess;
}
Status nvmlGpuInstanceGetComputeInstances(nvml::Instance instance, unsigned profile,
                                          nvml::ComputeInstance* out, unsigned* count) {
  State state = State::read();
  const auto* found = find(state, instance->id);
  const auto* known = std::find_if(kProfiles.begin(), kProfiles.end(),
                                   [&](const Profile& one) { return one.id == instance->profile; });
  const unsigned there = found == nullptr ? 0 : found->compute;
  const unsigned of_profile = there > 1 ? 0 : known->slices - 1;
  *count = profile == of_profile ? there : 0;
  if (*count != 0) handed_out.at(0) = *found;  // whose compute instances they are
  std::fill_n(out, *count, &the_compute_instance);
  return nvml::kSuccess;
}
Status nvmlGpuInstanceCreateComputeInstance(nvml::Instance instance, unsigned profile,
                                            nvml::ComputeInstance* out) {
  State state = State::read();
  const auto* known = std::find_if(kProfiles.begin(), kProfiles.end(),
                                   [&](const Profile& one) { return one.id == instance->profile; });
  auto* found = find(state, instance->id);
  if (state.no_compute != 0 || found == nullptr || profile + 1 != known->slices)
    return nvml::kInvalidArgument;
  found->compute = 1;
  *out = &the_compute_instance;
  state.write();
  return nvml::kSuccess;
}
Status nvmlComputeInstanceDestroy(nvml::ComputeInstance /*instance*/) {
  State state = State::read();
  if (state.busy != 0) return nvml::kInUse;
  find(state, handed_out.at(0).id)->compute = 0;
  state.write();
  return nvml::kSuccess;
}
Status nvmlDeviceGetSupportedVgpus(nvml::Device /*device*/, unsigned* count, unsigned* ids) {
  if (State::read().host == 0) return nvml::kNotSupported;
  const bool fits = *count >= kTypes.size();
  *count = kTypes.size();
  if (!fits) return nvml::kInsufficientSize;
  for (std::size_t i = 0; i < kTypes.size(); ++i) ids[i] = kTypes.at(kTypes.size() - 1 - i).id;
  return nvml::kSuccess;
}
// NOLINTNEXTLINE(readability-non-const-parameter): nvml.h's type
Status nvmlVgpuTypeGetName(unsigned id, char* name, unsigned* size) {
  const Type* type = type_of(id);
  if (type == nullptr) return nvml::kInvalidArgument;
  std::strncpy(name, type->name, *size);
  return nvml::kSuccess;
}
Status nvmlVgpuTypeGetFramebufferSize(unsigned id, unsigned long long* bytes) {
  *bytes = type_of(id)->mib << 20U;
  return nvml::kSuccess;
}
Status nvmlVgpuTypeGetGpuInstanceProfileId(unsigned id, unsigned* profile) {
  *profile = type_of(id)->profile;
  return nvml::kSuccess;
}
Status nvmlVgpuTypeGetMaxInstances(nvml::Device /*device*/, unsigned id, unsigned* most) {
  *most = type_of(id)->most;
  return nvml::kSuccess;
}
Status nvmlDeviceGetVgpuTypeSupportedPlacements(nvml::Device /*device*/, unsigned id,
                                                nvml::VgpuPlacements* list) {
  constexpr Status kVersionMismatch = 25;  // NVML_ERROR_ARGUMENT_VERSION_MISMATCH
  const Type* type = type_of(id);
  if (type == nullptr || type->places == 0) return nvml::kNotSupported;
  void* const old = list;
  const unsigned version = *static_cast<const unsigned*>(old);  // the first member of each
  if (version == nvml::kOldPlacements) return list_placements(*type, *static_cast<OldPlacements*>(old));
  if (State::read().old != 0 || version != nvml::version_of<nvml::VgpuPlacements>(2)) return kVersionMismatch;
  return list->mode == nvml::kMixedSizePlacements ? list_placements(*type, *list) : nvml::kInvalidArgument;
}
Status nvmlVgpuTypeGetMaxInstancesPerGpuInstance(nvml::MaxInstancesPerGpuInstance* per) {
  if (type_of(per->type_id)->profile == nvml::kNoInstanceProfile) return nvml::kNotSupported;
  per->most = 1;
  return nvml::kSuccess;
}

}  // extern "C"
