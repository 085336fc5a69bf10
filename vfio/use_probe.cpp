// SPDX-License-Identifier: Apache-2.0
#include "vfio/use_probe.h"

#include <fmt/format.h>

#include "common/text/visible_text.h"

namespace ferry::vfio {
namespace {

std::string as_named(const Holder& holder) {
  const auto& [kind, name, pid, what, pod_uid, service, also] = holder;
  using Kind = Holder::Kind;
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
    case Kind::mount:
      who = "the file system mounted at " + name;
      break;
    case Kind::swap:
      return fmt::format("{} is swap of the host", what);
    case Kind::claim:
      return fmt::format("{} is claimed in the kernel{}", what, name.empty() ? "" : " by " + name);
    case Kind::network_link:
      return name.empty() ? "a network link of it is in another network namespace"
                          : fmt::format("network link {} is up", name);
    case Kind::boot_display:
      return "the host's boot display";
    case Kind::framebuffer:
      return fmt::format("the firmware's framebuffer {} lies in its memory", name);
    case Kind::fabric:
      who = "fabric manager " + name;
      break;
    case Kind::console:
      who = fmt::format("kernel module {} (its console)", name);
      break;
  }
  if (pid) who += fmt::format(" (pid {})", *pid);
  if (!pod_uid.empty()) who += fmt::format(" in pod {}", pod_uid);
  if (!service.empty()) who += " of " + service;
  return fmt::format("{} holds {}", who, what);
}

}  // namespace

std::string Holder::text() const {
  return visible_line(as_named(*this));
}

std::string_view Holder::remedy() const {
  switch (kind) {
    case Kind::process:
      return "end what holds it first";
    case Kind::virtual_machine:
      return "stop the VM first";
    case Kind::pod:
      return "delete the pod first";
    case Kind::mount:
      return "unmount it first";
    case Kind::swap:
      return "take it out of use first (swapoff)";
    case Kind::claim:
      return "end what lies on it first: a volume group, a RAID, a pool, a file system, an export";
    case Kind::network_link:
      if (name.empty()) return "give the link back first: end the container or namespace that has it";
      return "take the link down first (ip link set dev NAME down), if nothing needs it";
    case Kind::boot_display:
    case Kind::framebuffer:
      return "`ferry vfio bind --force` moves it all the same: the screen then shows nothing more";
    case Kind::fabric:
      return "stop the fabric manager first, with everything that uses the fabric";
    case Kind::console:
      return "unload the module first (modprobe -r), if nothing needs its screen";
  }
  return {};
}

std::string_view text(Holder::Kind kind) {
  switch (kind) {
    case Holder::Kind::process:
      return "process";
    case Holder::Kind::virtual_machine:
      return "virtual_machine";
    case Holder::Kind::pod:
      return "pod";
    case Holder::Kind::mount:
      return "mount";
    case Holder::Kind::swap:
      return "swap";
    case Holder::Kind::claim:
      return "claim";
    case Holder::Kind::network_link:
      return "network_link";
    case Holder::Kind::boot_display:
      return "boot_display";
    case Holder::Kind::framebuffer:
      return "framebuffer";
    case Holder::Kind::fabric:
      return "fabric";
    case Holder::Kind::console:
      return "console";
  }
  return {};
}

std::span<const Holder> UseReport::of(const std::string& device) const {
  const auto found = holders.find(device);
  if (found == holders.end()) return {};
  return found->second;
}

std::string_view UseReport::blind_to(const std::string& device) const {
  const auto found = unseen.find(device);
  return blind.empty() && found != unseen.end() ? found->second : blind;
}

}  // namespace ferry::vfio
