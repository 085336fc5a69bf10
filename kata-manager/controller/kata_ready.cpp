// SPDX-License-Identifier: Apache-2.0
// The settings that Ferry adds to Kata's configuration: the part of NVIDIA's GPU configurations in Kata
// 4.1.0 without which a GPU does not reach a pod.
#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/classes/runtime_class.h"
#include "kata-manager/configuration/kata_parts.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {
namespace {

constexpr const char* kColdPlug = "cold_plug_vfio";
constexpr const char* kHotPlug = "hot_plug_vfio";
constexpr const char* kKernelParams = "kernel_params";

// Seconds. A start takes long: the guest maps the GPU's memory and loads its driver first.
constexpr std::int64_t kStartSeconds = 1200;

void set(TomlTable& table, const std::string& key, const auto& value) {
  table[key].value = value;
}

/// The artifact's file with the name that a path ends in: at its top, else the only one in the folders of
/// Kata's own build, else the only one in its other folders.
std::optional<std::filesystem::path> file_of(const KataBase& base, const std::filesystem::path& named) {
  const std::string name = named.filename();
  if (name.empty()) return std::nullopt;
  std::vector<std::filesystem::path> usual;
  std::vector<std::filesystem::path> elsewhere;
  for (const std::string& path : base.files) {
    const std::filesystem::path file(path);
    if (file.filename() != name) continue;
    const auto folder = file.parent_path();
    if (folder.empty()) return base.folder / file;
    (folder == kKataDefaults || folder == kKataFiles ? usual : elsewhere).push_back(file);
  }
  const auto& found = usual.empty() ? elsewhere : usual;
  if (found.size() != 1) return std::nullopt;
  return base.folder / found.front();
}

void set_kernel_parameters(const KataClass& kata, const TomlTable& was, TomlTable& out) {
  std::string parameters = text_at(was, {kKernelParams});
  const auto add = [&](const std::string& word) { parameters += (parameters.empty() ? "" : " ") + word; };
  for (const std::string& option : missing_pci_options(parameters)) add("pci=" + option);
  constexpr std::string_view kReady = "nvrc.smi.srs=";
  const auto words = words_of(parameters);
  const bool says_ready =
      std::ranges::any_of(words, [&](std::string_view word) { return word.starts_with(kReady); });
  // A GPU in confidential mode does no work until its ready state is set; nvrc.smi.srs=1 makes NVRC set it.
  if (is_confidential(kata.kind) && !says_ready) add(std::string(kReady) + "1");
  set(out, kKernelParams, parameters);
}

void set_annotations(const KataClass& kata, const TomlTable& was, TomlTable& out) {
  constexpr const char* kKey = "enable_annotations";
  if (kata.annotations.empty()) return;
  TomlArray allowed;
  if (const TomlValue* list = find(was, {kKey}); list != nullptr && list->array() != nullptr)
    allowed = *list->array();
  for (const std::string& name : kata.annotations) {
    TomlValue value;
    value.value = name;
    if (std::ranges::find(allowed, value) == allowed.end()) allowed.push_back(std::move(value));
  }
  set(out, kKey, allowed);
}

/// Sets `key` to its present value, or to `least` if that is more.
void set_at_least(TomlTable& out, const TomlTable& before, std::initializer_list<std::string_view> tables,
                  const std::string& key, std::int64_t least) {
  const TomlTable* was = find_table(before, tables);
  const auto number = was == nullptr ? std::nullopt : integer_at(*was, {key});
  set(table_at(out, tables), key, std::max(number.value_or(0), least));
}

void set_timeouts(ShimRuntime runtime, const TomlTable& before, TomlTable& out) {
  constexpr const char* kCreate = "create_container_timeout";
  if (runtime == ShimRuntime::go) {
    set_at_least(out, before, {"runtime"}, kCreate, kStartSeconds);
    set_at_least(out, before, {"agent", "kata"}, "dial_timeout", kStartSeconds);
    return;
  }
  constexpr std::int64_t kMilliseconds = 1000;
  set_at_least(out, before, {"agent", "kata"}, kCreate, kStartSeconds);
  // runtime-rs's limit is `reconnect_timeout_ms`; its `dial_timeout_ms` is the pause between two attempts.
  set_at_least(out, before, {"agent", "kata"}, "reconnect_timeout_ms", kStartSeconds * kMilliseconds);
}

}  // namespace

std::string with_extension_images_of(const KataBase& base) {
  std::string out;
  bool in_image = false;
  for (std::string_view rest = base.text; !rest.empty();) {
    const std::size_t length = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view whole = rest.substr(0, length);
    rest.remove_prefix(length);
    const std::string_view line = whole.substr(std::min(whole.find_first_not_of(" \t"), whole.size()));
    if (line.starts_with('[')) {
      const std::string_view header = line.substr(0, line.find("]]") + 2);
      in_image = header.starts_with("[[hypervisor.") && header.ends_with(".guest_extension_images]]");
    }
    const auto setting =
        in_image && line.starts_with("path") ? parse_toml(line, base.file) : Result<TomlTable>(TomlTable());
    const std::string path = setting ? text_at(*setting, {"path"}) : "";
    const auto file = path.empty() ? std::nullopt : file_of(base, path);
    if (file) {
      out += toml_text({}, {{"path", {file->string()}}});
    } else {
      out += whole;
    }
  }
  return out;
}

ShimRuntime runtime_of(const KataShim& shim, const TomlTable& configuration) {
  if (shim.runtime) return *shim.runtime;
  return runtime_of_configuration(configuration).value_or(ShimRuntime::go);
}

bool keeps_hot_plug(const KataShim& shim, const std::filesystem::path& pod_resources, const TomlTable& said) {
  const std::string hot = text_at(said, {kHotPlug});
  return !pod_resources.empty() && !shim.asks_kubelet() && !hot.empty() && hot != kNoPort;
}

std::vector<std::string> missing_pci_options(std::string_view parameters) {
  std::vector<std::string> given;
  constexpr std::string_view kPci = "pci=";
  for (const std::string_view word : words_of(parameters)) {
    if (!word.starts_with(kPci)) continue;
    std::ranges::move(words_between(word.substr(kPci.size()), ','), std::back_inserter(given));
  }
  std::vector<std::string> out;
  for (const std::string_view needed : {"realloc", "nocrs", "assign-busses"}) {
    // `realloc=off` counts as given: an administrator chose it.
    const bool there = std::ranges::any_of(
        given, [&](const std::string& option) { return option.substr(0, option.find('=')) == needed; });
    if (!there) out.emplace_back(needed);
  }
  return out;
}

TomlTable ready_settings(const KataClass& kata, const KataBase& base, const KataDevices& devices,
                         const std::filesystem::path& pod_resources, const TomlTable& before,
                         const std::string& hypervisor) {
  const TomlTable& was = settings_of(before, hypervisor);
  TomlTable out;
  TomlTable& settings = table_at(out, {kHypervisor, hypervisor});
  // A shipped configuration has the paths of its build host. A path without a file in the artifact stays as
  // it is.
  for (const char* key : {"kernel", "image", "initrd", "firmware", "firmware_volume"})
    if (const auto file = file_of(base, text_at(was, {key}))) set(settings, key, file->string());

  TomlTable with_class = before;
  merge_over(with_class, kata.configuration);
  const bool plugs_hot = keeps_hot_plug(base.shim, pod_resources, settings_of(with_class, hypervisor));
  const std::string cold = text_at(was, {kColdPlug});
  if (!plugs_hot && (cold.empty() || cold == kNoPort)) set(settings, kColdPlug, std::string("root-port"));
  if (!plugs_hot && !text_at(was, {kHotPlug}).empty()) set(settings, kHotPlug, std::string(kNoPort));
  // Kata makes one port for each device when a VM starts, and at least the configured number. Confidential
  // classes keep the artifact's number of ports.
  if (!is_confidential(kata.kind)) {
    const std::string key = cold == "switch-port" ? "pcie_switch_port" : "pcie_root_port";
    const std::int64_t needed = std::min<std::int64_t>(devices.ports(), kMostPorts);
    set(settings, key, std::max(integer_at(was, {key}).value_or(0), needed));
  }

  if (hypervisor == kQemu) set_kernel_parameters(kata, was, settings);
  set_annotations(kata, was, settings);
  if (is_confidential(kata.kind)) {
    set(settings, "confidential_guest", true);
    if (kata.kind == KataKind::snp) set(settings, "sev_snp_guest", true);
    set(settings, "shared_fs", std::string("none"));
  }
  if (!integer_at(was, {"default_memory"}))
    set(settings, "default_memory", static_cast<std::int64_t>(kGuestMemoryMib));

  TomlTable& runtime = table_at(out, {"runtime"});
  set(runtime, "vfio_mode", std::string("guest-kernel"));
  set(runtime, "sandbox_cgroup_only", true);
  set(runtime, "static_sandbox_resource_mgmt", true);
  set(runtime, "pod_resource_api_sock", pod_resources.string());
  set_timeouts(runtime_of(base.shim, before), before, out);
  return out;
}

}  // namespace ferry::kata
