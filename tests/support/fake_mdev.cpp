// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_mdev.h"

#include <algorithm>
#include <cctype>
#include <cerrno>

#include <fmt/format.h>

namespace ferry::test {
namespace fs = std::filesystem;

namespace {

constexpr const char* kBusDevices = "sys/bus/mdev/devices";
constexpr const char* kGroups = "sys/kernel/iommu_groups";

fs::path parent_path(const std::string& address) {
  return fs::path("sys/devices/pci0000:00") / address;
}
fs::path type_path(const std::string& address, const std::string& type_id) {
  return parent_path(address) / "mdev_supported_types" / type_id;
}

bool is_uuid(const std::string& text) {
  constexpr std::string_view kForm = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  return std::equal(text.begin(), text.end(), kForm.begin(), kForm.end(), [](unsigned char c, char form) {
    return form == '-' ? c == '-' : std::isxdigit(c) != 0;
  });
}

}  // namespace

std::vector<FakeVgpuType> t4_types() {
  return {
      {"nvidia-222", "GRID T4-1B", 1024, 16},  {"nvidia-223", "GRID T4-2B", 2048, 8},
      {"nvidia-225", "GRID T4-1A", 1024, 16},  {"nvidia-226", "GRID T4-2A", 2048, 8},
      {"nvidia-230", "GRID T4-1Q", 1024, 16},  {"nvidia-231", "GRID T4-2Q", 2048, 8},
      {"nvidia-232", "GRID T4-4Q", 4096, 4},   {"nvidia-233", "GRID T4-8Q", 8192, 2},
      {"nvidia-234", "GRID T4-16Q", 16384, 1}, {"nvidia-319", "GRID T4-4C", 4096, 4},
      {"nvidia-320", "GRID T4-8C", 8192, 2},   {"nvidia-321", "GRID T4-16C", 16384, 1},
  };
}

std::vector<FakeVgpuType> l40s_types() {
  return {
      {"nvidia-1147", "NVIDIA L40S-1Q", 1024, 32},  {"nvidia-1150", "NVIDIA L40S-4Q", 4096, 12},
      {"nvidia-1152", "NVIDIA L40S-8Q", 8192, 6},   {"nvidia-1153", "NVIDIA L40S-12Q", 12288, 4},
      {"nvidia-1156", "NVIDIA L40S-48Q", 49152, 1}, {"nvidia-1181", "NVIDIA L40S-8C", 8192, 6},
      {"nvidia-1182", "NVIDIA L40S-12C", 12288, 4},
  };
}

FakeMdev::FakeMdev(FakeKernel& kernel) : kernel_(kernel) {
  kernel_.directory("sys/class/mdev_bus");
  kernel_.directory(kBusDevices);
  kernel_.directory("sys/bus/mdev/drivers/nvidia-vgpu-vfio");
  kernel_.on_write(
      "sys/bus/pci/devices/*/mdev_supported_types/*/create",
      [this](const auto& names, const auto& value) { return create(names[0], names[1], value); });
  kernel_.on_write("sys/bus/pci/devices/*/*/remove", [this](const auto& names, const auto& value) {
    return remove(names[0], names[1], value);
  });
  kernel_.on_write("sys/bus/pci/devices/*/*/nvidia/vgpu_params", [this](const auto& names,
                                                                        const auto& value) {
    if (swallow_params) return 0;
    kernel_.file(parent_path(names[0]) / names[1] / "nvidia/vgpu_params", (value == " " ? "" : value) + "\n");
    return 0;
  });
  kernel_.on_write("sys/bus/pci/devices/*/*/nvidia/placement_id",
                   [this](const auto& names, const auto& value) { return move(names[0], names[1], value); });
  kernel_.on_vfs(
      [this](const std::string& address) {
        if (const auto types = of_vfs_.find(owner(address)); types != of_vfs_.end())
          add_parent(address, types->second);
      },
      [this](const std::string& address) { remove_parent(address); });
}

std::string FakeMdev::owner(const std::string& address) const {
  return kernel_.link_name(parent_path(address) / "physfn").value_or(address);
}

std::vector<std::string> FakeMdev::parents_of(const std::string& owner) const {
  std::vector<std::string> out = {owner};
  for (const std::string& function : kernel_.vfs_of(owner)) {
    if (kernel_.exists(parent_path(function) / "mdev_supported_types")) out.push_back(function);
  }
  return out;
}

void FakeMdev::add_vf_parents(const std::string& address, const std::vector<FakeVgpuType>& types) {
  of_vfs_[address] = types;
  kernel_.file("proc/driver/nvidia/gpus/" + address + "/unbindLock", "0\n");
  for (const std::string& function : kernel_.vfs_of(address)) add_parent(function, types);
}

void FakeMdev::remove_parent(const std::string& address) {
  for (const std::string& uuid : uuids_on(address)) remove(address, uuid, "1");
  kernel_.remove(fs::path("sys/class/mdev_bus") / address);
}

void FakeMdev::add_parent(const std::string& address, const std::vector<FakeVgpuType>& types) {
  kernel_.link(fs::path("sys/class/mdev_bus") / address, fs::path("../../devices/pci0000:00") / address);
  for (const FakeVgpuType& type : types) {
    const auto path = type_path(address, type.id);
    kernel_.file(path / "create", "");
    kernel_.file(path / "name", type.name + "\n");
    kernel_.file(path / "device_api", "vfio-pci\n");
    kernel_.file(path / "description",
                 fmt::format("num_heads=4, frl_config=60, framebuffer={}M, max_resolution=7680x4320, "
                             "max_instance={}\n",
                             type.framebuffer_mib, type.max_instances));
    kernel_.file(path / "available_instances", "0\n");
    // What the description says may be taken away by a test; the rule goes on.
    kernel_.file(path / ".framebuffer", std::to_string(type.framebuffer_mib));
    kernel_.file(path / ".max_instances", std::to_string(type.max_instances));
    kernel_.directory(path / "devices");
  }
  update_available(address);
}

void FakeMdev::add_device(const std::string& address, const std::string& type_id, const std::string& uuid) {
  if (const int error = create(address, type_id, uuid); error != 0) {
    throw std::logic_error(fmt::format("fake {} on {} cannot be made: errno {}", type_id, address, error));
  }
}

void FakeMdev::remove_device(const std::string& address, const std::string& uuid) {
  remove(address, uuid, "1");
}

std::vector<std::string> FakeMdev::uuids_on(const std::string& address) const {
  std::vector<std::string> out;
  const auto names = kernel_.list(parent_path(address)).value();
  for (const std::string& name : names) {
    if (is_uuid(name)) out.push_back(name);
  }
  return out;
}

std::vector<std::string> FakeMdev::devices_on(const std::string& address) const {
  std::vector<std::string> out;
  for (const std::string& parent : parents_of(address)) {
    for (const std::string& uuid : uuids_on(parent)) {
      const auto type = kernel_.link_name(parent_path(parent) / uuid / "mdev_type");
      if (!type) continue;  // removed meanwhile, by another thread
      const std::string name = kernel_.read_attribute(type_path(parent, *type) / "name").value();
      out.push_back(name.substr(name.find_last_of(' ') + 1) + " " + uuid);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

unsigned FakeMdev::number(const fs::path& relative) const {
  return static_cast<unsigned>(std::stoul(kernel_.read_attribute(relative).value()));
}

FakeMdev::Occupancy FakeMdev::occupancy_of(const std::string& gpu) const {
  Occupancy out;
  for (const std::string& parent : parents_of(gpu)) {
    const auto uuids = uuids_on(parent);
    if (uuids.empty()) continue;
    out.on[parent] = static_cast<unsigned>(uuids.size());
    out.all += out.on[parent];
    const std::string type = kernel_.link_name(parent_path(parent) / uuids.front() / "mdev_type").value();
    out.framebuffer = number(type_path(parent, type) / ".framebuffer");
  }
  return out;
}

// The driver's equal-size rule: all vGPUs of a GPU have one framebuffer size; a driver offers a type while
// fewer vGPUs exist, of whatever type, than its maximum; and on a virtual function there is one at most.
unsigned FakeMdev::available(const Occupancy& present, const std::string& gpu, const std::string& address,
                             const std::string& type_id) const {
  const auto path = type_path(address, type_id);
  const auto most = number(path / ".max_instances");
  const bool fits = present.all == 0 || present.framebuffer == number(path / ".framebuffer");
  const unsigned left = fits ? most - std::min(most, present.all) : 0;
  if (gpu == address) return left;
  return present.on.contains(address) ? 0 : std::min(left, 1U);
}

void FakeMdev::update_available(const std::string& address) {
  const std::string gpu = owner(address);
  const Occupancy present = occupancy_of(gpu);
  for (const std::string& parent : parents_of(gpu)) {
    const auto types = kernel_.list(parent_path(parent) / "mdev_supported_types");
    if (!types) continue;
    for (const std::string& type : *types) {
      const auto path = type_path(parent, type) / "available_instances";
      const std::string text = std::to_string(available(present, gpu, parent, type));
      if (kernel_.read_attribute(path).value_or("") != text) kernel_.file(path, text + "\n");
    }
  }
}

unsigned FakeMdev::free_group() const {
  unsigned free = 100;
  const auto groups = kernel_.list(kGroups).value();
  for (const std::string& name : groups) {
    free = std::max(free, static_cast<unsigned>(std::stoul(name)) + 1);
  }
  return free;
}

int FakeMdev::create(const std::string& address, const std::string& type_id, const std::string& value) {
  if (!is_uuid(value)) return EINVAL;
  std::string uuid = value;
  std::transform(uuid.begin(), uuid.end(), uuid.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (kernel_.exists(fs::path(kBusDevices) / uuid)) return EEXIST;
  const std::string gpu = owner(address);
  if (available(occupancy_of(gpu), gpu, address, type_id) <= hidden_vgpus) return EINVAL;
  if (swallow_creates) return 0;

  const auto device = parent_path(address) / uuid;
  kernel_.file(device / "remove", "");
  if (has_params) kernel_.file(device / "nvidia/vgpu_params", "\n");
  const auto taken = places_on(gpu);
  unsigned place = 0;
  while (taken.contains(place)) ++place;
  const bool tells_place = has_placements && gpu != address;
  kernel_.file(device / "nvidia/placement_id", tells_place ? std::to_string(place) + "\n" : "");
  kernel_.link(device / "mdev_type", fs::path("../mdev_supported_types") / type_id);
  kernel_.link(type_path(address, type_id) / "devices" / uuid, fs::path("../../..") / uuid);
  kernel_.link(fs::path(kBusDevices) / uuid, fs::path("../../../devices/pci0000:00") / address / uuid);
  if (!leave_driverless) {
    const std::string group = std::to_string(free_group());
    kernel_.link(device / "driver", "../../../../bus/mdev/drivers/nvidia-vgpu-vfio");
    kernel_.link(device / "iommu_group", fs::path("../../../../kernel/iommu_groups") / group);
    kernel_.link(fs::path(kGroups) / group / "devices" / uuid,
                 fs::path("../../../../devices/pci0000:00") / address / uuid);
    kernel_.file(fs::path("dev/vfio") / group, "");
    kernel_.file(fs::path("sys/class/vfio") / group / "dev", fmt::format("244:{}\n", group));
    kernel_.file(device / "vfio-dev" / ("vfio" + group) / "dev", fmt::format("511:{}\n", group));
  }
  update_available(address);
  return 0;
}

std::set<unsigned> FakeMdev::places_on(const std::string& gpu) const {
  std::set<unsigned> out;
  for (const std::string& parent : parents_of(gpu)) {
    for (const std::string& uuid : uuids_on(parent)) {
      const auto place = kernel_.read_attribute(parent_path(parent) / uuid / "nvidia/placement_id");
      if (place && !place->empty()) out.insert(static_cast<unsigned>(std::stoul(*place)));
    }
  }
  return out;
}

int FakeMdev::move(const std::string& address, const std::string& uuid, const std::string& value) {
  if (value.empty() || value.find_first_not_of("0123456789") != std::string::npos) return EINVAL;
  const auto path = parent_path(address) / uuid / "nvidia/placement_id";
  if (kernel_.read_attribute(path).value_or("").empty()) return ENXIO;
  const auto place = static_cast<unsigned>(std::stoul(value));
  const std::string type = kernel_.link_name(parent_path(address) / uuid / "mdev_type").value();
  if (place >= number(type_path(address, type) / ".max_instances")) return EINVAL;
  if (number(path) != place && places_on(owner(address)).contains(place)) return EINVAL;
  kernel_.file(path, value + "\n");
  return 0;
}

int FakeMdev::remove(const std::string& address, const std::string& uuid, const std::string& value) {
  if (value.empty() || value.find_first_not_of("0123456789") != std::string::npos) return EINVAL;
  if (std::stoul(value) == 0 || swallow_removes) return 0;
  const auto device = parent_path(address) / uuid;
  const std::string type = kernel_.link_name(device / "mdev_type").value();
  if (const auto group = kernel_.link_name(device / "iommu_group")) {
    kernel_.remove(fs::path(kGroups) / *group);
    kernel_.remove(fs::path("dev/vfio") / *group);
    kernel_.remove(fs::path("sys/class/vfio") / *group);
  }
  kernel_.remove(type_path(address, type) / "devices" / uuid);
  kernel_.remove(fs::path(kBusDevices) / uuid);
  kernel_.remove(device);
  update_available(address);
  return 0;
}

}  // namespace ferry::test
