// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/configuration/kata_configuration.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kata-manager/classes/runtime_class.h"
#include "kata-manager/configuration/kata_parts.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {
namespace {

/// A source of settings. Later sources override earlier ones.
struct Source {
  std::string name;
  TomlTable settings;
};

/// Calls `found` with the dotted path of each setting that both tables have, with different values.
void for_each_contradiction(const TomlTable& one, const TomlTable& other, const std::string& path,
                            const std::function<void(const std::string& path)>& found) {
  for (const auto& [key, value] : one) {
    const auto there = other.find(key);
    if (there == other.end()) continue;
    const std::string here = path.empty() ? key : fmt::format("{}.{}", path, key);
    const TomlTable* const inner = there->second.table();
    if (value.table() != nullptr && inner != nullptr) {
      for_each_contradiction(*value.table(), *inner, here, found);
    } else if (value.table() == nullptr && inner == nullptr && value != there->second) {
      found(here);
    }
  }
}

// Removes settings that `before` has, and empty tables. Kata treats an empty text as an absent setting.
void leave_out(TomlTable& ours, const TomlTable& before) {
  for (auto entry = ours.begin(); entry != ours.end();) {
    const auto was = before.find(entry->first);
    TomlTable* const table = entry->second.table();
    if (table != nullptr) {
      static const TomlTable kNone;
      leave_out(*table, was == before.end() || was->second.table() == nullptr ? kNone : *was->second.table());
    }
    const std::string* const text = entry->second.string();
    const bool is_said =
        was == before.end() ? text != nullptr && text->empty() : was->second == entry->second;
    entry = is_said || (table != nullptr && table->empty()) ? ours.erase(entry) : std::next(entry);
  }
}

std::string text_of(const TomlTable& ours, const KataClass& kata) {
  if (ours.empty()) return {};
  std::string out = fmt::format(
      "# Written by Ferry for the class {} ({}), and written anew whenever that changes.\n"
      "# Kata reads it after the configuration in the folder above; a file of a later name counts more.\n",
      kata.name, text(kata.kind));
  for (const auto& [name, value] : ours) {
    const TomlTable& table = *value.table();
    const bool only_tables =
        std::ranges::all_of(table, [](const auto& entry) { return entry.second.table() != nullptr; });
    if (!only_tables) {
      out += "\n" + toml_text({name}, table);
      continue;
    }
    for (const auto& [inner, settings] : table) out += "\n" + toml_text({name, inner}, *settings.table());
  }
  return out;
}

class DropInMaker {
 public:
  DropInMaker(const KataClass& kata, const KataBase& base) : kata_(kata), base_(base) {}

  Result<KataDropIn> make(const KataDevices& devices, const std::filesystem::path& pod_resources) {
    if (auto r = read_sources(); !r) return fail(std::move(r).error());
    TomlTable before;
    for (const Source& source : earlier_) merge_over(before, source.settings);
    const auto hypervisor = hypervisor_of(before);
    if (!hypervisor) return refuse(hypervisor.error().message, hypervisor.error().hint);
    const TomlTable ready = ready_settings(kata_, base_, devices, pod_resources, before, *hypervisor);
    TomlTable ours = ready;
    merge_over(ours, kata_.configuration);
    leave_out(ours, before);

    KataDropIn out;
    out.path = base_.file.parent_path() / "config.d" / kKataDropIn;
    out.text = text_of(ours, kata_);
    out.copy = copy_;
    out.effective = before;
    merge_over(out.effective, ours);
    for (const Source& source : later_) merge_over(out.effective, source.settings);
    const auto still = hypervisor_of(out.effective);
    if (!still) return refuse(still.error().message, still.error().hint);
    if (const auto wrong = wrong_in(kata_, out.effective, *still))
      return refuse(fmt::format("hypervisor.{}: {}", *still, *wrong), blame());
    if (auto wrong = wrong_for_shim(base_.shim, out.effective, *still, pod_resources)) {
      if (wrong->hint.empty()) wrong->hint = blame();
      return fail(std::move(*wrong).during(fmt::format("{}: class {}", kata_.place, kata_.name)));
    }
    if (auto r = stay_within_bounds(pod_resources, out); !r) return fail(std::move(r).error());
    const TomlTable& settings = settings_of(out.effective, *still);
    out.programs = host_programs(out.effective);
    out.guest_memory_mib = static_cast<std::uint64_t>(integer_at(settings, {"default_memory"}).value_or(0));
    out.host_files = host_files_of(settings);

    for_each_contradiction(ready, kata_.configuration, "", [&](const std::string& path) {
      out.notes.push_back(fmt::format("{}: the class says otherwise than Ferry would", path));
    });
    for (const Source& source : later_) {
      for_each_contradiction(source.settings, ours, "", [&](const std::string& path) {
        out.notes.push_back(fmt::format("{}: {} counts more than {}", path, source.name, kKataDropIn));
      });
    }
    if (keeps_hot_plug(base_.shim, pod_resources, settings)) {
      out.notes.push_back(
          fmt::format("hot_plug_vfio stays {}: {} does not ask the kubelet which devices a pod has",
                      text_at(settings, {"hot_plug_vfio"}), base_.shim.text()));
    }
    note_limits(devices, before, *hypervisor, settings, out);
    return out;
  }

 private:
  Result<> read_sources() {
    copy_ = with_extension_images_of(base_);
    auto base = parse_toml(copy_, base_.file);
    if (!base) return fail(std::move(base).error());
    earlier_.push_back({.name = base_.file.filename(), .settings = std::move(*base)});
    for (const auto& [name, text] : base_.drop_ins) {
      if (name == kKataDropIn) continue;
      const std::string path = base_.file.parent_path() / "config.d" / name;
      auto settings = parse_toml(text, path);
      if (!settings) return fail(std::move(settings).error());
      std::vector<Source>& side = name < kKataDropIn ? earlier_ : later_;
      side.push_back({.name = "config.d/" + name, .settings = std::move(*settings)});
    }
    return {};
  }

  tl::unexpected<Error> refuse(const std::string& what, const std::string& hint = {}) const {
    return fail(Errc::invalid_config, fmt::format("{}: class {}: {}", kata_.place, kata_.name, what), hint);
  }

  /// A hint that lists the sources of settings.
  std::string blame() const {
    std::vector<std::string> names = {earlier_.front().name};
    for (std::size_t i = 1; i < earlier_.size(); ++i) names.push_back(earlier_[i].name);
    if (!kata_.configuration.empty()) names.emplace_back("the class's configuration");
    for (const Source& source : later_) names.push_back(source.name);
    return fmt::format("settings come from {}: {}; later ones count more", base_.file.parent_path().string(),
                       fmt::join(names, ", "));
  }

  Result<> stay_within_bounds(const std::filesystem::path& pod_resources, KataDropIn& out) const {
    if (base_.artifacts_dir.empty()) return {};
    // The class, administrators' drop-ins and the socket that Ferry sets are trusted.
    TomlTable trusted;
    table_at(trusted, {"runtime"})["pod_resource_api_sock"].value = pod_resources.string();
    for (std::size_t i = 1; i < earlier_.size(); ++i) merge_over(trusted, earlier_[i].settings);
    merge_over(trusted, kata_.configuration);
    for (const Source& source : later_) merge_over(trusted, source.settings);
    const auto beyond = beyond_bounds(
        kata_, out.effective, trusted,
        {.version = base_.folder, .artifacts_dir = base_.artifacts_dir, .shim = base_.shim.path});
    if (kata_.artifacts.folder()) {
      for (const Error& setting : beyond) out.notes.push_back(setting.message);
      return {};
    }
    return refuse_beyond(kata_, beyond);
  }

  void note_limits(const KataDevices& devices, const TomlTable& before, const std::string& hypervisor,
                   const TomlTable& settings, KataDropIn& out) const {
    if (devices.ports() > kMostPorts)
      out.notes.push_back(fmt::format("a pod can have {} of the {} {}: Kata makes no more ports", kMostPorts,
                                      devices.ports(),
                                      devices.companions == 0 ? "devices" : "functions of the GPUs' groups"));
    const std::string parameters = text_at(settings, {"kernel_params"});
    if (const auto missing = missing_pci_options(parameters); hypervisor == kQemu && !missing.empty()) {
      out.notes.push_back(fmt::format("kernel_params lack pci={}: large BARs may find no place in the guest",
                                      fmt::join(missing, ",")));
    }
    if (!is_confidential(kata_.kind)) return;
    const TomlTable& was = settings_of(before, hypervisor);
    if (!is_true_at(was, {"confidential_guest"}))
      out.notes.emplace_back(
          "the artifact's configuration is not for confidential VMs: its firmware and image have to be");
    if (text_at(was, {"kernel_params"}) != parameters)
      out.notes.emplace_back(
          "kernel_params differ from the artifact's, and they are part of what is measured");
  }

  const KataClass& kata_;
  const KataBase& base_;
  std::string copy_;
  std::vector<Source> earlier_;  ///< the artifact's copy first
  std::vector<Source> later_;
};

}  // namespace

std::filesystem::path kata_configuration_folder(const std::string& name) {
  return std::filesystem::path(kKataConfigurations) / name;
}

Result<KataDropIn> kata_drop_in(const KataClass& kata, const KataBase& base, const KataDevices& devices,
                                const std::filesystem::path& pod_resources) {
  return DropInMaker(kata, base).make(devices, pod_resources);
}

}  // namespace ferry::kata
