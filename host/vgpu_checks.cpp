// SPDX-License-Identifier: Apache-2.0
// ABI: kernel-open/nvidia/nv-procfs.c of NVIDIA's open module: only a vGPU host driver creates unbindLock. A
// virtual function has its GPU's driver, which refuses to bind without an IOMMU.
#include "host/vgpu_checks.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/text/text.h"
#include "host/usage/process_facts.h"
#include "hostfs/check_reading.h"
#include "mdev/framework.h"
#include "mdev/stuck_gpus.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/judgement/finding.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::host {
namespace {

constexpr const char* kDriverTool = "/usr/lib/nvidia/sriov-manage";

Check identity_check(const HostFs& host) {
  Check check{"node-identity", kHostSubject,
              "the UUIDs of vGPUs are made from it, so that they are the same after every reboot"};
  const auto node = vgpu::node_identity(host);
  if (!node) {
    return std::move(check).failed(node.error().message,
                                   "give the host one with `systemd-machine-id-setup`, before it has vGPUs");
  }
  return std::move(check).passed("/etc/machine-id has it");
}

Check iommu_check(const vfio::Inventory& inventory, bool on_virtual_functions) {
  Check check{"vgpu-iommu", kHostSubject,
              "without one the driver does not take virtual functions, and no VM could be given one"};
  const auto active = vfio::require_iommu(inventory);
  if (active) {
    return std::move(check).passed(
        fmt::format("/sys/kernel/iommu_groups has {}", counted(inventory.groups.size(), "group")));
  }
  const Error& none = active.error();
  if (on_virtual_functions) return std::move(check).failed(none.message, none.hint);
  return std::move(check).warned(none.message + "; vGPUs made on a GPU itself need none", none.hint);
}

// A name in /proc/PID/comm has at most 15 characters; this name has 15.
Check manager_check(const HostFs& host, bool needed) {
  constexpr const char* kManager = "nvidia-vgpu-mgr";
  Check check{"vgpu-manager-runs", kHostSubject,
              "the driver's daemon drives each vGPU that a VM has: without it such VMs do not start"};
  const auto processes = names_in(host, "proc");
  if (!processes) return std::move(check).unreadable(processes.error());
  bool any = false;
  for (const std::string& name : *processes) {
    if (!pid_of(name)) continue;
    any = true;
    const auto command = host.read_attribute(std::filesystem::path("proc") / name / "comm");
    if (command && *command == kManager) {
      return std::move(check).passed(fmt::format("process {} is {}", name, kManager));
    }
  }
  const std::string none = fmt::format("no process in /proc is {}", kManager);
  if (!needed) return std::move(check).passed(none + ", and no GPU here has a vGPU host driver");
  // True for a captured host, and for a container without the host's /proc.
  if (!any)
    return std::move(check).unknown("/proc shows no process at all",
                                    "ask on the host itself, with its /proc");
  return std::move(check).failed(none, fmt::format("start {}.service, or the driver's container", kManager));
}

Check kubevirt_check(const HostFs& host, bool mediated) {
  constexpr const char* kKubelet = "var/lib/kubelet";
  Check check{"kubevirt-keeps-mdevs", kHostSubject,
              "KubeVirt removes, every minute or two, each mediated device whose type its configuration does "
              "not list, whoever made it"};
  if (!mediated) return std::move(check).passed("no GPU here makes mediated devices");
  if (!host.exists(kKubelet)) return std::move(check).passed(fmt::format("there is no /{}", kKubelet));
  return std::move(check).unknown("a kubelet runs here; whether KubeVirt does, and how, is not on this host",
                                  "if it does: mediatedDevicesConfiguration.enabled: false in the KubeVirt "
                                  "CR, or every type with externalResourceProvider: true");
}

struct Virtuals {
  std::vector<const vfio::PciFunction*> all;
  std::vector<std::string> without_driver;
  std::vector<std::string> on_vfio;
  std::vector<std::string> without_group;
};

Virtuals virtual_functions(const vfio::Inventory& inventory, const mdev::VgpuGpu& gpu) {
  Virtuals out;
  for (const auto& [address, function] : inventory.functions) {
    if (function.physical_function != gpu.address()) continue;
    out.all.push_back(&function);
    if (!function.driver) out.without_driver.push_back(address.text());
    // The driver's own VFIO keeps the driver's name. A function on vfio-pci cannot carry a vGPU.
    if (function.driver == "vfio-pci") out.on_vfio.push_back(address.text());
    if (!function.iommu_group) out.without_group.push_back(address.text());
  }
  return out;
}

Check driver_check(const HostFs& host, const mdev::VgpuGpu& gpu) {
  Check check{"vgpu-host-driver", gpu.address().text(),
              "an ordinary driver makes no vGPUs and takes no virtual functions"};
  const vfio::PciFunction& function = gpu.function;
  if (function.problem) return std::move(check).unreadable(*function.problem);
  if (vfio::on_vfio_driver(function)) {
    return std::move(check).warned(
        fmt::format("bound to {} for passthrough", function.driver.value_or("")),
        fmt::format("`ferry vfio unbind --device {}`, if you want vGPUs on it", gpu.address().text()));
  }
  if (!function.driver) {
    return std::move(check).failed("no driver is bound to it",
                                   "load the vGPU host driver and let it take the GPU");
  }
  const std::string path = mdev::host_driver_sign(gpu.address());
  if (host.exists(path)) return std::move(check).passed(fmt::format("there is /{}", path));
  if (gpu.framework->makes_vgpus()) {
    return std::move(check).passed(
        fmt::format("its driver {} makes vGPUs by {}", *function.driver, gpu.framework->name()));
  }
  return std::move(check).failed(
      fmt::format("its driver {} is no vGPU host driver: there is no /{}", *function.driver, path),
      "install the host driver of the vGPU software (the vGPU manager) in place of the ordinary one");
}

Check functions_check(const mdev::VgpuGpu& gpu, const Virtuals& virtuals) {
  Check check{"vgpu-virtual-functions", gpu.address().text(),
              "on GPUs that have them vGPUs are made on virtual functions, one on each"};
  const vfio::PciFunction& function = gpu.function;
  if (function.problem) return std::move(check).unreadable(*function.problem);
  const auto named = [](const std::vector<std::string>& addresses) {
    return fmt::format("{} of its virtual functions, the first {},", addresses.size(), addresses.front());
  };
  if (!virtuals.without_group.empty()) {
    return std::move(check).failed(named(virtuals.without_group) + " in no IOMMU group",
                                   "switch the IOMMU on, then have the virtual functions made anew");
  }
  if (gpu.framework->binds_functions() && !virtuals.all.empty()) {
    return std::move(check).passed(fmt::format("{}, {} of them on VFIO drivers",
                                               counted(virtuals.all.size(), "virtual function"),
                                               gpu.devices.size()));
  }
  if (!virtuals.on_vfio.empty()) {
    return std::move(check).failed(
        named(virtuals.on_vfio) + " on vfio-pci, where no vGPU can be made",
        fmt::format("give them back: `ferry vfio unbind --device {}`", virtuals.on_vfio.front()));
  }
  if (!virtuals.without_driver.empty()) {
    return std::move(check).failed(named(virtuals.without_driver) + " without a driver",
                                   "see the kernel's log for why the driver did not take them");
  }
  if (!virtuals.all.empty()) {
    return std::move(check).passed(counted(virtuals.all.size(), "virtual function") + " on drivers");
  }
  if (gpu.on_itself()) {
    return std::move(check).passed("its vGPUs are made on the GPU itself");
  }
  if (function.sriov_totalvfs == 0) {
    return std::move(check).passed(
        fmt::format("there is no /{}/sriov_totalvfs", vfio::sysfs_path(gpu.address()).string()));
  }
  if (gpu.never_has_functions) {
    return std::move(check).passed("boards of its kind have none: its vGPUs are made on the GPU itself");
  }
  return std::move(check).warned(
      fmt::format("none of its {} virtual functions is enabled", function.sriov_totalvfs),
      !gpu.framework->by_nvidias_driver()
          ? "`ferry vgpu apply` has as many enabled as a profile asks for vGPUs"
      : gpu.host_driver
          ? fmt::format("`ferry vgpu apply` has them enabled where a profile wants vGPUs; by hand `{} -e {}`",
                        kDriverTool, gpu.address().text())
          : "none can be, before a vGPU host driver has taken the GPU");
}

/// `others_pass`: no other check of this GPU or of the host's vGPUs failed or warned.
Check types_check(const mdev::VgpuGpu& gpu, bool others_pass) {
  Check check{"vgpu-types-offered", gpu.address().text(), "what the driver does not offer cannot be made"};
  std::size_t advertised = 0;
  for (const mdev::VgpuParent& parent : gpu.parents) {
    if (parent.problem) return std::move(check).unreadable(*parent.problem);
    advertised += static_cast<std::size_t>(
        std::ranges::count_if(parent.types, [](const mdev::VgpuType& type) { return type.available > 0; }));
  }
  const std::string carried = counted(gpu.devices.size(), "vGPU");
  if (advertised > 0 && gpu.framework->makes_vgpus()) {
    return std::move(check).passed(fmt::format("by {}; it carries {}", gpu.framework->name(), carried));
  }
  if (!gpu.devices.empty()) return std::move(check).passed(fmt::format("it is full: it carries {}", carried));
  if (gpu.awaits_types()) return std::move(check).warned(gpu.obstacle, "start nvidia-vgpud.service");
  if (!gpu.obstacle.empty()) {
    const bool is_last_reason = others_pass || gpu.framework->makes_vgpus();
    return std::move(check).warned(gpu.obstacle, is_last_reason && gpu.offers_nothing()
                                                     ? mdev::reason_for_no_types(gpu)
                                                     : "see the other checks of the host and of this GPU");
  }
  return std::move(check).warned(
      fmt::format("by {}, but none can be made, though it carries none", gpu.framework->name()),
      "in MIG mode it takes GPU instances first: `ferry vgpu apply` makes those that MIG-backed types need; "
      "or switch MIG mode off");
}

}  // namespace

std::vector<Check> vgpu_checks(const HostFs& host, const vfio::Inventory& inventory,
                               const vfio::AcceleratorRules& rules) {
  const auto vgpus = mdev::scan_vgpus(host, inventory, mdev::naming_vgpu_vendors(inventory, rules));
  struct GpuChecks {
    const mdev::VgpuGpu* gpu = nullptr;
    Check driver;
    Check functions;
  };
  std::vector<GpuChecks> of_gpus;
  bool host_driver = false;
  bool mediated = false;
  bool on_virtual_functions = false;
  auto gpus = vgpus ? vgpus->gpus : std::vector<mdev::VgpuGpu>{};
  // Another GPU of its vendor may be the reason why a GPU counts by name.
  std::erase_if(gpus, [](const mdev::VgpuGpu& gpu) {
    const mdev::Framework& framework = *gpu.framework;
    return gpu.by_name && (!framework.makes_vgpus() ||
                           (framework.binds_functions() && !framework.is_shown_by_driver(gpu.function)));
  });
  for (const mdev::VgpuGpu& gpu : gpus) {
    const Virtuals virtuals = virtual_functions(inventory, gpu);
    Check driver = driver_check(host, gpu);
    host_driver = host_driver || (driver.verdict == Verdict::pass && gpu.framework->by_nvidias_driver());
    mediated = mediated || (gpu.framework->makes_vgpus() && gpu.framework->has_mediated_devices());
    // A GPU may have the files of SR-IOV for functions that no VM ever needs.
    const bool makes_on_functions = gpu.on_virtual_functions() && !gpu.framework->binds_functions();
    on_virtual_functions = on_virtual_functions || !virtuals.all.empty() || makes_on_functions;
    of_gpus.push_back(
        {.gpu = &gpu, .driver = std::move(driver), .functions = functions_check(gpu, virtuals)});
  }
  std::vector<Check> out = {identity_check(host), iommu_check(inventory, on_virtual_functions),
                            manager_check(host, host_driver), kubevirt_check(host, mediated)};
  Check accelerators{
      .id = "vgpu-accelerators", .subject = kHostSubject, .why = "without one there is nothing to divide"};
  if (!vgpus) {
    out.push_back(std::move(accelerators).unreadable(vgpus.error()));
  } else if (gpus.empty()) {
    out.push_back(std::move(accelerators)
                      .warned(fmt::format("none of the functions in /sys/bus/pci/devices is {}",
                                          rules.whose.empty() ? "an accelerator" : "a GPU of " + rules.whose),
                              "see whether `lspci` has the card"));
  } else {
    out.push_back(std::move(accelerators).passed(counted(gpus.size(), "GPU") + " in /sys/bus/pci/devices"));
  }
  const auto is_fault = [](const Check& check) {
    return check.verdict == Verdict::fail || check.verdict == Verdict::warn;
  };
  const bool host_passes = std::ranges::none_of(out, is_fault);
  const auto stuck = mdev::StuckGpus::read(host);
  for (auto& [gpu, driver, functions] : of_gpus) {
    Check types = types_check(*gpu, host_passes && !is_fault(driver) && !is_fault(functions));
    out.insert(out.end(), {std::move(driver), std::move(functions), std::move(types)});
    if (stuck && stuck->contains(host, gpu->address())) {
      const vfio::Rule& rule = vfio::rule(vfio::RuleId::stuck_write);
      Check check{std::string(rule.check), gpu->address().text(), std::string(rule.why)};
      out.push_back(std::move(check).failed(
          "an earlier write to it, or to a virtual function of it, has not returned from the kernel",
          "see /run/ferry/stuck-writes; if it never returns, only a reboot helps"));
    }
  }
  return out;
}

}  // namespace ferry::host
