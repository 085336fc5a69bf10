// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/scanner.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "hostfs/host_directory.h"
#include "hostfs/stuck_writes.h"
#include "kubevirt-plugin/discovery/device_nodes.h"
#include "kubevirt-plugin/discovery/resource_assembly.h"
#include "mdev/framework.h"
#include "mdev/stuck_gpus.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/judgement/unit_members.h"
#include "vfio/pci/inventory.h"

namespace ferry::plugin {
namespace {

// KubeVirt reads PCI addresses with exactly four domain digits; VMD and Hyper-V have more.
constexpr std::uint32_t kLastDomain = 0xffff;

constexpr const char* kLoadAnew =
    "it is advertised again once the host's driver of its GPU is loaded anew, or the host has booted";
constexpr const char* kMakeAnew = "removed and made again, it may get one: `ferry vgpu delete`, then `apply`";

/// The members of the function's group.
std::vector<GroupMember> members_of(const vfio::Inventory& inventory, const vfio::PciFunction& function,
                                    const ResourceRules& rules) {
  std::vector<GroupMember> members;
  for (const auto& address : inventory.group_of(function)) {
    const auto* const member = inventory.find(address);
    if (member == nullptr) continue;
    const bool ours = vfio::on_vfio_driver(*member) && (member->vendor == function.vendor ||
                                                        rules.accelerators.vendors.contains(member->vendor));
    members.push_back({.address = address,
                       .driver = member->driver.value_or(""),
                       .usable = !vfio::blocks_viability(*member),
                       .vfio_device = ours && !member->vfio_devices.empty() ? member->vfio_devices.front()
                                                                            : std::string()});
  }
  return members;
}

/// True for another function of the accelerators' vendors, such as a GPU's audio.
bool is_beside(const vfio::PciFunction& function, const ResourceRules& rules) {
  return rules.accelerators.vendors.contains(function.vendor) && !rules.accelerators.match(function) &&
         !function.is_bridge() && !function.is_virtual_function();
}

/// Another vendor has no vGPU types: a virtual function of its GPU is passed through whole.
bool is_vf_of_another_vendor(const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules,
                             const vfio::PciFunction& function) {
  return !rules.vendors.contains(function.vendor) && vfio::is_accelerators_vf(inventory, rules, function);
}

// Another vendor's GPU on a driver of the host is not meant for VMs, and nothing is reported of it. The same
// holds for its virtual functions.
bool is_for_kubevirt(const vfio::Inventory& inventory, const vfio::PciFunction& function,
                     const ResourceRules& rules) {
  if (!rules.kubevirt) return false;
  if (rules.accelerators.is_of_another_vendor(function) ||
      is_vf_of_another_vendor(inventory, rules.accelerators, function))
    return vfio::on_vfio_driver(function);
  return rules.accelerators.match(function) ||
         (rules.companions == Companions::devices && is_beside(function, rules));
}

/// The IOMMU group that goes to a VM with the function; an error if KubeVirt cannot ask for it by its
/// address.
Result<std::uint32_t> group_for_kubevirt(const vfio::PciFunction& function) {
  if (function.problem) return fail(Error(*function.problem));
  if (!function.iommu_group)
    return fail(Errc::unsupported, "it has no IOMMU group", "`ferry doctor` says how to switch the IOMMU on");
  if (function.address.domain > kLastDomain)
    return fail(Errc::unsupported, "KubeVirt reads addresses of four domain digits only",
                "switch Intel's VMD off in the firmware");
  return *function.iommu_group;
}

/// Reasons by which a function is left out of the lists. With any other one it is listed as Unhealthy.
bool is_unlisted(vfio::RuleId rule) {
  using enum vfio::RuleId;
  return rule == off_the_bus || rule == unreadable || rule == iommu_off || rule == noiommu_mode ||
         rule == no_group || rule == group_not_viable || rule == foreign_driver;
}

/// A type without a name has its number or ID in the name's place.
bool is_name(const std::string& name, const std::string& id) {
  return name != id && name.find_first_not_of("0123456789") != std::string::npos;
}

const mdev::VgpuParent* parent_of(const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& vgpu) {
  const auto parent = std::ranges::find(gpu.parents, vgpu.parent, &mdev::VgpuParent::address);
  return parent == gpu.parents.end() ? nullptr : &*parent;
}

/// The error in reading a parent or a device below it; nullptr: none. A write of Ferry that is in progress
/// says nothing about the devices, so it is no error here.
const Error* trouble_with(const mdev::VgpuParent* parent) {
  if (parent == nullptr) return nullptr;
  const auto& problem = parent->problem;
  return problem && problem->code != Errc::stuck ? &*problem : nullptr;
}

}  // namespace

Result<std::string> resource_domain(const ResourceRules& rules, std::uint16_t vendor, DeviceNames& names) {
  if (rules.accelerators.vendors.contains(vendor)) return rules.domain;
  if (const auto known = rules.domains.find(vendor); known != rules.domains.end()) return known->second;
  std::string domain = vendor_domain(names.find_vendor(vendor).value_or(""));
  if (!domain.empty()) return domain;
  return fail(
      Errc::unsupported,
      fmt::format("the host has no pci.ids with a name for vendor {:04x}, by which its resource is called",
                  vendor),
      "install the package of the host that has pci.ids, in a version that knows the vendor");
}

/// The work of one scan.
class Scanner::Round {
 public:
  Round(Scanner& scanner, const vfio::Inventory& inventory)
      : host_(scanner.host_),
        rules_(scanner.rules_),
        scanner_(scanner),
        inventory_(inventory),
        bus_(HostDirectory::open(host_, "sys/bus/pci/devices")),
        stuck_(vfio::stuck_functions(stuck_writes(host_).value_or(std::vector<StuckWrite>{}), inventory)),
        nodes_([this](const std::string& node) { return node_is_there(node); }) {}

  void add_functions() {
    for (const auto& [address, function] : inventory_.functions) {
      if (function.problem && lacks_means(*function.problem)) {
        assembly_.add_unreadable(address.text(), function.problem->message);
        continue;
      }
      if (rules_.kubevirt && rules_.companions == Companions::places && is_beside(function, rules_))
        add_companion(function);
      if (is_bare_virtual_function(function))
        assembly_.add_of_other_kind(
            address.text(),
            "a virtual function on vfio-pci: whole GPUs are advertised, and vGPUs by their types");
      const bool kubevirt = is_for_kubevirt(inventory_, function, rules_);
      // NVIDIA's plugin for Kata has the same: accelerators, and those on request (NVSwitches).
      const bool kata = rules_.kata && !rules_.accelerators.is_of_another_vendor(function) &&
                        rules_.accelerators.match_by_name(function);
      if (!kubevirt && !kata) {
        if (vfio::on_vfio_driver(function) && rules_.accelerators.on_request.contains(function.pci_class()) &&
            rules_.accelerators.match_by_name(function))
          assembly_.add_of_other_kind(address.text(),
                                      "an NVSwitch is advertised to KubeVirt with --companions alone");
        continue;
      }
      if (vfio::on_vfio_driver(function)) {
        add_function(function, kubevirt, kata);
      } else {
        assembly_.add_not_on_vfio(address.text(), function.driver);
      }
    }
  }

  void add_vgpus(const mdev::VgpuInventory& vgpus) {
    known_nodes_.clear();  // reading the vGPUs may have taken long
    for (const auto& gpu : vgpus.gpus) {
      if (gpu.framework->binds_functions()) continue;  // add_functions() advertises them by their product
      gpu_problem_ = problem_of(gpu);
      for (const auto& vgpu : gpu.devices) {
        if (const Error* why = unread(gpu, vgpu); why != nullptr && !is_name(vgpu.type_name, vgpu.type_id)) {
          assembly_.add_unusable(vgpu.id.text, why->message, why->hint);
        } else if (vgpu.is_mediated()) {
          add_mediated_device(gpu, vgpu);
        } else {
          add_vendor_vgpu(gpu, vgpu);
        }
      }
    }
  }

  ResourceSet finish() && {
    // If Kata's name equals KubeVirt's name for the model, KubeVirt's devices keep it.
    for (auto& [device, part, fallback] : for_kata_)
      assembly_.add(std::move(device), part, fallback, EnvPrefix::none);
    return std::move(assembly_).finish();
  }

 private:
  /// True for a GPU's virtual function on vfio-pci: without its vendor's driver it carries no vGPU type.
  bool is_bare_virtual_function(const vfio::PciFunction& function) const {
    return function.is_virtual_function() && function.driver == "vfio-pci" &&
           vfio::is_accelerators_vf(inventory_, rules_.accelerators, function) &&
           !is_vf_of_another_vendor(inventory_, rules_.accelerators, function);
  }

  /// The physical function of another vendor's virtual function; nullptr: `function` is none.
  const vfio::PciFunction* physical_of(const vfio::PciFunction& function) const {
    return is_vf_of_another_vendor(inventory_, rules_.accelerators, function)
               ? inventory_.find(*function.physical_function)
               : nullptr;
  }

  /// The directories of sysfs between `devices` and the target of the function's link in the bus.
  std::vector<std::string> bus_path(const vfio::PciAddress& address) const {
    std::filesystem::path target;
    if (bus_) target = bus_->link_target(address.text().c_str()).value_or("");
    std::vector<std::string> path;
    for (const auto& part : target.parent_path()) path.push_back(part.string());
    const auto devices = std::ranges::find(path, "devices");
    return {devices == path.end() ? devices : std::next(devices), path.end()};
  }

  /// Each folder is listed once: of many devices that takes far fewer system calls than a look at each node.
  bool node_is_there(const std::string& node) {
    const auto slash = node.rfind('/');
    const auto [folder, is_new] = known_nodes_.try_emplace(node.substr(0, slash));
    // A careless bind mount makes a directory in place of a node. kIommufd is one, in sysfs.
    if (is_new)
      for (DirectoryEntry& entry : host_.entries(folder->first).value_or(std::vector<DirectoryEntry>{}))
        if (!entry.is_directory || !node.starts_with("dev/")) folder->second.push_back(std::move(entry.name));
    return std::ranges::binary_search(folder->second, node.substr(slash + 1));
  }

  /// The GPU's problem, which all of its vGPUs have too; empty: none.
  std::string problem_of(const mdev::VgpuGpu& gpu) {
    if (gpu.devices.empty()) return {};
    if (gpu.function.problem) return fmt::format("its GPU: {}", gpu.function.problem->message);
    const std::string errors = scanner_.fatal_errors_.problem(host_, gpu.function.address);
    return errors.empty() ? errors : fmt::format("its GPU had {}", errors);
  }
  /// The reason why a vGPU cannot be identified now; nullptr: it can be, whatever else fails there.
  const Error* unread(const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& vgpu) const {
    const mdev::VgpuParent* const parent = parent_of(gpu, vgpu);
    const Error* const why = trouble_with(parent);
    if (why == nullptr || scanner_.unread_.contains(vgpu.id.text)) return why;
    const bool listed =
        gpu.framework->lists_only_creatable_types() ||
        std::ranges::find(parent->types, vgpu.type_id, &mdev::VgpuType::id) != parent->types.end();
    return listed ? nullptr : why;
  }
  std::string problem_of(const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& vgpu) const {
    const Error* const why = gpu_problem_.empty() ? unread(gpu, vgpu) : nullptr;
    return why == nullptr ? gpu_problem_ : fmt::format("its GPU: {}", why->message);
  }

  /// The judgement of the function's unit. An error: a member cannot be read for lack of means, and may be
  /// soon.
  Result<std::vector<vfio::Finding>> judge(const vfio::PciFunction& function) {
    const vfio::Unit unit = vfio::units_of(inventory_, {function.address}, {}).front();
    std::map<vfio::PciAddress, std::string> errors;
    for (const auto& address : unit.functions) {
      const vfio::PciFunction& member = *inventory_.find(address);
      if (member.problem && lacks_means(*member.problem)) return fail(Error(*member.problem));
      if (!vfio::on_vfio_driver(member)) continue;
      if (auto problem = scanner_.fatal_errors_.problem(host_, address); !problem.empty())
        errors.emplace(address, std::move(problem));
    }
    return vfio::judge(unit, inventory_, rules_.accelerators, {.stuck = &stuck_, .fatal_errors = &errors},
                       {.all_shed = true});
  }

  void add_function(const vfio::PciFunction& function, bool kubevirt, bool kata) {
    const std::string id = function.address.text();
    const auto findings = judge(function);
    if (!findings) return assembly_.add_unreadable(id, findings.error().message);
    std::string problem;
    std::string advice;
    for (const vfio::Finding* obstacle : vfio::obstacles_to(*findings, vfio::Blocks::advertise)) {
      if (is_unlisted(obstacle->rule)) return assembly_.add_unusable(id, obstacle->text, obstacle->advice);
      if (!problem.empty()) continue;
      advice = obstacle->advice;
      // The nodes that a pod gets are looked up below, and Kata's are others.
      if (obstacle->rule != vfio::RuleId::nodes_missing) problem = obstacle->text;
    }
    const std::uint32_t group = function.iommu_group.value_or(0);
    const auto members = members_of(inventory_, function, rules_);

    ScannedDevice device{.id = id,
                         .kind = DeviceKind::pci_function,
                         .model = function.ids(),
                         .driver = function.driver.value_or(""),
                         .iommu_group = group,
                         .numa_node = function.numa_node,
                         .nodes = vfio_nodes(nodes_, group, members),
                         .problem = std::move(problem),
                         .bus_path = bus_path(function.address)};
    const std::string human = human_name(function);
    if (kata) add_for_kata(function, human, device);
    if (!kubevirt) return;
    if (const auto for_it = group_for_kubevirt(function); !for_it)
      return assembly_.add_unusable(id, for_it.error().message, for_it.error().hint);
    // ABI: drivers/vfio/pci/vfio_pci_core.c, vfio_pci_validate_vf_token(). KubeVirt gives QEMU no token.
    if (const auto* const physical = physical_of(function);
        physical != nullptr && physical->driver == "vfio-pci") {
      return assembly_.add_unusable(
          id, fmt::format("its physical function {} is on vfio-pci, and a VM then needs a VF token, which "
                          "KubeVirt does not pass: bind {} to the driver that made the virtual functions",
                          physical->address.text(), physical->address.text()));
    }
    const auto domain = resource_domain(rules_, function.vendor, scanner_.names_);
    if (!domain) return assembly_.add_unusable(id, domain.error().message, domain.error().hint);
    if (device.nodes.empty() && device.problem.empty()) device.problem = missing_nodes(device.iommu_group);
    if (!device.problem.empty()) assembly_.advise(id, std::move(advice));
    assembly_.add(std::move(device), function_part(function, human), hex_of(function) + vf_suffix(function),
                  EnvPrefix::pci_resource, *domain);
  }

  /// Adds a companion to the GPU of its card and IOMMU group. Without such a GPU no pod can ask for it.
  void add_companion(const vfio::PciFunction& function) {
    if (!vfio::on_vfio_driver(function)) return;
    for (const auto& address : inventory_.group_of(function)) {
      const auto* const gpu = inventory_.find(address);
      if (gpu == nullptr || !rules_.accelerators.match(*gpu) || !vfio::is_companion(*gpu, function)) continue;
      const std::string id = function.address.text();
      if (const auto group = group_for_kubevirt(function); !group)
        return assembly_.add_unusable(id, group.error().message, group.error().hint);
      if (auto problem = scanner_.fatal_errors_.problem(host_, function.address); !problem.empty())
        return assembly_.add_unusable(
            id, std::move(problem),
            fmt::format("`ferry vfio unbind --device {0}`, then `bind --device {0}`", gpu->address.text()));
      return assembly_.add_companion(
          gpu->address.text(),
          {.address = id, .model = function.ids(), .driver = function.driver.value_or("")},
          function_part(function, human_name(function)), hex_of(function));
    }
  }

  std::string human_name(const vfio::PciFunction& function) const {
    return scanner_.names_.find(function.vendor, function.device).value_or("");
  }

  static std::string hex_of(const vfio::PciFunction& function) {
    return fmt::format("{:04x}", function.device);
  }

  /// A virtual function that has the IDs of its GPU, as Intel's do, would have the name of the whole GPU
  /// without this.
  std::string vf_suffix(const vfio::PciFunction& function) const {
    const auto* const physical = physical_of(function);
    return physical != nullptr && physical->ids() == function.ids() ? "_VF" : "";
  }

  /// A whole function's name part; `human` is empty where it has no name.
  std::string function_part(const vfio::PciFunction& function, const std::string& human) const {
    return rules_.names.function_part(function.ids(), human) + vf_suffix(function);
  }

  /// Adds the device for Kata: like `device` for KubeVirt, but with Kata's ID and CDI name.
  void add_for_kata(const vfio::PciFunction& function, const std::string& human, ScannedDevice device) {
    const auto key = kata_key(nodes_, device.iommu_group, function.vfio_devices);
    const std::string address = function.address.text();
    const auto [seen, is_new] = kata_devices_.try_emplace(key.id, &function);
    const vfio::PciFunction& first = *seen->second;
    if (!is_new && first.iommu_group == function.iommu_group)
      return;  // advertised by another function of the group
    if (!is_new) {
      // The same function may still be advertised to KubeVirt.
      return assembly_.add_unusable(
          rules_.kubevirt ? address + " for Kata" : address,
          fmt::format("its number for Kata, {}, is that of {}: one has a node of its "
                      "own, /dev/vfio/devices/vfio{}, and the other the IOMMU group {}",
                      key.id, first.address.text(), key.id, key.id));
    }
    device.id = key.id;
    device.sysfs_name = address;
    device.kind = DeviceKind::kata_function;
    device.nodes = key.nodes;
    if (device.nodes.empty() && device.problem.empty()) device.problem = key.missing;
    const bool gpu = rules_.accelerators.match(function);
    const auto& alias = gpu ? rules_.kata_names.gpu_alias : rules_.kata_names.switch_alias;
    for_kata_.push_back({.device = std::move(device),
                         .part = alias.empty() ? kata_resource_part(human) : alias,
                         .fallback = fmt::format("device_{:04x}", function.device)});
  }

  void add_vgpu(const mdev::VgpuGpu& gpu, ScannedDevice device, EnvPrefix prefix) {
    if (device.nodes.empty())
      device.problem = missing_nodes(device.iommu_group);
    else if (!gpu_problem_.empty())
      assembly_.advise(device.id, gpu.function.problem ? gpu.function.problem->hint : kLoadAnew);
    const std::string usual = mdev_resource_part(device.model);
    const std::string part = rules_.names.vgpu_part(device.model);
    assembly_.add(std::move(device), part, part == usual ? std::string() : usual, prefix);
  }

  void add_mediated_device(const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& vgpu) {
    if (!vgpu.iommu_group)
      return assembly_.add_unusable(vgpu.id.text, "no VFIO driver has taken it: no IOMMU group",
                                    gpu.problem() == nullptr ? kMakeAnew : "");
    const auto* const parent = inventory_.find(vgpu.parent);
    ScannedDevice device{.id = vgpu.id.text,
                         .kind = DeviceKind::mediated_device,
                         .model = vgpu.type_name,
                         .driver = vgpu.driver.value_or(""),
                         .iommu_group = *vgpu.iommu_group,
                         .numa_node = parent != nullptr ? parent->numa_node : std::nullopt,
                         .nodes = vfio_nodes(nodes_, *vgpu.iommu_group, {}),
                         .problem = problem_of(gpu, vgpu),
                         .vgpu_type = vgpu.type_id,
                         .gpu = gpu.address().text(),
                         .bus_path = bus_path(gpu.address())};
    add_vgpu(gpu, std::move(device), EnvPrefix::mdev_pci_resource);
  }

  void add_vendor_vgpu(const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& vgpu) {
    const std::string& id = vgpu.id.text;
    const auto* const function = inventory_.find(vgpu.parent);
    if (function == nullptr) return;  // gone meanwhile
    const auto group = group_for_kubevirt(*function);
    if (!group) return assembly_.add_unusable(id, group.error().message, group.error().hint);
    if (!is_name(vgpu.type_name, vgpu.type_id)) {
      return assembly_.add_unusable(
          id, fmt::format("nothing on this host names its vGPU type {}, and a resource is named by the type",
                          vgpu.type_id));
    }
    auto members = members_of(inventory_, *function, rules_);
    // The vendor's driver gives it to VMs, which kernels before 6.1 do not show.
    for (auto& member : members) member.usable = member.usable || member.address == function->address;
    if (auto problem = group_problem(*group, members); !problem.empty())
      return assembly_.add_unusable(
          id, std::move(problem),
          "ACS in the firmware, or another slot, may give each virtual function a group of its own");
    ScannedDevice device{.id = id,
                         .kind = DeviceKind::vendor_vgpu,
                         .model = vgpu.type_name,
                         .driver = function->driver.value_or(""),
                         .iommu_group = *group,
                         .numa_node = function->numa_node,
                         .nodes = vfio_nodes(nodes_, *group, members),
                         .problem = problem_of(gpu, vgpu),
                         .vgpu_type = vgpu.type_id,
                         .gpu = gpu.address().text(),
                         .bus_path = bus_path(gpu.address())};
    add_vgpu(gpu, std::move(device), EnvPrefix::pci_resource);
  }

  const HostFs& host_;
  const ResourceRules& rules_;
  Scanner& scanner_;
  const vfio::Inventory& inventory_;
  const Result<HostDirectory> bus_;
  const std::set<std::string> stuck_;
  const NodeIsThere nodes_;
  std::map<std::string, std::vector<std::string>> known_nodes_;  // of each folder, sorted
  ResourceAssembly assembly_{rules_.domain};
  std::string gpu_problem_;                                       // of the GPU whose vGPUs are being added
  std::map<std::string, const vfio::PciFunction*> kata_devices_;  // by the ID
  struct ForKata {
    ScannedDevice device;
    std::string part;
    std::string fallback;
  };
  std::vector<ForKata> for_kata_;
};

Scanner::Scanner(const HostFs& host, const ResourceRules& rules, ReadVgpus read_vgpus)
    : host_(host), rules_(rules), read_vgpus_(std::move(read_vgpus)), names_(host) {}

Result<ResourceSet> Scanner::scan() {
  auto inventory = ferry::vfio::scan(host_);
  if (!inventory) return fail(inventory.error());
  vfio::read_unit_facts(host_, rules_.accelerators, *inventory);
  std::vector<vfio::PciAddress> on_vfio;
  for (const auto& [address, function] : inventory->functions)
    if (vfio::on_vfio_driver(function)) on_vfio.push_back(address);
  bus_.look(host_, on_vfio, *inventory);
  // If a GPU cannot be read, no vGPU of it would be found, and all would count as removed.
  for (const auto& [gpu, devices] : known_) {
    const auto* const function = devices.empty() ? nullptr : inventory->find(gpu.first);
    if (function != nullptr && function->problem && lacks_means(*function->problem))
      return fail(Error(*function->problem));
  }
  Round round(*this, *inventory);
  round.add_functions();
  if (!rules_.kubevirt) {  // Kata uses no vGPUs
    auto found = std::move(round).finish();
    found.fatal_errors = fatal_errors_.found();
    return found;
  }
  auto vgpus = read_vgpus_(host_, *inventory, rules_.accelerators);
  if (!vgpus) return fail(vgpus.error());
  name_types(*vgpus);
  const bool unsettled = keep_what_was_known(*vgpus);
  round.add_vgpus(*vgpus);
  auto found = std::move(round).finish();
  found.unsettled = found.unsettled || unsettled;
  found.fatal_errors = fatal_errors_.found();
  found.vanished = vanished_since(*vgpus);
  return found;
}

void Scanner::name_types(mdev::VgpuInventory& vgpus) {
  for (auto& gpu : vgpus.gpus) {
    auto& names = type_names_[{gpu.address(), gpu.function.ids()}];
    for (const auto& parent : gpu.parents)
      for (const auto& type : parent.types)
        if (is_name(type.name, type.id)) names.insert_or_assign(type.id, type.name);
    for (auto& device : gpu.devices) {
      if (is_name(device.type_name, device.type_id)) {
        names.insert_or_assign(device.type_id, device.type_name);
      } else if (const auto known = names.find(device.type_id); known != names.end()) {
        device.type_name = known->second;
      }
    }
  }
}

bool Scanner::keep_what_is_unread(mdev::VgpuGpu& gpu) {
  const bool any = std::ranges::any_of(
      gpu.parents, [](const mdev::VgpuParent& parent) { return parent.problem.has_value(); });
  const auto before = known_.find({gpu.address(), gpu.function.ids()});
  if (!any || before == known_.end()) return any;
  for (const mdev::VgpuDevice& device : before->second) {
    const bool read = std::ranges::find(gpu.devices, device.id, &mdev::VgpuDevice::id) != gpu.devices.end();
    if (read || trouble_with(parent_of(gpu, device)) == nullptr) continue;
    if (!gpu.framework->exists(host_, device)) continue;
    gpu.devices.push_back(device);
    unread_.insert(device.id.text);
  }
  return any;
}

bool Scanner::keep_what_was_known(mdev::VgpuInventory& vgpus) {
  bool any = false;
  unread_.clear();
  const auto stuck = mdev::StuckGpus::read(host_);
  for (auto& gpu : vgpus.gpus) {
    const bool written_to = std::ranges::any_of(gpu.parents, [](const mdev::VgpuParent& parent) {
      return parent.problem && parent.problem->code == Errc::stuck;
    });
    if (!written_to) {
      any = keep_what_is_unread(gpu) || any;
      known_.insert_or_assign({gpu.address(), gpu.function.ids()}, gpu.devices);
      continue;
    }
    if (!stuck || stuck->is_late(host_, gpu.address())) continue;
    any = true;
    // The kernel shows which vGPUs exist, or at least which functions the driver has.
    const auto is_there = [&](const mdev::VgpuDevice& device) {
      if (stuck->is_on(device.id.text)) return false;
      if (!gpu.framework->kernel_lists_devices())
        return std::ranges::find(gpu.parents, device.parent, &mdev::VgpuParent::address) != gpu.parents.end();
      return std::ranges::find(gpu.devices, device.id, &mdev::VgpuDevice::id) != gpu.devices.end();
    };
    std::vector<mdev::VgpuDevice> kept;
    std::ranges::copy_if(known_[{gpu.address(), gpu.function.ids()}], std::back_inserter(kept), is_there);
    gpu.devices = std::move(kept);
  }
  return any;
}

std::vector<NotAdvertised> Scanner::vanished_since(const mdev::VgpuInventory& now) {
  std::map<std::string, std::string> there;  // UUID -> type
  for (const auto& gpu : now.gpus)
    for (const auto& device : gpu.devices)
      if (device.is_mediated()) there.emplace(device.id.text, device.type_name);
  const auto before = std::exchange(mediated_, std::move(there));
  std::vector<NotAdvertised> vanished;
  for (const auto& [id, type] : before) {
    if (mediated_.contains(id)) continue;
    vanished.push_back(
        {id, fmt::format("{} is gone. Unless it was removed on purpose, KubeVirt has removed it: it removes "
                         "mediated devices of types that its object does not permit with "
                         "externalResourceProvider: true (`ferry kubevirt-cr` prints how)",
                         type)});
  }
  return vanished;
}

}  // namespace ferry::plugin
