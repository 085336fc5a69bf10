// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/kubevirt_resource.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/claimable_gpus.h"
#include "api/files.h"
#include "common/kubevirt_rules.h"
#include "common/text/text.h"
#include "hostfs/locks.h"
#include "kubevirt-plugin/advertised_file.h"
#include "kubevirt-plugin/discovery/device_names.h"
#include "kubevirt-plugin/discovery/resource_name.h"

namespace ferry::plugin {
namespace {

std::string selector_of(std::string ids) {
  std::ranges::transform(ids, ids.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return ids;
}

Result<std::string> read_ids(const HostFs& host, const std::string& address) {
  std::string ids;
  for (const char* const name : {"vendor", "device"}) {
    const auto text = host.read_attribute(std::filesystem::path("sys/bus/pci/devices") / address / name);
    if (!text) return fail(text.error());
    if (!ids.empty()) ids += ':';
    ids += text->starts_with("0x") ? text->substr(2) : *text;
  }
  return ids;
}

std::string list_of(const std::string& indent, std::string_view key, std::string_view selector_key,
                    const std::vector<PermittedDevice>& devices) {
  if (devices.empty()) return {};
  std::string out = fmt::format("{}{}:\n", indent, key);
  for (const auto& device : devices) {
    out += fmt::format("{0}- {1}: \"{2}\"\n{0}  resourceName: {3}\n{0}  externalResourceProvider: true\n",
                       indent, selector_key, device.selector, device.resource);
  }
  return out;
}

}  // namespace

Result<PermittedHostDevices> permitted_host_devices(const HostFs& host, const ResourceSet& scan) {
  std::set<PermittedDevice> pci;
  std::set<PermittedDevice> mediated;
  for (const auto& resource : scan.resources) {
    const std::string& name = resource.name.text();
    for (const auto& device : resource.devices) {
      switch (device.kind) {
        case DeviceKind::pci_function:
          pci.insert({selector_of(device.model), name});
          for (const auto& companion : device.companions)
            pci.insert({selector_of(companion.model), companion.resource});
          break;
        case DeviceKind::mediated_device:
          mediated.insert({device.model, name});
          break;
        case DeviceKind::vendor_vgpu: {
          auto ids = read_ids(host, device.id);
          if (!ids) return fail(std::move(ids).error());
          pci.insert({selector_of(std::move(*ids)), name});
          break;
        }
        case DeviceKind::kata_function:
          break;
      }
    }
  }
  return PermittedHostDevices{.pci = {pci.begin(), pci.end()},
                              .mediated = {mediated.begin(), mediated.end()}};
}

namespace {

class ClaimableNames {
 public:
  ClaimableNames(const HostFs& host, const ResourceRules& rules) : host_(host), rules_(rules), names_(host) {}

  ClaimableResources resources_of(std::span<const api::ClaimableGpu> gpus) && {
    for (const api::ClaimableGpu& gpu : gpus)
      if (gpu.for_dra) add(gpu);
    return {
        .permitted = {.pci = {pci_.begin(), pci_.end()}, .mediated = {mediated_.begin(), mediated_.end()}},
        .classes = {classes_.begin(), classes_.end()},
        .not_named = std::move(not_named_)};
  }

 private:
  void add(const api::ClaimableGpu& gpu) {
    const std::string ids = fmt::format("{:04x}:{:04x}", gpu.vendor, gpu.device);
    if (gpu.whole)
      if (const auto name = name_of_gpu(gpu, ids)) {
        pci_.insert({selector_of(ids), *name});
        classes_.insert({"model", ids, *name});
      }
    for (const api::VgpuType& type : gpu.types) {
      // A virtual function that a VM gets whole has a claim, and no name of a resource.
      if (!type.allowed || type.framebuffer_mib == 0 || type.fills == "vf") continue;
      const auto name = legal(type.name, rules_.domain, rules_.names.vgpu_part(type.name));
      if (!name) continue;
      if (gpu.framework == api::VgpuFramework::mdev) {
        mediated_.insert({type.name, *name});
      } else {
        // The GPU makes its vGPUs on its virtual functions.
        // ABI: Documentation/ABI/testing/sysfs-bus-pci, sriov_vf_device: hex without "0x".
        const auto device = host_.read_attribute(vfio::sysfs_path(gpu.address) / "sriov_vf_device");
        pci_.insert({selector_of(fmt::format("{:04x}:{}", gpu.vendor,
                                             device.value_or(fmt::format("{:04x}", gpu.device)))),
                     *name});
      }
      if (!type.short_name.empty()) classes_.insert({"vgpuType", type.short_name, *name});
    }
  }

  std::optional<std::string> name_of_gpu(const api::ClaimableGpu& gpu, const std::string& ids) {
    const auto domain = resource_domain(rules_, gpu.vendor, names_);
    if (!domain) {
      not_named_.push_back({.id = gpu.address.text(), .reason = domain.error().message});
      return std::nullopt;
    }
    const std::string human = names_.find(gpu.vendor, gpu.device).value_or("");
    const auto name = rules_.names.function_name(*domain, ids, human);
    if (name) return name->text();
    not_named_.push_back({.id = ids, .reason = name.error().message});
    return std::nullopt;
  }

  std::optional<std::string> legal(const std::string& id, const std::string& domain,
                                   const std::string& part) {
    const auto name = ResourceName::parse(domain + "/" + part);
    if (name) return name->text();
    not_named_.push_back({.id = id, .reason = name.error().message});
    return std::nullopt;
  }

  const HostFs& host_;
  const ResourceRules& rules_;
  DeviceNames names_;
  std::set<PermittedDevice> pci_;
  std::set<PermittedDevice> mediated_;
  std::set<ResourceClass> classes_;
  std::vector<NotAdvertised> not_named_;
};

}  // namespace

Result<ClaimableResources> claimable_resources(const HostFs& host, const ResourceRules& rules) {
  const auto text = host.read_file(api::kClaimableGpusFile);
  if (!text && is_gone(text.error())) return ClaimableResources();
  if (!text) return fail(text.error());
  const auto gpus = api::read_claimable_gpus(*text);
  if (!gpus) return fail(gpus.error());
  return ClaimableNames(host, rules).resources_of(*gpus);
}

PermittingObject permitting_object(std::string_view hyperconverged_version) {
  if (hyperconverged_version.empty())
    return {.api_version = "kubevirt.io/v1",
            .kind = "KubeVirt",
            .name = "kubevirt",
            .space = "kubevirt",
            .path = {"configuration", "permittedHostDevices"},
            .pci_selector = "pciVendorSelector"};
  PermittingObject out{.api_version = fmt::format("hco.kubevirt.io/{}", hyperconverged_version),
                       .kind = "HyperConverged",
                       .name = "kubevirt-hyperconverged",
                       .space = "kubevirt-hyperconverged",
                       .path = {"permittedHostDevices"},
                       .pci_selector = "pciDeviceSelector"};
  if (hyperconverged_version == "v1") out.path.insert(out.path.begin(), "virtualization");
  return out;
}

std::string kubevirt_resource(const PermittedHostDevices& devices, const PermittingObject& object) {
  std::string out = fmt::format("apiVersion: {}\nkind: {}\nmetadata:\n  name: {}\n  namespace: {}\nspec:\n",
                                object.api_version, object.kind, object.name, object.space);
  std::string indent = "  ";
  for (const std::string& key : object.path) {
    out += fmt::format("{}{}:\n", indent, key);
    indent += "  ";
  }
  const std::string lists = list_of(indent, "pciHostDevices", object.pci_selector, devices.pci) +
                            list_of(indent, "mediatedDevices", "mdevNameSelector", devices.mediated);
  return out + (lists.empty() ? indent + "{}\n" : lists);
}

namespace {

constexpr const char* kPlugins = "var/lib/kubelet/device-plugins";
constexpr const char* kPods = "var/lib/kubelet/pod-resources/kubelet.sock";

Check question(std::string id, std::string why) {
  return {.id = std::move(id), .subject = kHostSubject, .why = std::move(why)};
}

/// The kubelet's directory and sockets.
std::vector<Check> kubelet_checks(const HostFs& host) {
  std::vector<Check> out;
  Check directory =
      question("kubelet-directory", "device plugins are found in it, wherever else the kubelet's root is");
  if (host.list(kPlugins))
    out.push_back(std::move(directory).passed(fmt::format("/{} is there", kPlugins)));
  else
    out.push_back(
        std::move(directory).failed(fmt::format("there is no /{}", kPlugins),
                                    "start the kubelet once; in a container, mount that directory"));

  Check kubelet = question("kubelet-listens", "resources are registered there");
  const bool listens = host.exists(std::filesystem::path(kPlugins) / "kubelet.sock");
  if (listens)
    out.push_back(std::move(kubelet).passed(fmt::format("/{}/kubelet.sock is there", kPlugins)));
  else
    out.push_back(std::move(kubelet).warned(fmt::format("there is no /{}/kubelet.sock", kPlugins),
                                            "start the kubelet; the plugin waits for it"));

  Check pods = question("pod-resources",
                        "only the kubelet's pod resources say who uses a device, and that it was released");
  constexpr const char* kFix =
      "in a container, mount its directory; before Kubernetes 1.28 let the feature gate KubeletPodResources "
      "on";
  if (host.exists(kPods))
    out.push_back(std::move(pods).passed(fmt::format("/{} is there", kPods)));
  else if (!listens)
    // The plugin reads this as a kubelet that is not there yet, or that does not offer pod resources.
    out.push_back(std::move(pods).warned(fmt::format("there is no /{}", kPods), kFix));
  else
    out.push_back(std::move(pods).failed(
        fmt::format("there is no /{}, though the kubelet is there: no device is allocated", kPods), kFix));
  return out;
}

// True for a captured host, which has no processes and no held locks.
bool is_captured(const HostFs& host) {
  const auto names = host.list("proc").value_or(std::vector<std::string>{});
  return std::ranges::none_of(names, [](const std::string& name) {
    return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) != 0;
  });
}

// advertised.json outlives the plugin. If the presence cannot be read, the plugin counts as running.
bool plugin_runs(const HostFs& host) {
  if (is_captured(host)) return host.exists(api::kAdvertisedFile);
  return is_present(host, api::kPluginLiveness).value_or(true);
}

/// The sockets of KubeVirt's PCI plugin have the whole resource name with a "-" for its "/". Ferry's have a
/// "+" there, or for nvidia.com only the part after the "/". KubeVirt's mdev plugin has the names of Ferry's
/// sockets for nvidia.com; such a socket is its own if Ferry's plugin does not run.
std::vector<std::string> foreign_sockets(const HostFs& host, const ResourceRules& rules,
                                         const ResourceSet* scan) {
  std::set<std::string> domains = {rules.domain};
  if (scan != nullptr)
    for (const Resource& resource : scan->resources)
      domains.emplace(resource.name.text(), 0, resource.name.text().find('/'));
  std::vector<std::string> found;
  for (const auto& name : host.list(kPlugins).value_or(std::vector<std::string>{}))
    if (std::ranges::any_of(domains, [&](const std::string& domain) {
          return name.starts_with(fmt::format("kubevirt-{}-", domain));
        }))
      found.push_back(name);
  if (scan == nullptr || plugin_runs(host)) return found;
  for (const Resource& resource : scan->resources) {
    const std::string socket = fmt::format("kubevirt-{}.sock", resource.name.name());
    if (resource.env_prefix == EnvPrefix::mdev_pci_resource &&
        host.exists(std::filesystem::path(kPlugins) / socket))
      found.push_back(socket);
  }
  return found;
}

/// `scan`: null if the scan failed.
Check rival_check(const HostFs& host, const ResourceRules& rules, const ResourceSet* scan) {
  Check check =
      question("kubevirt-leaves-them", "KubeVirt's own plugins and this one would offer the same devices");
  const auto found = foreign_sockets(host, rules, scan);
  if (found.empty()) return std::move(check).passed(fmt::format("/{} has no socket of theirs", kPlugins));
  return std::move(check).warned(
      fmt::format("/{} has {}", kPlugins, fmt::join(found, ", ")),
      "set externalResourceProvider: true for these resources in the KubeVirt object, `ferry kubevirt-cr` "
      "prints them so; NVIDIA's plugin has such sockets too, and one that no program serves can be removed");
}

Result<api::AdvertisedResources> read_advertised(const HostFs& host) {
  const auto file = host.read_file(api::kAdvertisedFile);
  if (file) return api::read_advertised_resources(*file);
  if (is_gone(file.error())) return api::AdvertisedResources();
  return fail(file.error());
}

/// How a plugin that runs serves the kubelet. `read`: its file.
Check serving_check(const Result<api::AdvertisedResources>& read) {
  if (read && !read->standby.empty())
    return question("plugin-serves", "two plugins that register the same resources displace each other")
        .warned(fmt::format("Ferry's device plugin is on standby and advertises nothing: {}", read->standby),
                fmt::format("remove the other one; where none is here any more, /{}", api::kServingFile));
  Check check =
      question("kubelet-reads", "a resource whose list the kubelet does not read is not advertised");
  if (!read) return std::move(check).unreadable(read.error());
  std::vector<std::string> unread;
  for (const auto& resource : read->resources)
    if (!resource.registered) unread.push_back('"' + resource.name + '"');
  if (unread.empty()) return std::move(check).passed("it reads all lists of Ferry's plugin");
  return std::move(check).warned(
      fmt::format("the kubelet does not read {} from Ferry's plugin", fmt::join(unread, ", ")),
      "look again in a minute; then see whether the kubelet answers, and whether another plugin serves them: "
      "KubeVirt's own does without externalResourceProvider: true");
}

/// The number of allocatable IDs of a resource.
std::size_t count_of(const ResourceSet& scan, const Resource& resource) {
  if (!resource.places) return resource.devices.size();
  std::size_t places = 0;
  for (const auto& other : scan.resources)
    for (const auto& device : other.devices)
      places += static_cast<std::size_t>(
          std::ranges::count(device.companions, resource.name.text(), &Companion::resource));
  return places;
}

Check advertised_check(const ResourceSet& scan) {
  Check check = question("resources-advertised", "a pod can ask for nothing else");
  std::vector<std::string> names;
  names.reserve(scan.resources.size());
  for (const auto& resource : scan.resources)
    names.push_back(fmt::format("{} ({})", resource.name.text(), count_of(scan, resource)));
  if (!names.empty()) return std::move(check).passed(fmt::format("{}", fmt::join(names, ", ")));
  if (const auto withheld = std::ranges::count(scan.not_advertised, false, &NotAdvertised::by_kind);
      withheld > 0)
    return std::move(check).failed(fmt::format("nothing: {} for VMs cannot be given",
                                               counted(static_cast<std::size_t>(withheld), "device")),
                                   "see the check can-be-given");
  if (scan.unsettled)
    return std::move(check).unknown("nothing: a GPU cannot be read now, or is being written to",
                                    "look again in a minute");
  return std::move(check).failed(
      "no GPU is on a vfio driver, and there is no vGPU",
      "`ferry vfio bind` or `ferry vgpu apply`; `ferry doctor` says what is in the way");
}

/// Absent: the host has no Grace GPU to advertise.
std::optional<Check> grace_check(const ResourceSet& scan) {
  std::optional<Check> out;
  for (const Resource& resource : scan.resources) {
    const auto grace = [](const ScannedDevice& device) { return is_grace_gpu(device.model); };
    if (std::ranges::none_of(resource.devices, grace)) continue;
    Check check{"grace-vms", resource.name.text(),
                "from KubeVirt 1.9 on its webhook refuses VMs with Grace GPUs that do not keep to this"};
    if (!std::ranges::all_of(resource.devices, grace))
      return std::move(check).failed(
          "the name stands for a Grace GPU and for another model, and KubeVirt may refuse "
          "every VM that asks for it",
          "`ferry plugin --alias MODEL=NAME` gives the Grace GPU a name of its own");
    if (!out)
      out = std::move(check).unknown(fmt::format("VMs with it need the feature gates {}, and {}",
                                                 fmt::join(kGraceGates, ", "), kGraceVm),
                                     "`kubectl ferry kubevirt-cr --check` asks the cluster for the gates");
  }
  return out;
}

// The socket of its plugin for devices.kubevirt.io/iommufd. ABI: KubeVirt v1.9.0,
// pkg/virt-handler/device-manager/iommufd_device.go.
constexpr const char* kIommufdSocket = "kubevirt-iommufd.sock";

/// KubeVirt's feature gate IOMMUFD makes every VM ask for iommufd, also a VM without a GPU.
Check iommufd_check(const HostFs& host) {
  Check check = question("iommufd-for-vms",
                         "with KubeVirt's feature gate IOMMUFD every VM of the cluster asks its node for "
                         "devices.kubevirt.io/iommufd");
  if (host.exists("dev/iommu")) return std::move(check).passed("/dev/iommu is there");
  constexpr const char* kNone =
      "there is no /dev/iommu: with that gate no VM starts on this node, with a GPU or without";
  if (!host.exists(std::filesystem::path(kPlugins) / kIommufdSocket)) return std::move(check).passed(kNone);
  return std::move(check).warned(
      fmt::format("{}; KubeVirt's plugin for it is here, at /{}/{}", kNone, kPlugins, kIommufdSocket),
      "`modprobe iommufd` (Linux 6.2 with CONFIG_IOMMUFD), or leave the gate out of "
      "spec.configuration.developerConfiguration.featureGates");
}

/// The devices that are left out, and the listed ones that are not allocatable, by a scan. For devices that
/// the scan finds fit, the running plugin's file adds its reasons, since it knows more than one scan.
std::vector<Check> device_checks(const ResourceSet& scan, std::span<const NotAdvertised> by_the_plugin) {
  std::vector<Check> checks;
  const auto add = [&](const std::string& id, const std::string& reason) {
    const auto advice = scan.advice.find(id);
    checks.push_back(
        Check{.id = "can-be-given", .subject = id, .why = "KubeVirt itself looks at nothing of this"}.failed(
            reason, advice == scan.advice.end() ? "`ferry explain` describes it in full" : advice->second));
  };
  for (const auto& device : scan.not_advertised)
    if (!device.by_kind) add(device.id, device.reason);
  for (const auto& resource : scan.resources) {
    for (const auto& device : resource.devices) {
      const auto reported = std::ranges::find(by_the_plugin, device.id, &NotAdvertised::id);
      if (!device.problem.empty())
        add(device.id, device.problem);
      else if (reported != by_the_plugin.end())
        add(device.id, reported->reason);
    }
  }
  return checks;
}

}  // namespace

Check claimable_names_check(const HostFs& host, const ResourceRules& rules) {
  Check check =
      question("dra-resource-names",
               "a pod that gets a GPU by a DeviceClass with a resource's name is counted against the "
               "device plugin's GPUs of the name, and one of those then goes to no pod");
  const auto claimable = claimable_resources(host, rules);
  if (!claimable) return std::move(check).unreadable(claimable.error());
  const auto advertised = read_advertised(host);
  if (!advertised) return std::move(check).unreadable(advertised.error());
  std::set<std::string> both;
  for (const ResourceClass& one : claimable->classes)
    if (std::ranges::find(advertised->devices, one.resource, &api::AdvertisedDevice::resource) !=
        advertised->devices.end())
      both.insert(one.resource);
  if (both.empty())
    return std::move(check).passed("the device plugin advertises no name of a GPU for claims");
  return std::move(check).unknown(
      fmt::format("the device plugin advertises {}, and GPUs for claims have the same name",
                  fmt::join(both, ", ")),
      "`kubectl ferry doctor NODE` looks for a DeviceClass with the name; without one there is nothing to "
      "do, "
      "else give all GPUs of that name on this node one `allocation`");
}

std::vector<Check> kubevirt_checks(const HostFs& host, const ResourceRules& rules, ReadVgpus read_vgpus) {
  const auto read = read_advertised(host);
  const api::AdvertisedResources advertised = read.value_or(api::AdvertisedResources());
  Scanner scanner(host, rules, std::move(read_vgpus));
  const bool captured = is_captured(host);
  for (auto errors : advertised.fatal_errors) {
    if (captured) errors.binding = 0;  // a copy of a link has an inode of its own
    scanner.remember(errors);
  }
  const auto scan = scanner.scan();
  std::vector<Check> checks = kubelet_checks(host);
  checks.push_back(rival_check(host, rules, scan ? &*scan : nullptr));
  checks.push_back(iommufd_check(host));
  const bool runs = plugin_runs(host);
  if (runs) checks.push_back(serving_check(read));
  if (!scan) {
    checks.push_back(
        question("resources-advertised", "a pod can ask for nothing else").unreadable(scan.error()));
    return checks;
  }
  checks.push_back(advertised_check(*scan));

  Check names = question("names-as-usual", "VMs ask for resources by name, on every node by the same one");
  if (scan->warnings.empty())
    checks.push_back(std::move(names).passed("all have one that the kubelet takes"));
  else
    checks.push_back(std::move(names).warned(fmt::format("{}", fmt::join(scan->warnings, "; ")),
                                             "`ferry plugin --alias MODEL=NAME` gives one of your own"));
  if (auto grace = grace_check(*scan)) checks.push_back(std::move(*grace));
  const auto unfit = runs ? unfit_by(advertised) : std::vector<NotAdvertised>();
  for (Check& one : device_checks(*scan, unfit)) checks.push_back(std::move(one));
  return checks;
}

}  // namespace ferry::plugin
