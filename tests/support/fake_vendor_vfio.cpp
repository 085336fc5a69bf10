// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_vendor_vfio.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include <fmt/format.h>

namespace ferry::test {
namespace fs = std::filesystem;

namespace {

fs::path function_path(const std::string& address) {
  return fs::path("sys/devices/pci0000:00") / address;
}
fs::path current_path(const std::string& address) {
  return function_path(address) / "nvidia/current_vgpu_type";
}
fs::path params_path(const std::string& address) {
  return function_path(address) / "nvidia/vgpu_params";
}
fs::path placement_path(const std::string& address) {
  return function_path(address) / "nvidia/placement_id";
}
// A hidden file: a VM in another process holds it too.
fs::path held_path(const std::string& address) {
  return function_path(address) / "nvidia/.held";
}
std::string number_of(const FakeVgpuType& type) {
  return type.id.substr(type.id.find_last_of('-') + 1);
}

}  // namespace

FakeVendorVfio::FakeVendorVfio(FakeKernel& kernel) : kernel_(kernel) {
  kernel_.on_write("sys/bus/pci/devices/*/nvidia/current_vgpu_type",
                   [this](const auto& names, const auto& value) { return write(names[0], value); });
  kernel_.on_write("sys/bus/pci/devices/*/nvidia/vgpu_params", [this](const auto& names, const auto& value) {
    if (type_on(names[0]) == "0") return ENXIO;
    if (kernel_.exists(held_path(names[0]))) return EPERM;
    kernel_.file(params_path(names[0]), (value == " " ? "" : value) + "\n");
    return 0;
  });
  kernel_.on_write("sys/bus/pci/devices/*/nvidia/placement_id",
                   [this](const auto& names, const auto& value) { return move(names[0], value); });
  kernel_.on_vfs(
      [this](const std::string& address) {
        if (gpus_.contains(owner(address))) add_function(address);
      },
      [](const std::string&) {});
}

std::string FakeVendorVfio::owner(const std::string& function) const {
  return kernel_.link_name(function_path(function) / "physfn").value_or(function);
}

std::string FakeVendorVfio::type_on(const std::string& function) const {
  return kernel_.read_attribute(current_path(function)).value_or("0");
}

const FakeVgpuType* FakeVendorVfio::find(const std::string& address, const std::string& number) const {
  const auto& types = gpus_.at(address);
  const auto found = std::ranges::find(types, number, number_of);
  return found == types.end() ? nullptr : &*found;
}

void FakeVendorVfio::add_function(const std::string& function) {
  kernel_.file(current_path(function), "0\n");
  kernel_.file(function_path(function) / "nvidia/creatable_vgpu_types", "");
  if (const auto group = kernel_.link_name(function_path(function) / "iommu_group")) {
    kernel_.file(fs::path("dev/vfio") / *group, "");
    kernel_.file(fs::path("sys/class/vfio") / *group / "dev", fmt::format("244:{}\n", *group));
    kernel_.file(function_path(function) / "vfio-dev" / ("vfio" + *group) / "dev",
                 fmt::format("511:{}\n", *group));
  }
  update_creatable(owner(function));
}

void FakeVendorVfio::add_gpu(const std::string& address, const std::vector<FakeVgpuType>& types) {
  gpus_[address] = types;
  kernel_.file("proc/driver/nvidia/gpus/" + address + "/unbindLock", "0\n");
  for (const std::string& function : kernel_.vfs_of(address)) add_function(function);
}

void FakeVendorVfio::set(const std::string& function, const std::string& number) {
  if (const int error = write(function, number); error != 0) {
    throw std::logic_error(fmt::format("fake type {} on {}: errno {}", number, function, error));
  }
}

void FakeVendorVfio::hold(const std::string& function, bool held) {
  if (held) {
    kernel_.file(held_path(function), "");
  } else {
    kernel_.remove(held_path(function));
  }
}

std::vector<std::string> FakeVendorVfio::devices_on(const std::string& address) const {
  std::vector<std::string> out;
  for (const std::string& function : kernel_.vfs_of(address)) {
    const std::string number = type_on(function);
    if (number == "0") continue;
    const FakeVgpuType* type = find(address, number);
    const std::string name = type == nullptr ? number : type->name;
    out.push_back(name.substr(name.find_last_of(' ') + 1) + " " + function);
  }
  std::ranges::sort(out);
  return out;
}

std::vector<FakeVgpuType> FakeVendorVfio::types_on(const std::string& address) const {
  std::vector<FakeVgpuType> out;
  for (const std::string& function : kernel_.vfs_of(address)) {
    if (const FakeVgpuType* type = find(address, type_on(function))) out.push_back(*type);
  }
  return out;
}

FakeVendorVfio::Occupancy FakeVendorVfio::occupancy_of(const std::string& address) const {
  Occupancy out;
  for (const std::string& function : kernel_.vfs_of(address)) {
    const std::string number = type_on(function);
    out.free[function] = number == "0";
    const FakeVgpuType* type = find(address, number);
    if (type == nullptr) continue;
    ++out.all;
    out.framebuffer = type->framebuffer_mib;
  }
  return out;
}

// As of mediated devices on virtual functions, save that what cannot be created is not listed.
bool FakeVendorVfio::creatable(const std::string& address, const Occupancy& present,
                               const std::string& function, const FakeVgpuType& type) const {
  if (!present.free.at(function)) return false;
  if (rule_) {
    if (const auto ruled = rule_(address, type, types_on(address)))
      return *ruled && free_place(address, type).has_value();
  }
  const bool fits = present.all == 0 || present.framebuffer == type.framebuffer_mib;
  return fits && present.all < type.max_instances;
}

void FakeVendorVfio::update_creatable(const std::string& address) {
  const Occupancy present = occupancy_of(address);
  for (const auto& [function, free] : present.free) {
    std::string text = header;
    for (const FakeVgpuType& type : gpus_.at(address)) {
      if (creatable(address, present, function, type))
        text += fmt::format("{:<5} : {}\n", number_of(type), type.name);
    }
    kernel_.file(function_path(function) / "nvidia/creatable_vgpu_types", text);
  }
}

std::set<unsigned> FakeVendorVfio::places_on(const std::string& address) const {
  std::set<unsigned> out;
  for (const std::string& function : kernel_.vfs_of(address)) {
    if (const auto place = kernel_.read_attribute(placement_path(function)))
      out.insert(static_cast<unsigned>(std::stoul(*place)));
  }
  return out;
}

std::optional<FakeVendorVfio::TypePlaces> FakeVendorVfio::places_of(const std::string& gpu,
                                                                    const FakeVgpuType& type) const {
  return places_of_ ? places_of_(gpu, type) : std::nullopt;
}

bool FakeVendorVfio::is_free(const std::string& gpu, unsigned start, unsigned size,
                             const std::string& except) const {
  return std::ranges::none_of(kernel_.vfs_of(gpu), [&](const std::string& function) {
    const FakeVgpuType* other = find(gpu, type_on(function));
    const auto place = kernel_.read_attribute(placement_path(function));
    if (function == except || other == nullptr || !place) return false;
    const auto taken = static_cast<unsigned>(std::stoul(*place));
    const auto places = places_of(gpu, *other);
    return start < taken + (places ? places->size : 1U) && taken < start + size;
  });
}

std::optional<unsigned> FakeVendorVfio::free_place(const std::string& gpu, const FakeVgpuType& type) const {
  if (const auto places = places_of(gpu, type)) {
    const auto found = std::ranges::find_if(
        places->starts, [&](unsigned start) { return is_free(gpu, start, places->size, {}); });
    return found == places->starts.end() ? std::nullopt : std::optional(*found);
  }
  const auto taken = places_on(gpu);
  unsigned place = 0;
  while (taken.contains(place)) ++place;
  return place;
}

std::vector<std::string> FakeVendorVfio::places_of_devices(const std::string& address) const {
  std::vector<std::string> out;
  for (const std::string& function : kernel_.vfs_of(address)) {
    const FakeVgpuType* type = find(address, type_on(function));
    if (type == nullptr) continue;
    const std::string name = type->name.substr(type->name.find_last_of('-') + 1);
    out.push_back(name + " at " + kernel_.read_attribute(placement_path(function)).value_or("?"));
  }
  std::ranges::sort(out);
  return out;
}

// As in the test module of the node: a vGPU takes one place, whatever its size, unless set_places() is used.
int FakeVendorVfio::move(const std::string& function, const std::string& value) {
  if (value.empty() || value.find_first_not_of("0123456789") != std::string::npos) return EINVAL;
  const auto now = kernel_.read_attribute(placement_path(function));
  if (!now) return ENXIO;
  if (kernel_.exists(held_path(function))) return EPERM;
  const auto place = static_cast<unsigned>(std::stoul(value));
  const std::string gpu = owner(function);
  const FakeVgpuType* type = find(gpu, type_on(function));
  if (type == nullptr) return EINVAL;
  if (const auto places = places_of(gpu, *type)) {
    if (std::ranges::find(places->starts, place) == places->starts.end()) return EINVAL;
    if (!is_free(gpu, place, places->size, function)) return EINVAL;
  } else if (place >= type->max_instances || (*now != value && places_on(gpu).contains(place))) {
    return EINVAL;
  }
  if (!swallow_moves) kernel_.file(placement_path(function), value + "\n");
  return 0;
}

int FakeVendorVfio::write(const std::string& function, const std::string& value) {
  if (value.empty() || value.find_first_not_of("0123456789") != std::string::npos) return EINVAL;
  if (kernel_.exists(held_path(function))) return EPERM;
  const std::string gpu = owner(function);
  if (value == "0") {
    if (swallow_removes) return 0;
    kernel_.file(current_path(function), "0\n");
    for (const fs::path& path : {params_path(function), placement_path(function)}) {
      if (kernel_.exists(path)) kernel_.remove(path);
    }
  } else {
    const FakeVgpuType* type = find(gpu, value);
    if (type == nullptr) return EINVAL;
    Occupancy present = occupancy_of(gpu);
    present.all += present.all == 0 ? 0 : hidden_vgpus;
    if (!creatable(gpu, present, function, *type)) return EIO;
    if (swallow_creates) return 0;
    const auto place = free_place(gpu, *type);
    if (!place) return EIO;
    kernel_.file(current_path(function), value + "\n");
    kernel_.file(params_path(function), "\n");  // not readable before
    if (has_placements) kernel_.file(placement_path(function), std::to_string(*place) + "\n");
  }
  update_creatable(gpu);
  return 0;
}

}  // namespace ferry::test
