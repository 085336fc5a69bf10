// SPDX-License-Identifier: Apache-2.0
// What Ferry says in Kata's configuration: of what NVIDIA's GPU configurations of Kata 4.1.0 have, what a GPU
// does not reach a pod without.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kata-manager/kata_parts.h"
#include "kata-manager/runtime_class.h"

namespace ferry {
namespace {

constexpr const char* kColdPlug = "cold_plug_vfio";
constexpr const char* kHotPlug = "hot_plug_vfio";
constexpr const char* kKernelParams = "kernel_params";

// Seconds. The GPU's memory is mapped and its driver loaded in the guest before a container is there.
constexpr std::int64_t kStartSeconds = 1200;

std::vector<std::string_view> words_of(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

void set(TomlTable& table, const std::string& key, const auto& value) {
  table[key].value = value;
}

// Artifacts name their files where they were made. One that is not among them is somewhere else on purpose.
void set_paths(const KataBase& base, const HypervisorSettings& was, TomlTable& out) {
  for (const char* key : {"kernel", "image", "initrd", "firmware", "firmware_volume"}) {
    const std::string name = std::filesystem::path(was.text(key)).filename();
    if (name.empty() || std::ranges::find(base.files, name) == base.files.end()) continue;
    set(out, key, (base.folder / name).string());
  }
}

// Kata makes as many ports as it finds devices when a VM starts, and at least as many as are said here. What
// is confidential has none too many: shipped so.
void set_ports(const KataClass& kata, const KataDevices& devices, const HypervisorSettings& was,
               TomlTable& out) {
  const std::string cold = was.text(kColdPlug);
  if (cold.empty() || cold == kNoPort) set(out, kColdPlug, std::string("root-port"));
  if (!was.text(kHotPlug).empty()) set(out, kHotPlug, std::string(kNoPort));
  if (is_confidential(kata.kind)) return;
  const std::string key = cold == "switch-port" ? "pcie_switch_port" : "pcie_root_port";
  const std::int64_t wanted =
      std::min<std::int64_t>(std::int64_t{devices.gpus} + devices.switches, kMostPorts);
  set(out, key, std::max(was.number(key).value_or(0), wanted));
}

void set_kernel_parameters(const KataClass& kata, const HypervisorSettings& was, TomlTable& out) {
  std::string parameters = was.text(kKernelParams);
  const auto add = [&](const std::string& word) { parameters += (parameters.empty() ? "" : " ") + word; };
  for (const std::string& option : missing_pci_options(parameters)) add("pci=" + option);
  constexpr std::string_view kReady = "nvrc.smi.srs=";
  const auto words = words_of(parameters, " \t");
  const bool says_ready =
      std::ranges::any_of(words, [&](std::string_view word) { return word.starts_with(kReady); });
  // A GPU in confidential mode does nothing before it is told that it was found trustworthy.
  if (is_confidential(kata.kind) && !says_ready) add(std::string(kReady) + "1");
  set(out, kKernelParams, parameters);
}

void set_annotations(const KataClass& kata, const HypervisorSettings& was, TomlTable& out) {
  constexpr const char* kKey = "enable_annotations";
  if (kata.annotations.empty()) return;
  TomlArray allowed;
  if (const TomlValue* list = was.find(kKey); list != nullptr && list->array() != nullptr)
    allowed = *list->array();
  for (const std::string& name : kata.annotations) {
    TomlValue value;
    value.value = name;
    if (std::ranges::find(allowed, value) == allowed.end()) allowed.push_back(std::move(value));
  }
  set(out, kKey, allowed);
}

void set_confidential(const KataClass& kata, TomlTable& out) {
  if (!is_confidential(kata.kind)) return;
  set(out, "confidential_guest", true);
  if (kata.kind == KataKind::snp) set(out, "sev_snp_guest", true);
  set(out, "shared_fs", std::string("none"));
}

void set_at_least(TomlTable& table, const std::string& key, const TomlValue* was, std::int64_t least) {
  const std::int64_t* number = was == nullptr ? nullptr : was->integer();
  set(table, key, std::max(number == nullptr ? 0 : *number, least));
}

}  // namespace

std::vector<std::string> missing_pci_options(std::string_view parameters) {
  std::vector<std::string_view> given;
  constexpr std::string_view kPci = "pci=";
  for (const std::string_view word : words_of(parameters, " \t")) {
    if (!word.starts_with(kPci)) continue;
    const auto options = words_of(word.substr(kPci.size()), ",");
    given.insert(given.end(), options.begin(), options.end());
  }
  std::vector<std::string> out;
  for (const std::string_view needed : {"realloc", "nocrs", "assign-busses"}) {
    // "realloc=off": somebody decided.
    const bool there = std::ranges::any_of(
        given, [&](std::string_view option) { return option.substr(0, option.find('=')) == needed; });
    if (!there) out.emplace_back(needed);
  }
  return out;
}

TomlTable ready_settings(const KataClass& kata, const KataBase& base, const KataDevices& devices,
                         const std::filesystem::path& pod_resources, const TomlTable& before,
                         const std::string& hypervisor) {
  const HypervisorSettings was(before, hypervisor);
  TomlTable out;
  TomlTable& settings = table_at(out, {kHypervisor, hypervisor});
  set_paths(base, was, settings);
  set_ports(kata, devices, was, settings);
  if (hypervisor == kQemu) set_kernel_parameters(kata, was, settings);
  set_annotations(kata, was, settings);
  set_confidential(kata, settings);
  if (!was.number("default_memory")) {
    set(settings, "default_memory", static_cast<std::int64_t>(kGuestMemoryMib));
  }
  TomlTable& runtime = table_at(out, {"runtime"});
  set(runtime, "vfio_mode", std::string("guest-kernel"));
  set(runtime, "sandbox_cgroup_only", true);
  set(runtime, "static_sandbox_resource_mgmt", true);
  set(runtime, "pod_resource_api_sock", pod_resources.string());
  constexpr const char* kCreate = "create_container_timeout";
  set_at_least(runtime, kCreate, find(before, {"runtime", kCreate}), kStartSeconds);
  constexpr const char* kDial = "dial_timeout";
  set_at_least(table_at(out, {"agent", "kata"}), kDial, find(before, {"agent", "kata", kDial}),
               kStartSeconds);
  return out;
}

}  // namespace ferry
