// SPDX-License-Identifier: Apache-2.0
#include "host/usage/use_probes.h"

#include <algorithm>
#include <array>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/process/spawn.h"
#include "common/text/text.h"
#include "host/claims/claim_record.h"
#include "host/usage/process_facts.h"
#include "hostfs/processes.h"
#include "vfio/pci/pci_function.h"

namespace ferry::host {
namespace {

/// Adds the users, each VM once.
void add(std::vector<vfio::DeviceUser>& known, const std::vector<vfio::DeviceUser>& found) {
  constexpr auto kVm = vfio::DeviceUser::Kind::virtual_machine;
  const std::vector<vfio::DeviceUser> earlier = known;
  for (const vfio::DeviceUser& user : found) {
    const bool is_known = std::ranges::any_of(earlier, [&](const vfio::DeviceUser& other) {
      return user.kind == kVm && other.kind == kVm && user.name == other.name &&
             (!user.pid || !other.pid || user.pid == other.pid);
    });
    if (!is_known) known.push_back(user);
  }
}

}  // namespace

Result<vfio::UseReport> CombinedUseProbe::look(std::span<const vfio::UseQuestion> asked) {
  std::vector<vfio::UseQuestion> questions(asked.begin(), asked.end());
  vfio::UseReport all;
  for (vfio::UseQuestion& question : questions) {
    if (auto added = add_nvidia_nodes(*host_, read_, question); !added)
      all.unseen.emplace(question.device, added.error().message);
    for (const std::string& name : question.attached)
      all.users[question.device].push_back(
          {.kind = vfio::DeviceUser::Kind::attached, .name = name, .what = {}});
  }
  for (const FindUsers& find_users : sources_) {
    auto report = find_users(questions);
    if (!report) return report;
    for (const auto& [device, users] : report->users) add(all.users[device], users);
    if (all.blind.empty()) {
      all.blind = report->blind;
      all.blind_hint = report->blind_hint;
    }
    all.unseen.insert(report->unseen.begin(), report->unseen.end());
    all.unknown.insert(all.unknown.end(), report->unknown.begin(), report->unknown.end());
  }
  return all;
}

std::unique_ptr<vfio::UseProbe> all_use_probes(const HostFs& host, const vfio::AcceleratorRules& rules,
                                               ListPodDevices pods, KubeletSilence silence) {
  using Questions = std::span<const vfio::UseQuestion>;
  const virt::VirtHelper helper{.program = program_beside("ferry-virt"), .host_root = host.root()};
  std::vector<FindUsers> sources = {
      [proc = std::make_shared<ProcUseProbe>(host)](Questions questions) { return proc->look(questions); },
      [&host](Questions questions) { return screen_users(host, questions); },
      [&host](Questions questions) { return console_users(host, questions); },
      [&host](Questions questions) { return module_users(host, questions); },
      [&host, rules](Questions questions) -> Result<vfio::UseReport> {
        const auto inventory = vfio::scan(host);
        if (!inventory) return vfio::UseReport();  // a host without a PCI bus has no fabric
        return fabric_users(host, *inventory, rules, questions);
      },
      [&host, helper](Questions questions) { return libvirt_users(host, helper, questions); },
      [&host, pods, silence](Questions questions) { return pod_users(host, pods, silence, questions); },
      [&host, pods = std::move(pods)](Questions questions) {
        return allocated_users(host, pods, questions);
      }};
  return std::make_unique<CombinedUseProbe>(host, read_by_another_process(host), std::move(sources));
}

Result<vfio::UseReport> ClaimUseProbe::look(std::span<const vfio::UseQuestion> questions) {
  auto report = inner_->look(questions);
  if (!report || questions.empty() || !host_->exists(kClaimRecordFile)) return report;
  const auto record = load_claim_record(*host_);
  if (!record) {
    if (report->blind.empty()) {
      report->blind = record.error().message;
      report->blind_hint = record.error().hint;
    }
    return report;
  }
  for (const vfio::UseQuestion& question : questions) {
    for (const Claim& claim : record->claims) {
      const auto has_it = [&](const ClaimedDevice& device) {
        if (!device.is_whole()) return device.id() == question.device;
        return std::ranges::any_of(
            device.gpus, [&](const ClaimedGpu& gpu) { return gpu.address.text() == question.device; });
      };
      if (std::ranges::any_of(claim.devices, has_it))
        report->users[question.device].push_back({.kind = vfio::DeviceUser::Kind::resource_claim,
                                                  .name = claim.space + "/" + claim.name,
                                                  .what = {}});
    }
  }
  return report;
}

namespace {

bool has(const virt::Domain& domain, const std::string& device) {
  return std::ranges::find(domain.mdev, device) != domain.mdev.end() ||
         std::ranges::find(domain.pci, device, &vfio::PciAddress::text) != domain.pci.end();
}

}  // namespace

Result<vfio::UseReport> libvirt_users(const HostFs& host, const virt::VirtHelper& helper,
                                      std::span<const vfio::UseQuestion> questions,
                                      std::chrono::milliseconds deadline) {
  vfio::UseReport report;
  const bool present = host.exists("run/libvirt/libvirt-sock") || host.exists("run/libvirt/virtqemud-sock");
  if (questions.empty() || !present) return report;
  const auto domains = virt::running_domains(helper, deadline);
  if (!domains) {
    report.unknown.push_back("libvirt: " + domains.error().message);
    return report;
  }
  for (const vfio::UseQuestion& question : questions) {
    for (const virt::Domain& domain : *domains) {
      if (!has(domain, question.device)) continue;
      report.users[question.device].push_back({.kind = vfio::DeviceUser::Kind::virtual_machine,
                                               .name = domain.name,
                                               .pid = domain.pid,
                                               .what = question.device + " as a host device"});
    }
  }
  return report;
}

namespace {

constexpr std::string_view kDriver = "nvidia";
// Use by these modules is seen through the nodes that processes have open, or as a console.
constexpr std::array<std::string_view, 3> kSeen = {"nvidia_drm", "nvidia_modeset", "nvidia_uvm"};

}  // namespace

Result<vfio::UseReport> module_users(const HostFs& host, std::span<const vfio::UseQuestion> questions) {
  vfio::UseReport report;
  const bool any_on_driver = std::ranges::any_of(questions, [&](const vfio::UseQuestion& question) {
    const auto device = std::filesystem::path("sys/bus/pci/devices") / question.device;
    return host.link_name(device / "driver").value_or("") == kDriver;
  });
  if (!any_on_driver) return report;
  const auto users = host.list(std::filesystem::path("sys/module") / kDriver / "holders");
  if (!users) {
    // A driver that is built into the kernel has no `holders`.
    if (!is_gone(users.error()))
      report.unknown.push_back("modules that use nvidia: " + users.error().message);
    return report;
  }
  std::vector<std::string> unseen = *users;
  std::erase_if(unseen,
                [](const std::string& name) { return std::ranges::find(kSeen, name) != kSeen.end(); });
  if (!unseen.empty())
    report.unknown.push_back(fmt::format("which GPU these modules use: {}", fmt::join(unseen, ", ")));
  return report;
}

namespace {

bool is_switch(const vfio::PciFunction& function, const vfio::AcceleratorRules& rules) {
  return rules.on_request.contains(function.pci_class()) && rules.vendors.contains(function.vendor) &&
         !function.is_bridge();
}

bool is_switch_of_the_host(const vfio::PciFunction& function, const vfio::AcceleratorRules& rules) {
  return is_switch(function, rules) && function.driver && !vfio::on_vfio_driver(function);
}

std::size_t count(const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules,
                  bool (*is_one)(const vfio::PciFunction&, const vfio::AcceleratorRules&)) {
  return static_cast<std::size_t>(std::ranges::count_if(
      inventory.functions, [&](const auto& entry) { return is_one(entry.second, rules); }));
}

/// The configuration file that the manager's command line names; absent: none.
/// ABI: `nv-fabricmanager --help`.
std::optional<std::string> named_configuration(const HostFs& host, int manager) {
  const auto words = words_between(command_line(host, manager), '\0');
  for (std::size_t i = 0; i < words.size(); ++i) {
    if ((words[i] == "-c" || words[i] == "--config") && i + 1 < words.size()) return words[i + 1];
    constexpr std::string_view kWithFile = "--config=";
    if (words[i].starts_with(kWithFile)) return words[i].substr(kWithFile.size());
  }
  return std::nullopt;
}

/// FABRIC_MODE of the manager: 0, one system image has the whole fabric; 1 and 2, several VMs share it.
/// Absent: not known. The driver's container has the file below its root.
/// ABI: Fabric Manager user guide, "Fabric Manager Config Options".
std::optional<unsigned> fabric_mode(const HostFs& host, int manager) {
  const auto named = named_configuration(host, manager);
  const std::filesystem::path file = named.value_or("usr/share/nvidia/nvswitch/fabricmanager.cfg");
  bool is_known = !named;  // without the usual file the manager has its defaults
  for (const char* root : {"", "run/nvidia/driver"}) {
    const auto text = host.read_file(std::filesystem::path(root) / file.relative_path());
    if (!text && !is_gone(text.error())) return std::nullopt;
    is_known = is_known || text.has_value();
    for (const std::string& line : words_between(text.value_or(""), '\n')) {
      const std::string_view entry = std::string_view(line).substr(0, line.find('#'));
      const auto sign = entry.find('=');
      if (sign != std::string_view::npos && trimmed(entry.substr(0, sign)) == "FABRIC_MODE")
        return whole_number(trimmed(entry.substr(sign + 1)));
    }
  }
  return is_known ? std::optional(0U) : std::nullopt;
}

// proc/PID/comm holds the first 15 characters of the name. Any pod may run a program of that name, so the one
// of a pod counts in the driver's container alone.
std::optional<int> fabric_manager(const HostFs& host) {
  for (const std::string& name : host.list("proc").value_or(std::vector<std::string>{})) {
    const auto pid = pid_of(name);
    if (!pid) continue;
    const auto process = std::filesystem::path("proc") / name;
    if (host.read_attribute(process / "comm").value_or("") != "nv-fabricmanage") continue;
    if (pod_uid(host.read_file(process / "cgroup").value_or("")).empty() ||
        !runs_below_another_root(host, *pid, {".", "run/nvidia/driver"}))
      return pid;
  }
  return std::nullopt;
}

}  // namespace

vfio::UseReport fabric_users(const HostFs& host, const vfio::Inventory& inventory,
                             const vfio::AcceleratorRules& rules,
                             std::span<const vfio::UseQuestion> questions) {
  vfio::UseReport report;
  const std::size_t switches = count(inventory, rules, is_switch_of_the_host);
  // If PCI shows switches and none has a host driver, the fabric belongs to a service VM. From B200 on,
  // boards have switches that PCI does not show. A running manager proves such a fabric, since it exits where
  // it finds none.
  if (switches == 0 && count(inventory, rules, is_switch) > 0) return report;
  const std::string fabric =
      fmt::format("the NVLink fabric ({})", switches > 0 ? counted(switches, "switch", "switches")
                                                         : "whose switches are no PCI functions");
  const auto pid = fabric_manager(host);
  if (!pid) return report;
  const bool is_shared = fabric_mode(host, *pid) != 0U;  // also if that is not known
  for (const vfio::UseQuestion& question : questions) {
    const auto address = vfio::PciAddress::parse(question.device);
    const vfio::PciFunction* function = address ? inventory.find(*address) : nullptr;
    if (function == nullptr) continue;
    const bool of_host = !vfio::on_vfio_driver(*function) &&
                         (rules.match(*function) || is_switch_of_the_host(*function, rules));
    if (!of_host && !(is_shared && is_switch(*function, rules))) continue;
    report.users[question.device].push_back(
        {.kind = vfio::DeviceUser::Kind::fabric, .name = "nv-fabricmanager", .pid = pid, .what = fabric});
  }
  return report;
}

std::optional<vfio::UseReport> users_of_shared_switches(const HostFs& host, const vfio::Inventory& inventory,
                                                        const vfio::AcceleratorRules& rules) {
  std::vector<vfio::UseQuestion> questions;
  for (const auto& [address, function] : inventory.functions)
    if (is_switch(function, rules) && vfio::on_vfio_driver(function))
      questions.push_back({.device = address.text(), .nodes = {}});
  if (questions.empty()) return std::nullopt;
  vfio::UseReport report = fabric_users(host, inventory, rules, questions);
  if (report.users.empty()) return std::nullopt;
  report.blind = "only a fabric manager was looked for";
  return report;
}

std::optional<Check> fabric_check(const HostFs& host, const vfio::Inventory& inventory,
                                  const vfio::AcceleratorRules& rules) {
  const std::size_t all = count(inventory, rules, is_switch);
  if (all == 0) return std::nullopt;
  Check check{"fabric-manager", kHostSubject,
              "CUDA may fail with error 802 on a GPU of this board, also in a VM, until a fabric manager has "
              "set up the NVSwitches"};
  const std::string switches = counted(all, "NVSwitch", "NVSwitches");
  const std::size_t of_host = count(inventory, rules, is_switch_of_the_host);
  const std::size_t on_vfio = count(inventory, rules, [](const auto& function, const auto& of) {
    return is_switch(function, of) && vfio::on_vfio_driver(function);
  });
  if (const auto pid = fabric_manager(host)) {
    const auto mode = fabric_mode(host, *pid);
    const std::string found =
        fmt::format("nv-fabricmanager (pid {}) runs in {} for {}", *pid,
                    mode ? fmt::format("mode {}", *mode) : "a mode that is not known", switches);
    if (const auto shared = users_of_shared_switches(host, inventory, rules))
      return std::move(check).warned(
          fmt::format("{}; it shares those on vfio ({}) among VMs, so no single VM gets one", found,
                      fmt::join(shared->users | std::views::keys, ", ")),
          "`ferry vfio unbind --device` of these switches, or stop the manager and give a VM all GPUs and "
          "switches of the board");
    return std::move(check).passed(found);
  }
  if (on_vfio == all)
    return std::move(check).passed(switches + " on vfio: the VM that has them runs the fabric manager");
  if (!host.exists("proc/1"))
    return std::move(check).unknown(switches + ", and /proc shows no processes of the host",
                                    "run it on the node or in hostd's container");
  return std::move(check).warned(
      fmt::format("{}, of which {} on a driver of the host and {} on vfio, and no nv-fabricmanager runs",
                  switches, of_host, on_vfio),
      "start nvidia-fabricmanager on the host, or give a VM all GPUs and switches of the board");
}

}  // namespace ferry::host
