// SPDX-License-Identifier: Apache-2.0
// Checks Kata's effective configuration, as far as GPUs need it.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kata-manager/configuration/kata_parts.h"

namespace ferry::kata {
namespace {

using Wrong = std::optional<std::string>;

// Hypervisors that plug VFIO devices into PCIe ports before a VM starts.
constexpr std::array<std::string_view, 3> kTakeDevices = {kQemu, "clh", "cloud-hypervisor"};

Wrong wrong_type(const TomlTable& settings) {
  for (const char* key : {"kernel", "image", "initrd", "firmware", "kernel_params", "machine_type",
                          "cold_plug_vfio", "hot_plug_vfio", "shared_fs"}) {
    const TomlValue* value = find(settings, {key});
    if (value != nullptr && value->string() == nullptr) return fmt::format("{} has to be a string", key);
  }
  for (const char* key : {"pcie_root_port", "pcie_switch_port", "default_memory"}) {
    const TomlValue* value = find(settings, {key});
    if (value == nullptr) continue;
    if (value->integer() == nullptr || *value->integer() < 0)
      return fmt::format("{} has to be a whole number", key);
  }
  for (const char* key : {"confidential_guest", "sev_snp_guest"}) {
    const TomlValue* value = find(settings, {key});
    if (value != nullptr && value->boolean() == nullptr)
      return fmt::format("{} has to be true or false", key);
  }
  const TomlValue* annotations = find(settings, {"enable_annotations"});
  if (annotations != nullptr && annotations->array() == nullptr) return "enable_annotations has to be a list";
  return std::nullopt;
}

Wrong wrong_ports(const TomlTable& settings) {
  constexpr std::array<std::string_view, 4> kPorts = {kNoPort, "root-port", "switch-port", "bridge-port"};
  std::vector<std::string> used;
  for (const char* key : {"cold_plug_vfio", "hot_plug_vfio"}) {
    const std::string port = text_at(settings, {key});
    if (!port.empty() && std::ranges::find(kPorts, port) == kPorts.end())
      return fmt::format("{} is '{}', which is none of {}", key, port, fmt::join(kPorts, ", "));
    if (!port.empty() && port != kNoPort) used.push_back(fmt::format("{} = {}", key, port));
  }
  if (used.size() != 1) {
    return used.empty() ? "neither cold_plug_vfio nor hot_plug_vfio: no GPU would reach a pod"
                        : fmt::format("both {}: Kata takes one of them", fmt::join(used, " and "));
  }
  for (const char* key : {"pcie_root_port", "pcie_switch_port"}) {
    const std::int64_t ports = integer_at(settings, {key}).value_or(0);
    if (ports > kMostPorts) return fmt::format("{} is {}, and Kata makes {} at most", key, ports, kMostPorts);
  }
  return std::nullopt;
}

Wrong wrong_kind(const KataClass& kata, const TomlTable& settings, const std::string& hypervisor) {
  const bool confidential = is_true_at(settings, {"confidential_guest"});
  const bool snp = is_true_at(settings, {"sev_snp_guest"});
  if (!is_confidential(kata.kind)) {
    if (!confidential && !snp) return std::nullopt;
    return fmt::format("it is for confidential VMs, and the class is of kind {}", text(kata.kind));
  }
  if (!confidential)
    return fmt::format("confidential_guest is not true, and the class is of kind {}", text(kata.kind));
  if (hypervisor != kQemu)
    return fmt::format("hypervisor {}: confidential VMs with GPUs are QEMU's", hypervisor);
  if (snp != (kata.kind == KataKind::snp))
    return fmt::format("sev_snp_guest is {}, and the class is of kind {}", snp, text(kata.kind));
  return std::nullopt;
}

}  // namespace

Result<std::string> hypervisor_of(const TomlTable& configuration) {
  const TomlTable* all = find_table(configuration, {kHypervisor});
  std::vector<std::string> names;
  if (all != nullptr) {
    for (const auto& [name, settings] : *all) {
      if (settings.table() == nullptr)
        return fail(Errc::invalid_config, fmt::format("hypervisor.{} is no table", name));
      names.push_back(name);
    }
  }
  if (names.size() != 1) {
    return fail(Errc::invalid_config,
                names.empty() ? std::string("it has no hypervisor")
                              : fmt::format("it has {} hypervisors, {}, and Kata takes one", names.size(),
                                            fmt::join(names, ", ")),
                "a configuration of Kata's has one table [hypervisor.NAME], [hypervisor.qemu] say");
  }
  if (std::ranges::find(kTakeDevices, names.front()) == kTakeDevices.end()) {
    return fail(Errc::invalid_config, fmt::format("hypervisor {} is not known to take GPUs", names.front()),
                fmt::format("these are: {}", fmt::join(kTakeDevices, ", ")));
  }
  return names.front();
}

const TomlTable& settings_of(const TomlTable& configuration, std::string_view hypervisor) {
  static const TomlTable kNone;
  const TomlTable* const found = find_table(configuration, {kHypervisor, hypervisor});
  return found == nullptr ? kNone : *found;
}

std::vector<std::filesystem::path> host_files_of(const TomlTable& settings) {
  std::vector<std::filesystem::path> out;
  for (const char* key : {"path", "kernel", "image", "initrd", "firmware", "firmware_volume"}) {
    const std::filesystem::path file = text_at(settings, {key});
    if (file.is_absolute()) out.push_back(file);
  }
  const TomlValue* images = find(settings, {"guest_extension_images"});
  if (images == nullptr || images->array() == nullptr) return out;
  for (const TomlValue& image : *images->array()) {
    if (image.table() == nullptr) continue;
    const std::filesystem::path path = text_at(*image.table(), {"path"});
    if (path.is_absolute()) out.push_back(path);
  }
  return out;
}

std::optional<Error> wrong_for_shim(const KataShim& shim, const TomlTable& effective,
                                    const std::string& hypervisor,
                                    const std::filesystem::path& pod_resources) {
  const auto wrong = [](Errc code, std::string message, std::string hint = {}) {
    return Error{.code = code, .message = std::move(message), .hint = std::move(hint)};
  };
  const TomlTable& settings = settings_of(effective, hypervisor);
  const std::string cold = text_at(settings, {"cold_plug_vfio"});
  if (!pod_resources.empty() && !shim.asks_kubelet() && !cold.empty() && cold != kNoPort) {
    return wrong(
        Errc::unsupported,
        fmt::format(
            "{} does not ask the kubelet which devices a pod has: with cold_plug_vfio = {} a pod gets none",
            shim.text(), cold),
        fmt::format("install Kata 3.24.0 or later (of runtime-rs 3.31.0); or plug hot, `configuration: "
                    "{{hypervisor: {{{}: {{cold_plug_vfio: no-port, hot_plug_vfio: root-port}}}}}}`; or say "
                    "`podResources: \"\"` and name devices by annotations cdi.k8s.io/…",
                    hypervisor));
  }
  if (runtime_of(shim, effective) != ShimRuntime::rust) return std::nullopt;
  if (shim.refuses_settings_of_go() && find(effective, {"agent", "kata", "dial_timeout"}) != nullptr) {
    return wrong(
        Errc::invalid_config,
        fmt::format("agent.kata.dial_timeout: {} ends with it, since it is a setting of Kata's Go runtime",
                    shim.text()));
  }
  if (integer_at(settings, {"pcie_root_port"}).value_or(0) > 0 &&
      integer_at(settings, {"pcie_switch_port"}).value_or(0) > 0) {
    return wrong(
        Errc::invalid_config,
        fmt::format(
            "hypervisor.{}: pcie_root_port and pcie_switch_port are both given: runtime-rs takes one of them",
            hypervisor));
  }
  return std::nullopt;
}

std::optional<std::string> wrong_in(const KataClass& kata, const TomlTable& effective,
                                    const std::string& hypervisor) {
  const TomlTable& settings = settings_of(effective, hypervisor);
  if (auto wrong = wrong_type(settings)) return wrong;
  if (auto wrong = wrong_kind(kata, settings, hypervisor)) return wrong;
  if (auto wrong = wrong_ports(settings)) return wrong;

  const bool image = !text_at(settings, {"image"}).empty();
  const bool initrd = !text_at(settings, {"initrd"}).empty();
  if (text_at(settings, {"kernel"}).empty()) return "kernel is not set";
  if (image && initrd) return "image and initrd are both set: Kata takes one of them";
  if (!image && !initrd) return "neither image nor initrd is set";
  const std::string machine = text_at(settings, {"machine_type"});
  if (hypervisor == kQemu && !machine.empty() && machine != "q35" && machine != "virt")
    return fmt::format("machine_type is '{}', which has no PCIe ports; q35 and virt have", machine);
  return std::nullopt;
}

}  // namespace ferry::kata
