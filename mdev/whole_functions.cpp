// SPDX-License-Identifier: Apache-2.0
// SR-IOV virtual functions that go to a VM whole, on a VFIO driver: those of AMD Instinct GPUs under gim, and
// of Intel's GPUs under xe or i915. The GPU itself stays on its driver. All functions of a GPU are alike, so
// each offers one type, called by the function's IDs, and a function on a VFIO driver is a vGPU of this type.
// ABI: Documentation/ABI/testing/sysfs-bus-pci; drivers/gpu/drm/xe/xe_sriov_pf_sysfs.c.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "mdev/framework.h"
#include "mdev/vfio_nodes.h"

namespace ferry::mdev {
namespace {

constexpr std::string_view kI915 = "i915";
/// Drivers whose virtual functions are GPUs without vGPU types.
constexpr std::array<std::string_view, 3> kDrivers = {"gim", kI915, "xe"};

/// Attributes in sriov_admin/vfN/profile that a profile may set. Of each, 0 sets no bound.
constexpr std::array<std::string_view, 2> kParams = {"exec_quantum_ms", "preempt_timeout_us"};

bool has_such_driver(const vfio::PciFunction& gpu) {
  return gpu.driver && std::ranges::find(kDrivers, *gpu.driver) != kDrivers.end();
}

VgpuType type_of(const std::string& ids, std::uint32_t most, bool available) {
  return {.id = ids,
          .name = "virtual function " + ids,
          .short_name = ids,
          .available = available ? 1U : 0U,
          .max_instances = most};
}

tl::unexpected<Error> no_params() {
  return fail(Errc::unsupported, "the driver of its GPU has no sriov_admin/ with its parameters",
              "leave vgpu-params out");
}

/// The values in order of kParams, 0 where the text does not name one. A value must be as the driver shows
/// it, since it is compared as text.
Result<std::array<std::uint32_t, kParams.size()>> parse_params(std::string_view params) {
  std::array<std::uint32_t, kParams.size()> values{};
  for (std::string_view left = params; !left.empty();) {
    const std::string_view one = trimmed(cut(left, ','));
    if (one.empty()) continue;
    const auto equals = one.find('=');
    const std::string_view written = equals == std::string_view::npos ? "" : one.substr(equals + 1);
    const auto* const known = std::ranges::find(kParams, one.substr(0, equals));
    const std::uint32_t value = whole_number(written).value_or(0);
    if (known == kParams.end() || value == 0 || written != std::to_string(value)) {
      return fail(
          Errc::unsupported, fmt::format("a virtual function has no parameter '{}'", one),
          "exec_quantum_ms and preempt_timeout_us are known, each with a number above 0, as in 20, not 020");
    }
    values.at(static_cast<std::size_t>(known - kParams.begin())) = value;
  }
  return values;
}

/// The directory of a function's provisioning attributes; absent: the driver of its GPU has none.
std::optional<std::filesystem::path> profile_path(const HostFs& host, const vfio::PciAddress& function) {
  const auto gpu = host.link_name(vfio::sysfs_path(function) / "physfn");
  if (!gpu) return std::nullopt;
  const std::filesystem::path home = std::filesystem::path("sys/bus/pci/devices") / *gpu;
  const std::filesystem::path admin = home / "sriov_admin";
  if (!host.exists(admin)) return std::nullopt;
  for (unsigned number = 0;; ++number) {  // sriov_admin counts from 1
    const auto name = host.link_name(home / fmt::format("virtfn{}", number));
    if (!name) return std::nullopt;
    if (*name == function.text()) return admin / fmt::format("vf{}/profile", number + 1);
  }
}

/// "exec_quantum_ms=20,preempt_timeout_us=1000"; attributes that read 0 are left out.
std::optional<std::string> read_params(const HostFs& host, const vfio::PciAddress& function) {
  const auto profile = profile_path(host, function);
  if (!profile) return std::nullopt;
  std::string out;
  for (const std::string_view name : kParams) {
    const auto value = whole_number(trimmed(host.read_attribute(*profile / name).value_or("")));
    if (value.value_or(0) == 0) continue;
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", name, *value);
  }
  return out;
}

/// The function as a vGPU; absent: it is on no VFIO driver, or has vanished.
Result<std::optional<VgpuDevice>> read_device(const HostFs& host, VgpuFacts facts,
                                              const vfio::PciFunction& function, bool stuck) {
  if (function.problem) return fail(Error(*function.problem));
  if (!vfio::on_vfio_driver(function)) return std::optional<VgpuDevice>();
  VgpuDevice device;
  device.id.text = function.address.text();
  device.parent = function.address;
  const VgpuType type = type_of(function.ids(), 0, false);
  device.type_id = type.id;
  device.type_name = type.name;
  device.short_name = type.short_name;
  device.iommu_group = function.iommu_group;
  device.driver = function.driver;
  if (facts == VgpuFacts::identity) return device;
  if (auto read = read_vfio_nodes(host, vfio::sysfs_path(function.address), device); !read)
    return fail(std::move(read).error());
  if (!stuck) device.params = read_params(host, function.address);
  return device;
}

/// Reads a parent's function anew, since its driver may have changed after the scan of the host. `most`: the
/// vGPUs that the GPU can have; absent: the parent's types stay.
void read_parent(const HostFs& host, VgpuFacts facts, bool stuck, std::optional<std::uint32_t> most,
                 VgpuParent& parent, std::vector<VgpuDevice>& devices) {
  const auto function = vfio::read_function(host, parent.address);
  if (!function) {
    if (!is_gone(function.error())) parent.problem = function.error();
    return;
  }
  auto device = read_device(host, facts, *function, stuck);
  if (!device) {
    parent.problem = std::move(device).error();
    return;
  }
  if (most) parent.types.push_back(type_of(function->ids(), *most, !device->has_value()));
  if (auto& found = *device) devices.push_back(std::move(*found));
}

class WholeFunctions final : public Framework {
 public:
  WholeFunctions()
      : Framework({.name = "whole virtual functions",
                   .on_virtual_functions = true,
                   .binds_functions = true,
                   .by_nvidias_driver = false,
                   .why_no_placement = "passes its virtual functions through whole, and no places for them "
                                       "can be chosen"}) {}

  Result<> check_params(const VgpuGpu& gpu, std::string_view params) const override {
    if (!gpu.has_vf_params) return no_params();
    if (auto values = parse_params(params); !values) return fail(std::move(values).error());
    return {};
  }

  bool is_on(const HostScan& scan, const vfio::PciAddress& gpu, VirtualFunctions functions) const override {
    const vfio::PciFunction* physical = scan.inventory.find(gpu);
    return physical != nullptr && has_such_driver(*physical) &&
           (physical->sriov_totalvfs > 0 || !functions.empty());
  }

  /// Under i915 a GPU may have the files of SR-IOV although its driver makes no virtual functions.
  bool is_shown_by_driver(const vfio::PciFunction& gpu) const override {
    return has_such_driver(gpu) && gpu.sriov_totalvfs > 0 && (gpu.driver != kI915 || gpu.sriov_numvfs > 0);
  }

  bool is_parent(const HostScan& scan, const vfio::PciAddress& address) const override {
    const vfio::PciFunction* function = scan.inventory.find(address);
    if (function == nullptr || !function->physical_function) return false;
    const vfio::PciFunction* gpu = scan.inventory.find(*function->physical_function);
    return gpu != nullptr && has_such_driver(*gpu);
  }

  void read_gpu(const HostScan& scan, VirtualFunctions functions, VgpuGpu& gpu) const override {
    const bool stuck = scan.stuck.contains(scan.host, gpu.address());
    gpu.vf_autoprobe = read_autoprobe(scan.host, gpu.address());
    gpu.vf_autoprobe_left_off = autoprobe_was_left_off(scan.host, gpu.address());
    gpu.has_vf_params = scan.host.exists(vfio::sysfs_path(gpu.address()) / "sriov_admin");
    const auto most = std::max(gpu.function.sriov_totalvfs, static_cast<std::uint32_t>(functions.size()));
    for (const vfio::PciFunction* function : functions) {
      if (function->driver && !vfio::on_vfio_driver(*function)) gpu.host_has_vfs = true;
      VgpuParent& parent = gpu.parents.emplace_back();
      parent.address = function->address;
      read_parent(scan.host, VgpuFacts::all, stuck, most, parent, gpu.devices);
    }
    if (!functions.empty()) return;
    // The device ID that the virtual functions will have, in hex digits without zeros in front.
    const auto text = scan.host.read_attribute(vfio::sysfs_path(gpu.address()) / "sriov_vf_device");
    const auto device = text ? whole_number<std::uint16_t>(*text, 16) : std::nullopt;
    if (device)
      gpu.unlisted.push_back(
          type_of(fmt::format("{:04x}:{:04x}", gpu.function.vendor, *device), most, false));
  }

  void read_devices(const HostFs& host, const vfio::Inventory& /*inventory*/, VgpuFacts facts,
                    VgpuGpu& gpu) const override {
    for (VgpuParent& parent : gpu.parents) read_parent(host, facts, false, {}, parent, gpu.devices);
  }

  bool exists(const HostFs& host, const VgpuDevice& device) const override {
    const auto function = vfio::read_function(host, device.parent);
    return function ? vfio::on_vfio_driver(*function) : !is_gone(function.error());
  }

  Result<std::uint32_t> available_now(const HostFs& host, const vfio::PciAddress& parent,
                                      const std::string& type_id) const override {
    const auto function = vfio::read_function(host, parent);
    if (!function) return fail(function.error());
    if (function->problem) return fail(Error(*function->problem));
    return function->ids() == type_id && !vfio::on_vfio_driver(*function) ? 1U : 0U;
  }

  /// A parameter that is not named becomes 0.
  Result<std::vector<AttributeWrite>> params_writes(const HostFs& host, const vfio::PciAddress& parent,
                                                    const VgpuId& /*id*/,
                                                    const std::string& params) const override {
    const auto profile = profile_path(host, parent);
    if (!profile) return no_params();
    const auto values = parse_params(params);
    if (!values) return fail(values.error());
    std::vector<AttributeWrite> out;
    for (std::size_t i = 0; i < kParams.size(); ++i)
      out.push_back({.path = *profile / kParams.at(i), .value = std::to_string(values->at(i))});
    return out;
  }

  Result<> enable_functions(const VfSwitch& on, const vfio::PciAddress& gpu, std::uint32_t number,
                            bool for_host) const override {
    return enable_bare_vfs(on, gpu, number, for_host);
  }
  Result<> disable_functions(const VfSwitch& on, const vfio::PciAddress& gpu) const override {
    return disable_bare_vfs(on, gpu);
  }
};

}  // namespace

const Framework& whole_functions() {
  static const WholeFunctions framework;
  return framework;
}

}  // namespace ferry::mdev
