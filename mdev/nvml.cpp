// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <dlfcn.h>
#include <fcntl.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "mdev/gpu_management.h"
#include "mdev/nvml_abi.h"
#include "vfio/pci/pci_address.h"

namespace ferry::mdev {

namespace nvml {
namespace {

// The loaded library, and its calls as Result values.

/// Loads the library when it is opened, and unloads it at its destruction.
class Library {
 public:
  /// Opens the library for calls about one GPU. Errc::unsupported: the host lacks the library, none can be
  /// loaded, or its driver is not loaded. Errc::not_found: the library does not know the GPU.
  static Result<Library> open(const HostFs& host, const vfio::PciAddress& gpu);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  Library(Library&& other) noexcept
      : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  Library& operator=(Library&&) = delete;
  ~Library() {
    if (handle_ == nullptr) return;
    (void)call("nvmlShutdown");
    ::dlclose(handle_);
  }

  Device device() const { return device_; }

  /// Calls a function of the library by name. A library without the function counts as kNotSupported.
  template <typename... Arguments>
  Status call(const char* name, Arguments... arguments) const {
    using Function = Status (*)(Arguments...);
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): dlsym() returns functions as void*
    const auto function = reinterpret_cast<Function>(symbol(name));
    return function == nullptr ? kNotSupported : function(arguments...);
  }

  /// A status as a Result: success, Errc::refused (in use), Errc::unsupported, Errc::not_found, Errc::failed.
  Result<> checked(Status status, const std::string& what) const;

 private:
  explicit Library(void* handle) : handle_(handle) {}
  void* symbol(const char* name) const { return ::dlsym(handle_, name); }
  Device device_ = nullptr;  // of the GPU
  void* handle_;
};

// Directories of distributions and of the driver's own installer. A driver container has its own root.
constexpr std::array<const char*, 2> kRoots = {"", "run/nvidia/driver"};
constexpr std::array<const char*, 7> kDirectories = {
    "usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu",
    "lib64",     "lib/x86_64-linux-gnu",     "lib/aarch64-linux-gnu",
    ""};
constexpr const char* kName = "libnvidia-ml.so.1";

// Loads through a descriptor, since a link in the host's root must not lead out of that root.
Result<void*> load(const HostFs& host, const std::filesystem::path& path) {
  const auto file = host.open(path, O_RDONLY | O_CLOEXEC);
  if (!file) return fail(file.error());
  void* handle = ::dlopen(fmt::format("/proc/self/fd/{}", file->get()).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char* const why = ::dlerror();
  return fail(Errc::unsupported,
              fmt::format("load /{}: {}", path.string(), why == nullptr ? "unknown reason" : why));
}

// A library that cannot be used may be left from an old package of a host whose driver is in a container.
Result<Library> Library::open(const HostFs& host, const vfio::PciAddress& gpu) {
  std::optional<Error> first;
  for (const char* root : kRoots) {
    for (const char* directory : kDirectories) {
      auto handle = load(host, std::filesystem::path(root) / directory / kName);
      if (!handle) {
        if (!first && !is_gone(handle.error())) first = std::move(handle).error();
        continue;
      }
      Library library(*handle);
      if (auto ready = library.checked(library.call("nvmlInit_v2"), "initialise NVML"); !ready) {
        ::dlclose(std::exchange(library.handle_, nullptr));
        if (!first)
          first =
              Error{.code = Errc::unsupported, .message = ready.error().message, .hint = ready.error().hint};
        continue;
      }
      const std::string address = gpu.text();
      const Status status =
          library.call("nvmlDeviceGetHandleByPciBusId_v2", address.c_str(), &library.device_);
      if (auto found = library.checked(status, address); !found) {
        // NVML gives this error for a device that is no GPU, and for a GPU without its driver.
        return fail(Errc::not_found, found.error().message, found.error().hint);
      }
      return library;
    }
  }
  if (first) return fail(std::move(*first));
  return fail(Errc::unsupported, fmt::format("this host has no {}", kName),
              "it comes with NVIDIA's driver: install the vGPU host driver, or mount the root that has it");
}

Result<> Library::checked(Status status, const std::string& what) const {
  if (status == kSuccess) return {};
  using Describe = const char* (*)(Status);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): dlsym() returns functions as void*
  const auto describe = reinterpret_cast<Describe>(symbol("nvmlErrorString"));
  const Errc code = status == kInUse                                        ? Errc::refused
                    : status == kNotSupported || status == kDriverNotLoaded ? Errc::unsupported
                    : status == kNotFound                                   ? Errc::not_found
                                                                            : Errc::failed;
  return fail(code, fmt::format("{}: NVML says {} ({})", what,
                                describe == nullptr ? "nothing more" : describe(status), status));
}

}  // namespace
}  // namespace nvml

namespace {

using nvml::Library;

GpuSwitch switch_of(nvml::Status status, unsigned value) {
  if (status != nvml::kSuccess) return GpuSwitch::unsupported;
  return value == 0 ? GpuSwitch::off : GpuSwitch::on;
}

void read_mig(const Library& library, ManagedGpu& gpu) {
  unsigned current = 0;
  unsigned pending = 0;
  const auto status = library.call("nvmlDeviceGetMigMode", library.device(), &current, &pending);
  gpu.mig = switch_of(status, current);
  gpu.mig_pending = switch_of(status, pending);
}

// `number` is nvml.h's own profile number; a GPU's profile ids are other numbers.
std::vector<GpuInstanceProfile> profiles_of(const Library& library) {
  std::vector<GpuInstanceProfile> out;
  for (unsigned number = 0; number < nvml::kInstanceProfiles; ++number) {
    nvml::GpuInstanceProfileInfo info{.version = nvml::version_of<nvml::GpuInstanceProfileInfo>(2)};
    if (library.call("nvmlDeviceGetGpuInstanceProfileInfoV", library.device(), number, &info) !=
        nvml::kSuccess)
      continue;
    // NVML's name is "MIG 2g.35gb"; other tools leave out the first word.
    const auto* const end = std::find(info.name.begin(), info.name.end(), '\0');
    std::string_view name(info.name.data(), static_cast<std::size_t>(end - info.name.begin()));
    constexpr std::string_view kMig = "MIG ";
    if (name.starts_with(kMig)) name.remove_prefix(kMig.size());
    unsigned left = 0;
    (void)library.call("nvmlDeviceGetGpuInstanceRemainingCapacity", library.device(), info.id, &left);
    out.push_back({.id = info.id,
                   .name = std::string(name),
                   .most = info.instance_count,
                   .left = left,
                   .slices = info.slice_count});
    // NVML reports placements also while MIG mode is off.
    std::vector<nvml::GpuInstancePlacement> places(nvml::kInstancePlacements);
    unsigned count = nvml::kInstancePlacements;
    const auto status = library.call("nvmlDeviceGetGpuInstancePossiblePlacements_v2", library.device(),
                                     info.id, places.data(), &count);
    places.resize(status == nvml::kSuccess ? std::min(count, nvml::kInstancePlacements) : 0);
    GpuInstanceProfile& profile = out.back();
    profile.starts.reserve(places.size());
    for (const nvml::GpuInstancePlacement& place : places) {
      profile.size = place.size;
      profile.starts.push_back(place.start);
    }
    std::ranges::sort(profile.starts);
  }
  std::ranges::sort(out, {}, &GpuInstanceProfile::id);
  return out;
}

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

std::vector<GpuInstance> instances_of(const Library& library,
                                      const std::vector<GpuInstanceProfile>& profiles) {
  std::vector<GpuInstance> out;
  for (const GpuInstanceProfile& profile : profiles) {
    // This call cannot report the number of instances first: it fills the array that it gets.
    std::vector<nvml::Instance> handles(profile.most);
    unsigned count = profile.most;
    const auto status =
        library.call("nvmlDeviceGetGpuInstances", library.device(), profile.id, handles.data(), &count);
    handles.resize(status == nvml::kSuccess ? std::min(count, profile.most) : 0);
    for (nvml::Instance handle : handles) {
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

bool read_placements(const Library& library, unsigned version, ManagedType& type) {
  std::vector<unsigned> ids(nvml::kTypePlacements);
  nvml::VgpuPlacements list;
  list.version = version;
  list.count = nvml::kTypePlacements;
  list.ids = ids.data();
  if (library.call("nvmlDeviceGetVgpuTypeSupportedPlacements", library.device(), type.id, &list) !=
      nvml::kSuccess)
    return false;
  ids.resize(std::min(list.count, nvml::kTypePlacements));
  if (list.size == 0 || ids.empty()) return true;
  std::ranges::sort(ids);
  type.size = list.size;
  type.placements = std::move(ids);
  return true;
}

ManagedType type_of(const Library& library, unsigned id) {
  constexpr unsigned kLongest = 64;  // NVML_VGPU_NAME_BUFFER_SIZE
  std::string name(kLongest, '\0');
  unsigned size = kLongest;
  if (library.call("nvmlVgpuTypeGetName", id, name.data(), &size) != nvml::kSuccess) name.clear();
  name.resize(std::min(name.find('\0'), name.size()));
  ManagedType type{.id = id, .name = std::move(name)};
  unsigned long long framebuffer = 0;
  (void)library.call("nvmlVgpuTypeGetFramebufferSize", id, &framebuffer);
  type.framebuffer = framebuffer;
  unsigned profile = nvml::kNoInstanceProfile;
  (void)library.call("nvmlVgpuTypeGetGpuInstanceProfileId", id, &profile);
  if (profile != nvml::kNoInstanceProfile) type.instance_profile = profile;
  unsigned most = 0;
  if (library.call("nvmlVgpuTypeGetMaxInstances", library.device(), id, &most) == nvml::kSuccess)
    type.most_per_gpu = most;
  nvml::MaxInstancesPerGpuInstance per{
      .version = nvml::version_of<nvml::MaxInstancesPerGpuInstance>(1), .type_id = id, .most = 0};
  if (library.call("nvmlVgpuTypeGetMaxInstancesPerGpuInstance", &per) == nvml::kSuccess)
    type.most_per_instance = per.most;
  // An older library does not know the newer list.
  constexpr unsigned kPlacements = nvml::version_of<nvml::VgpuPlacements>(2);
  if (!type.instance_profile && !read_placements(library, kPlacements, type))
    (void)read_placements(library, nvml::kOldPlacements, type);
  return type;
}

}  // namespace

Result<ManagedGpu> Nvml::read(const vfio::PciAddress& gpu) {
  const auto opened = Library::open(*host_, gpu);
  if (!opened) return fail(opened.error());
  const Library& library = *opened;
  ManagedGpu out;
  unsigned mode = 0;
  out.vgpu_host =
      library.call("nvmlDeviceGetVirtualizationMode", library.device(), &mode) == nvml::kSuccess &&
      mode == nvml::kModeHostVgpu;
  read_mig(library, out);
  nvml::HeterogeneousMode mixed{.version = nvml::version_of<nvml::HeterogeneousMode>(1)};
  const auto answer = library.call("nvmlDeviceGetVgpuHeterogeneousMode", library.device(), &mixed);
  out.mixed_sizes = switch_of(answer, mixed.mode);
  out.profiles = profiles_of(library);
  if (out.mig == GpuSwitch::on) out.instances = instances_of(library, out.profiles);
  if (!out.vgpu_host) return out;

  std::vector<unsigned> ids;
  unsigned count = 0;  // the call reports it without an array
  auto status = library.call("nvmlDeviceGetSupportedVgpus", library.device(), &count, ids.data());
  constexpr int kTries = 3;  // the list may grow between two calls
  for (int i = 0; i < kTries && status == nvml::kInsufficientSize; ++i) {
    ids.resize(count);
    status = library.call("nvmlDeviceGetSupportedVgpus", library.device(), &count, ids.data());
  }
  ids.resize(status == nvml::kSuccess ? count : 0);
  out.types.reserve(ids.size());
  for (const unsigned id : ids) out.types.push_back(type_of(library, id));
  std::ranges::sort(out.types, {}, &ManagedType::id);
  return out;
}

Result<> Nvml::make_instance(const vfio::PciAddress& gpu, std::uint32_t profile) {
  const auto opened = Library::open(*host_, gpu);
  if (!opened) return fail(opened.error());
  const Library& library = *opened;
  const std::string what = fmt::format("make a GPU instance of profile {}", profile);
  nvml::Instance made = nullptr;
  auto done =
      library.checked(library.call("nvmlDeviceCreateGpuInstance", library.device(), profile, &made), what);
  if (!done) return done;
  done = fill(library, made, compute_instances_in(library, made), what);
  if (!done) (void)library.call("nvmlGpuInstanceDestroy", made);  // useless without a compute instance
  return done;
}

Result<> Nvml::remove_instance(const vfio::PciAddress& gpu, std::uint32_t instance) {
  const auto opened = Library::open(*host_, gpu);
  if (!opened) return fail(opened.error());
  const Library& library = *opened;
  const std::string what = fmt::format("remove GPU instance {}", instance);
  nvml::Instance handle = nullptr;
  auto found = library.checked(
      library.call("nvmlDeviceGetGpuInstanceById", library.device(), instance, &handle), what);
  if (!found) return found;
  const ComputeInstances inside = compute_instances_in(library, handle);
  if (is_divided(inside)) {
    return fail(Errc::refused, fmt::format("{}: it is divided into compute instances", what),
                fmt::format("`nvidia-smi mig -dci -gi {}` removes them, once nothing uses them", instance));
  }
  for (nvml::ComputeInstance one : inside.all) {
    if (auto gone = library.checked(library.call("nvmlComputeInstanceDestroy", one), what); !gone)
      return gone;
  }
  auto gone = library.checked(library.call("nvmlGpuInstanceDestroy", handle), what);
  if (!gone && inside.one_fills) (void)fill(library, handle, inside, what);  // restores the compute instance
  return gone;
}

Result<> Nvml::set_mixed_sizes(const vfio::PciAddress& gpu, bool on) {
  const auto library = Library::open(*host_, gpu);
  if (!library) return fail(library.error());
  const nvml::HeterogeneousMode mode{.version = nvml::version_of<nvml::HeterogeneousMode>(1),
                                     .mode = on ? 1U : 0U};
  return library->checked(library->call("nvmlDeviceSetVgpuHeterogeneousMode", library->device(), &mode),
                          fmt::format("switch vGPUs of different sizes {}", on ? "on" : "off"));
}

Result<> Nvml::set_mig(const vfio::PciAddress& gpu, bool on) {
  const auto library = Library::open(*host_, gpu);
  if (!library) return fail(library.error());
  const std::string what = fmt::format("switch MIG mode {}", on ? "on" : "off");
  nvml::Status activation = nvml::kSuccess;  // a mode that waits for a reset is no failure: read() shows it
  auto done = library->checked(
      library->call("nvmlDeviceSetMigMode", library->device(), on ? 1U : 0U, &activation), what);
  if (!done || activation != nvml::kInUse) return done;
  // The driver keeps a mode that a user of the GPU holds up. It would come with the next reset.
  (void)library->call("nvmlDeviceSetMigMode", library->device(), on ? 0U : 1U, &activation);
  ManagedGpu now;
  read_mig(*library, now);
  if (now.mig != GpuSwitch::unsupported && now.mig_pending == now.mig)
    return library->checked(nvml::kInUse, what);
  return fail(Errc::failed, what + ": the GPU is in use, and its next reset may switch it all the same");
}

}  // namespace ferry::mdev
