// SPDX-License-Identifier: Apache-2.0
#include "vfio/use_probe.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/text/text.h"
#include "common/text/visible_text.h"
#include "common/text/words.h"

namespace ferry::vfio {
namespace {

std::string as_named(const DeviceUser& user) {
  const auto& [kind, name, pid, what, pod_uid, service, closes, also] = user;
  using Kind = DeviceUser::Kind;
  std::string who;
  switch (kind) {
    case Kind::process:
      who = "process " + name;
      break;
    case Kind::virtual_machine:
      who = "VM " + name;
      break;
    case Kind::pod:
      who = "pod " + name;
      break;
    case Kind::attached:
      return name + " is attached to it";
    case Kind::boot_display:
      return "the host's boot display";
    case Kind::framebuffer:
      return fmt::format("the firmware's framebuffer {} lies in its memory", name);
    case Kind::fabric:
      who = "fabric manager " + name;
      break;
    case Kind::console:
      who = fmt::format("kernel module {} (modeset)", name);
      break;
    case Kind::resource_claim:
      return fmt::format("ResourceClaim {} has it", name);
  }
  if (pid) who += fmt::format(" (pid {})", *pid);
  if (!pod_uid.empty()) who += fmt::format(" in pod {}", pod_uid);
  if (!service.empty()) who += " of " + service;
  return fmt::format("{} holds {}", who, what);
}

}  // namespace

std::optional<DeviceNumber> parse_device_number(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto major = whole_number(text.substr(0, colon));
  const auto minor = whole_number(text.substr(colon + 1));
  if (!major || !minor) return std::nullopt;
  return DeviceNumber{.major = *major, .minor = *minor};
}

std::string DeviceUser::text() const {
  return visible_line(as_named(*this));
}

std::string_view DeviceUser::remedy() const {
  switch (kind) {
    case Kind::process:
      return "end what holds it first";
    case Kind::virtual_machine:
      return "stop the VM first";
    case Kind::pod:
      return "delete the pod first";
    case Kind::attached:
      return "end its use and unplug it first, or unbind its USB driver";
    case Kind::boot_display:
    case Kind::framebuffer:
      return "`ferry vfio bind --force` binds it all the same: the screen then shows nothing more";
    case Kind::fabric:
      return "stop the fabric manager first, with everything that uses the fabric";
    case Kind::console:
      return "unload the module first (modprobe -r), if nothing needs its screen";
    case Kind::resource_claim:
      return "delete the pod or the VM of the claim first";
  }
  return {};
}

std::string_view text(DeviceUser::Kind kind) {
  using Kind = DeviceUser::Kind;
  constexpr Words<Kind, 9> kWords = {{{"process", Kind::process},
                                      {"virtual_machine", Kind::virtual_machine},
                                      {"pod", Kind::pod},
                                      {"attached_device", Kind::attached},
                                      {"boot_display", Kind::boot_display},
                                      {"framebuffer", Kind::framebuffer},
                                      {"fabric", Kind::fabric},
                                      {"console", Kind::console},
                                      {"resource_claim", Kind::resource_claim}}};
  return word_for(kWords, kind);
}

std::span<const DeviceUser> UseReport::of(const std::string& device) const {
  const auto found = users.find(device);
  if (found == users.end()) return {};
  return found->second;
}

std::string_view UseReport::blind_to(const std::string& device) const {
  const auto found = unseen.find(device);
  return blind.empty() && found != unseen.end() ? found->second : blind;
}

std::string_view UseReport::remedy_of_blindness() const {
  if (blind.empty() || !blind_hint.empty()) return blind_hint;
  return "run as root in the host's PID namespace, with the capabilities that SECURITY.md names";
}

// The device nodes that lead to a function: those below its directory in sysfs, and its group's.

namespace {

void add_node(const HostFs& host, const std::filesystem::path& directory, const std::string& name,
              UseQuestion& question) {
  const auto text = host.read_attribute(directory / "dev");
  if (!text) return;
  const auto number = parse_device_number(*text);
  if (!number) return;
  // The path does not show the kind: .../6:0:0:0/block/sdb, but .../nvme/nvme0/nvme0n1.
  const bool block = host.link_name(directory / "subsystem").value_or("") == "block";
  const auto known = [&](const DeviceNode& node) { return node.number == *number && node.block == block; };
  if (std::ranges::any_of(question.nodes, known)) return;
  question.nodes.push_back({.name = name, .number = *number, .block = block});
  if (block && !host.exists(directory / "partition")) question.attached.push_back("disk " + name);
}

// Walks down from a function's own directory: .../drm/card0/dev, .../sound/card1/pcmC1D3p/dev,
// .../usb3/3-1/... Links lead out of it (driver, subsystem, physfn), and other PCI functions are not part of
// it. A folder `net` is of a network adapter, also if it looks empty: its link is then in another network
// namespace.
void collect_nodes(const HostFs& host, const std::filesystem::path& directory, int depth,
                   UseQuestion& question) {
  const auto entries = host.entries(directory);
  if (!entries) return;
  for (const auto& [name, is_directory] : *entries) {
    if (name == "dev") {
      constexpr std::string_view kName = "DEVNAME=";
      const std::string uevent = host.read_attribute(directory / "uevent").value_or("");
      const auto at = uevent.find(kName);
      const std::string node =
          at == std::string::npos
              ? directory.filename().string()
              : uevent.substr(at + kName.size(), uevent.find('\n', at) - at - kName.size());
      add_node(host, directory, "/dev/" + node, question);
      continue;
    }
    if (depth == 0 || !is_directory || PciAddress::parse(name)) continue;
    if (name == "net")
      question.attached.push_back("network adapter " + directory.filename().string());
    else
      collect_nodes(host, directory / name, depth - 1, question);
  }
}

}  // namespace

std::vector<UseQuestion> use_questions(const HostFs& host, const Inventory& inventory,
                                       const std::vector<PciAddress>& addresses) {
  // A partition of a disk behind five USB hubs:
  // usb3/3-1/3-1.1/.../3-1.1.1.1.1.1:1.0/host6/target/lun/block/sdb/sdb1.
  constexpr int kDeepest = 16;
  std::vector<UseQuestion> questions;
  for (const PciAddress& address : addresses) {
    const PciFunction* function = inventory.find(address);
    if (function == nullptr) continue;
    UseQuestion question{.device = address.text(), .nodes = {}};
    collect_nodes(host, sysfs_path(address), kDeepest, question);
    if (function->iommu_group && on_vfio_driver(*function)) {
      for (const std::string& name : group_node_names(*function->iommu_group))
        add_node(host, std::filesystem::path("sys/class/vfio") / name, "/dev/vfio/" + name, question);
    }
    questions.push_back(std::move(question));
  }
  return questions;
}

}  // namespace ferry::vfio
