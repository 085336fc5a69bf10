// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_mig.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <nlohmann/json.hpp>

#include "mdev/gpu_management.h"

namespace ferry::test {
namespace {

using nlohmann::json;

struct Profile {
  std::uint32_t id;
  const char* name;
  std::uint32_t most;
  std::uint32_t memory_slices;  // of eight
  std::uint32_t slices;         // of seven
  std::uint32_t places;         // one behind the other
};
constexpr std::array<Profile, 7> kProfiles = {{{0, "7g.141gb", 1, 8, 7, 1},
                                               {5, "4g.71gb", 1, 4, 4, 1},
                                               {9, "3g.71gb", 2, 4, 3, 2},
                                               {14, "2g.35gb", 3, 2, 2, 3},
                                               {15, "1g.35gb", 4, 2, 1, 4},
                                               {19, "1g.18gb", 7, 1, 1, 7},
                                               {20, "1g.18gb+me", 1, 1, 1, 7}}};

const Profile& profile_of(std::uint32_t id) {
  return *std::ranges::find(kProfiles, id, &Profile::id);
}

// Of the types below.
std::optional<std::uint32_t> needed_profile(const FakeVgpuType& type) {
  static const std::map<std::string, std::uint32_t> kNeeded = {
      {"nvidia-1414", 19}, {"nvidia-1416", 14}, {"nvidia-1417", 9}, {"nvidia-1418", 5}, {"nvidia-1413", 20}};
  const auto found = kNeeded.find(type.id);
  return found == kNeeded.end() ? std::nullopt : std::optional(found->second);
}

// With mixed sizes: at both ends of the memory, and in its middle.
std::optional<FakeVendorVfio::TypePlaces> mixed_places(const FakeVgpuType& type) {
  if (type.id == "nvidia-1500") return FakeVendorVfio::TypePlaces{.size = 1, .starts = {0, 3}};
  if (type.id == "nvidia-1501") return FakeVendorVfio::TypePlaces{.size = 2, .starts = {1, 2}};
  return std::nullopt;
}

std::filesystem::path state_path(const std::string& gpu) {
  return std::filesystem::path("fake/mig") / gpu;
}

}  // namespace

std::vector<FakeVgpuType> h200_types() {
  return {{.id = "nvidia-1413", .name = "NVIDIA H200X-1-18CME", .framebuffer_mib = 18432, .max_instances = 1},
          {.id = "nvidia-1414", .name = "NVIDIA H200X-1-18C", .framebuffer_mib = 18432, .max_instances = 7},
          {.id = "nvidia-1416", .name = "NVIDIA H200X-2-35C", .framebuffer_mib = 35840, .max_instances = 3},
          {.id = "nvidia-1417", .name = "NVIDIA H200X-3-71C", .framebuffer_mib = 72704, .max_instances = 2},
          {.id = "nvidia-1418", .name = "NVIDIA H200X-4-71C", .framebuffer_mib = 72704, .max_instances = 1},
          {.id = "nvidia-1500", .name = "NVIDIA H200X-35C", .framebuffer_mib = 35840, .max_instances = 4},
          {.id = "nvidia-1501", .name = "NVIDIA H200X-70C", .framebuffer_mib = 71680, .max_instances = 2}};
}

FakeMig::FakeMig(FakeKernel& kernel, FakeVendorVfio& vendor) : kernel_(kernel), vendor_(vendor) {
  kernel_.on_call([this](const LibraryCall& call) { return mdev::answer_gpu_call(*this, call.request); });
  vendor_.set_rule([this](const std::string& gpu, const FakeVgpuType& type,
                          const std::vector<FakeVgpuType>& present) { return fits(gpu, type, present); });
  vendor_.set_places([this](const std::string& gpu, const FakeVgpuType& type) {
    return load(gpu).mixed ? mixed_places(type) : std::nullopt;
  });
  const auto wipe = [this](const std::string& function) {
    const auto gpu = kernel_.link_name(std::filesystem::path("sys/bus/pci/devices") / function / "physfn");
    if (!gpu || !kernel_.exists(state_path(*gpu))) return;
    State state = load(*gpu);
    state.mixed = false;
    state.instances.clear();
    store(*gpu, state);
  };
  kernel_.on_vfs(wipe, wipe);
}

std::vector<std::uint32_t> FakeMig::free_starts(const State& state, std::uint32_t profile) {
  const Profile& desired = profile_of(profile);
  std::vector<std::uint32_t> out;
  for (std::uint32_t place = 0; place < desired.places; ++place) {
    const std::uint32_t start = place * desired.memory_slices;
    const bool taken = std::ranges::any_of(state.instances, [&](const auto& entry) {
      const State::Instance& other = entry.second;
      return start < other.start + profile_of(other.profile).memory_slices &&
             other.start < start + desired.memory_slices;
    });
    if (!taken) out.push_back(start);
  }
  return out;
}

FakeMig::State FakeMig::load(const std::string& gpu) const {
  const auto text = kernel_.read_file(state_path(gpu));
  State state;
  if (!text) return state;
  const json kept = json::parse(*text);
  state.mig = kept["mig"];
  state.pending = kept["pending"];
  state.mixed = kept["mixed"];
  state.next = kept["next"];
  for (const json& one : kept["instances"]) state.instances[one[0]] = {.profile = one[1], .start = one[2]};
  return state;
}

void FakeMig::store(const std::string& gpu, const State& state) {
  json instances = json::array();
  for (const auto& [id, instance] : state.instances)
    instances.push_back({id, instance.profile, instance.start});
  const json kept = {{"mig", state.mig},
                     {"pending", state.pending},
                     {"mixed", state.mixed},
                     {"next", state.next},
                     {"instances", instances}};
  kernel_.file(state_path(gpu), kept.dump());
}

// In MIG mode: of its own kind of instance some have room left, each for one vGPU here. With mixed sizes: the
// memory suffices, and of one type half as many fit.
std::optional<bool> FakeMig::fits(const std::string& gpu, const FakeVgpuType& type,
                                  const std::vector<FakeVgpuType>& present) const {
  const State state = load(gpu);
  const auto needed = needed_profile(type);
  if (needed.has_value() != state.mig) return false;
  if (needed) {
    const auto of_kind = [&](const auto& instance) { return instance.second.profile == *needed; };
    const auto on_kind = [&](const FakeVgpuType& other) { return needed_profile(other) == needed; };
    return std::ranges::count_if(state.instances, of_kind) > std::ranges::count_if(present, on_kind);
  }
  if (!state.mixed) return std::nullopt;
  constexpr unsigned kMemory = 143360;
  const unsigned used =
      std::accumulate(present.begin(), present.end(), 0U,
                      [](unsigned sum, const FakeVgpuType& other) { return sum + other.framebuffer_mib; });
  const auto same = std::ranges::count(present, type.id, &FakeVgpuType::id);
  return used + type.framebuffer_mib <= kMemory && 2 * same < type.max_instances;
}

Result<mdev::ManagedGpu> FakeMig::read(const vfio::PciAddress& gpu) {
  const State state = load(gpu.text());
  const auto switched = [](bool on) { return on ? mdev::GpuSwitch::on : mdev::GpuSwitch::off; };
  mdev::ManagedGpu out{.vgpu_host = vgpu_host,
                       .mig = switched(state.mig),
                       .mig_pending = switched(state.pending),
                       .mixed_sizes = state.mig ? mdev::GpuSwitch::unsupported : switched(state.mixed),
                       .profiles = {},
                       .instances = {},
                       .types = {}};
  for (const FakeVgpuType& type : h200_types()) {
    if (!knows_types) break;
    const std::uint32_t most = state.mixed ? (type.max_instances + 1) / 2 : type.max_instances;
    out.types.push_back({.id = static_cast<std::uint32_t>(std::stoul(type.id.substr(type.id.find('-') + 1))),
                         .name = type.name,
                         .framebuffer = std::uint64_t{type.framebuffer_mib} << 20U,
                         .instance_profile = needed_profile(type),
                         .most_per_gpu = most});
    if (needed_profile(type)) out.types.back().most_per_instance = 1;
    const auto places = mixed_places(type);
    if (!places) continue;
    out.types.back().size = places->size;
    out.types.back().placements.assign(places->starts.begin(), places->starts.end());
  }
  std::map<std::uint32_t, std::uint32_t> count;
  for (const auto& [id, instance] : state.instances) {
    out.instances.push_back({.id = id, .profile = instance.profile, .start = instance.start});
    ++count[instance.profile];
  }
  for (const Profile& profile : kProfiles) {
    const auto places = static_cast<std::uint32_t>(free_starts(state, profile.id).size());
    const std::uint32_t left = std::min(profile.most - count[profile.id], places);
    out.profiles.push_back({.id = profile.id,
                            .name = profile.name,
                            .most = profile.most,
                            .left = left,
                            .slices = profile.slices,
                            .size = profile.memory_slices});
    for (std::uint32_t i = 0; i < profile.places; ++i)
      out.profiles.back().starts.push_back(i * profile.memory_slices);
  }
  return out;
}

Result<> FakeMig::make_instance(const vfio::PciAddress& gpu, std::uint32_t profile) {
  const mdev::ManagedGpu now = read(gpu).value();
  State state = load(gpu.text());
  const auto kind = std::ranges::find(now.profiles, profile, &mdev::GpuInstanceProfile::id);
  if (!state.mig || kind == now.profiles.end() || kind->left == 0)
    return fail(Errc::failed, "NVML says Insufficient Resources (23)");
  if (swallow) return {};
  const std::uint32_t start = free_starts(state, profile).back();
  state.instances[state.next++] = {.profile = profile, .start = start};
  store(gpu.text(), state);
  vendor_.refresh(gpu.text());
  return {};
}

Result<> FakeMig::remove_instance(const vfio::PciAddress& gpu, std::uint32_t instance) {
  State state = load(gpu.text());
  if (!state.instances.contains(instance)) return fail(Errc::not_found, "NVML says Not Found (6)");
  const std::uint32_t profile = state.instances[instance].profile;
  const auto present = vendor_.types_on(gpu.text());
  const auto needed = std::ranges::count_if(
      present, [&](const FakeVgpuType& type) { return needed_profile(type) == profile; });
  const auto there = std::ranges::count_if(
      state.instances, [&](const auto& entry) { return entry.second.profile == profile; });
  if (there <= needed) return fail(Errc::refused, "NVML says In use by another client (19)");
  if (swallow) return {};
  state.instances.erase(instance);
  store(gpu.text(), state);
  vendor_.refresh(gpu.text());
  return {};
}

Result<> FakeMig::set_mixed_sizes(const vfio::PciAddress& gpu, bool on) {
  if (!vendor_.types_on(gpu.text()).empty())
    return fail(Errc::refused, "NVML says In use by another client (19)");
  if (swallow) return {};
  State state = load(gpu.text());
  state.mixed = on;
  store(gpu.text(), state);
  vendor_.refresh(gpu.text());
  return {};
}

Result<> FakeMig::set_mig(const vfio::PciAddress& gpu, bool on) {
  if (!kernel_.vfs_of(gpu.text()).empty())
    return fail(Errc::refused, "NVML says In use by another client (19)");
  if (swallow) return {};
  State state = load(gpu.text());
  state.pending = on;
  if (!needs_reset) state.mig = on;
  store(gpu.text(), state);
  return {};
}

std::vector<std::string> FakeMig::instances(const std::string& gpu) const {
  std::vector<std::string> out;
  for (const auto& [id, instance] : load(gpu).instances) out.emplace_back(profile_of(instance.profile).name);
  std::ranges::sort(out);
  return out;
}

}  // namespace ferry::test
