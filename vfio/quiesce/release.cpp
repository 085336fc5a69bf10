// SPDX-License-Identifier: Apache-2.0
#include "vfio/quiesce/release.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include <fmt/format.h>

#include "common/text/text.h"

namespace ferry::vfio {
namespace {

constexpr std::string_view kService = ".service";
constexpr std::string_view kNone = "none";

}  // namespace

std::string Releasable::quiesce_text() const {
  switch (kind) {
    case Kind::persistence:
      return "switch persistence of " + name + " off";
    case Kind::service:
      return "stop " + name;
    case Kind::module:
      return "unload module " + name;
  }
  return {};
}

std::string Releasable::resume_text() const {
  switch (kind) {
    case Kind::persistence:
      return "switch persistence of " + name + " on again";
    case Kind::service:
      return "start " + name;
    case Kind::module:
      return "load module " + name + " again";
  }
  return {};
}

std::set<std::string> default_release() {
  return {kPersistenced};
}

bool runs_others(std::string_view unit) {
  if (unit.ends_with(kService)) unit.remove_suffix(kService.size());
  // Stopping libvirt-guests shuts every VM down; without virtlogd a VM's console stops.
  constexpr std::array kBeginnings = {"libvirt",
                                      "qemu",
                                      "virtqemu",
                                      "virtlog",
                                      "virtlock",
                                      "virtproxy",
                                      "virtlxc",
                                      "virtxen",
                                      "virtvbox",
                                      "virtvz",
                                      "kvm",
                                      "xen",
                                      "containerd",
                                      "crio",
                                      "cri-o",
                                      "cri-docker",
                                      "docker",
                                      "podman",
                                      "kubelet",
                                      "k3s",
                                      "rke2",
                                      "k0s",
                                      "microk8s",
                                      "snap.microk8s",
                                      "lxc",
                                      "lxd",
                                      "incus",
                                      "machines",
                                      "systemd-machined",
                                      "systemd-nspawn"};
  return std::ranges::any_of(kBeginnings, [&](std::string_view begin) { return unit.starts_with(begin); });
}

Result<std::vector<std::string>> services_named(std::string_view name) {
  // DCGM's service has had two names; a user who knows only its process gives that name.
  if (name == "nv-hostengine") return std::vector<std::string>{"nvidia-dcgm.service", "dcgm.service"};
  // The kernel takes either spelling of a module's name and shows this one.
  if (name == kConsoleModule || name == "nvidia-drm") return std::vector<std::string>{kConsoleModule};
  // Units of other kinds have no device open.
  constexpr std::array kOtherKinds = {".socket", ".target", ".slice", ".scope",     ".mount",
                                      ".device", ".swap",   ".path",  ".automount", ".timer"};
  const bool is_other_kind =
      std::ranges::any_of(kOtherKinds, [&](std::string_view kind) { return name.ends_with(kind); });
  constexpr std::size_t kLongest = 255;
  std::string unit(name);
  if (!unit.ends_with(kService)) unit += kService;
  // Characters of a unit's name: systemd.unit(5).
  const bool has_its_letters = std::ranges::all_of(unit, [](char c) {
    return is_alphanumeric(c) || std::string_view(":-_.\\@").find(c) != std::string_view::npos;
  });
  if (unit.size() == kService.size() || unit.size() > kLongest || !has_its_letters || is_other_kind) {
    return fail(
        Errc::usage, fmt::format("'{}' is not the name of a service", name),
        "name a systemd service as `systemctl` does (nvidia-dcgm), or nvidia_drm, which has GPUs open "
        "for screens");
  }
  if (runs_others(unit)) {
    return fail(Errc::usage, fmt::format("{} is never stopped: it runs VMs or containers", unit),
                "stop the VM or delete the pod that has the device");
  }
  return std::vector{std::move(unit)};
}

Result<std::set<std::string>> release_list(const std::vector<std::string>& names) {
  const bool none = std::ranges::find(names, kNone) != names.end();
  std::set<std::string> out = none ? std::set<std::string>{} : default_release();
  for (const std::string& name : names) {
    if (name == kNone) continue;
    auto units = services_named(name);
    if (!units) return fail(std::move(units).error());
    out.insert(units->begin(), units->end());
  }
  return out;
}

std::optional<Releasable> may_release(const DeviceUser& user, const std::set<std::string>& list,
                                      const PciAddress& device) {
  if (user.kind == DeviceUser::Kind::console) {
    if (user.name != kConsoleModule || !list.contains(user.name)) return std::nullopt;
    return Releasable{.kind = Releasable::Kind::module, .name = user.name};
  }
  if (user.kind == DeviceUser::Kind::process && user.pod_uid.empty() && !user.service.empty() &&
      list.contains(user.service) && !runs_others(user.service)) {
    return Releasable{.kind = Releasable::Kind::service, .name = user.service};
  }
  if (user.closes_on_request && list.contains(kPersistenced))
    return Releasable{.kind = Releasable::Kind::persistence, .name = device.text()};
  return std::nullopt;
}

std::string remedy_by_release(const DeviceUser& user) {
  if (user.kind == DeviceUser::Kind::console) {
    return fmt::format(
        "if nothing needs its screen, let it be unloaded meanwhile: --release {0} (in a "
        "policy: release: [{0}])",
        user.name);
  }
  if (user.closes_on_request)
    return fmt::format("let Ferry ask it to close the GPU: --release {0} (in a policy: release: [{0}])",
                       kPersistenced);
  if (user.service.empty() || runs_others(user.service)) return std::string(user.remedy());
  return fmt::format(
      "stop it first, or let it be stopped meanwhile: --release {0} (in a policy: release: [{0}])",
      user.service);
}

}  // namespace ferry::vfio
