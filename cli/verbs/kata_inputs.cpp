// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/kata_inputs.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "api/files.h"
#include "api/host_status.h"
#include "cli/output/wait_note.h"
#include "common/process/standard_streams.h"
#include "host/system/systemd_services.h"
#include "hostfs/kernel_facts.h"
#include "kata-manager/runtimes/cri_client.h"
#include "kata-manager/runtimes/unit_file.h"
#include "policy/kubernetes_files.h"
#include "vfio/pci/inventory.h"

namespace ferry::cli {
namespace {

// On a slow disk a runtime takes long to read its images' metadata before it reports its start.
constexpr std::chrono::minutes kPatience{3};

/// The unit as systemd has loaded it; absent: systemd cannot be asked, or has not loaded it.
std::optional<kata::UnitFile> loaded(HostWriter& writer, const std::string& unit) {
  const auto text = writer.output({.words = {"/usr/bin/systemctl", "show", "-p", "LoadState", "-p",
                                             "KillMode", "-p", "NeedDaemonReload", unit}},
                                  std::chrono::seconds(10));
  if (!text) return std::nullopt;
  kata::UnitFile said({"[Service]\n" + *text});
  if (said.value("Service", "LoadState") != "loaded") return std::nullopt;
  return said;
}

/// Why a restart of `unit` ends running pods; absent: it does not.
std::optional<std::string> harm_of_restart(const HostFs& host, HostWriter& writer, const std::string& unit) {
  auto said = loaded(writer, unit);
  if (said && said->value("Service", "NeedDaemonReload") == "yes")
    return unit + " was changed, and systemd has not read it since (systemctl daemon-reload)";
  if (!said) said = kata::UnitFile::read(host, unit);
  if (!said) return unit + " has no unit file, and what its stop kills is not known";
  // ABI: systemd.kill(5). Any other mode kills all processes of the service, sooner or later.
  const std::string mode = said->value("Service", "KillMode").value_or("control-group");
  if (mode == "process" || mode == "none") return std::nullopt;
  return fmt::format("{} has KillMode={}, and the processes that keep pods running are its own", unit, mode);
}

class Control final : public kata::RuntimeControl {
 public:
  /// `harm` empty: the action ends no pod, as far as is known.
  Control(std::string text, std::function<Result<>()> act,
          std::function<std::optional<std::string>()> harm = {})
      : text_(std::move(text)), act_(std::move(act)), harm_(std::move(harm)) {}
  std::string text() const override { return text_; }
  std::optional<std::string> harm() const override { return harm_ ? harm_() : std::nullopt; }
  Result<> act() override {
    const WaitNote waits(text_);
    return act_();
  }

 private:
  std::string text_;
  std::function<Result<>()> act_;
  std::function<std::optional<std::string>()> harm_;
};

}  // namespace

std::unique_ptr<kata::RuntimeControl> restart_of_unit(const HostFs& host, HostWriter& writer,
                                                      const std::string& unit) {
  return std::make_unique<Control>(
      "restart " + unit, [&host, unit] { return host::SystemdServices(host, kPatience).restart(unit); },
      [&host, &writer, unit] { return harm_of_restart(host, writer, unit); });
}

std::unique_ptr<kata::RuntimeControl> reload_of_unit(const HostFs& host, const std::string& unit) {
  return std::make_unique<Control>(
      "reload " + unit, [&host, unit] { return host::SystemdServices(host, kPatience).reload(unit); });
}

std::unique_ptr<kata::RuntimeControl> run_of_command(HostWriter& writer, std::vector<std::string> words) {
  const HostCommand command{.words = std::move(words), .killed_when_late = true};
  return std::make_unique<Control>("run " + command.text(),
                                   [&writer, command] { return writer.run(command, kPatience); });
}

namespace {

void add_control(const Session& session, const KataOptions& options, const kata::ClassFile* file,
                 kata::KataRuntime& runtime) {
  if (options.no_restart) return;
  if (file != nullptr && file->restart.how == kata::RuntimeRestart::How::none) return;
  if (file != nullptr && file->restart.how == kata::RuntimeRestart::How::command) {
    runtime.control = run_of_command(*session.writer, file->restart.command);
    return;
  }
  const kata::RuntimePlace& place = runtime.found_runtime.place;
  if (place.kind == kata::RuntimeKind::k0s) {
    // k0s watches the files, and has them read.
    runtime.control = std::make_unique<Control>(fmt::format("wait until {} has had it read", place.name),
                                                [] { return Result<>(); });
    return;
  }
  const auto unit = kata::unit_of(*session.host, place);
  if (!unit) {
    runtime.no_control = {
        .code = Errc::unsupported,
        .message = fmt::format("{} runs, but has no systemd unit that could be restarted", place.name),
        .hint =
            "say `restart: {command: [...]}` in the class file, or write the files alone with --no-restart"};
  } else if (place.kind == kata::RuntimeKind::crio) {
    runtime.control = reload_of_unit(*session.host, *unit);
  } else {
    runtime.control = restart_of_unit(*session.host, *session.writer, *unit);
  }
}

/// True: the function goes to a VM with an accelerator or a switch of its IOMMU group.
bool goes_with_one(const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules,
                   const vfio::PciFunction& function) {
  if (function.is_bridge()) return false;
  return std::ranges::any_of(inventory.group_of(function), [&](const vfio::PciAddress& address) {
    const vfio::PciFunction* const member = inventory.find(address);
    return member != nullptr && rules.vendors.contains(member->vendor) &&
           (rules.match(*member) || rules.match_by_name(*member));
  });
}

}  // namespace

Result<kata::ClassFile> read_classes_for(const KataOptions& options) {
  auto file = kata::read_class_file(options.file, options.lenient ? Reading::lenient : Reading::strict);
  if (!file) {
    if (file.error().hint.empty())
      file.error().hint =
          "-f takes a class file: NVIDIA's, Ferry's (`man 5 ferry-kata-classes`), or a ConfigMap with either";
    return file;
  }
  for (const std::string& warning : file->warnings) print_to_stderr("warning: {}\n", warning);
  return file;
}

Result<kata::KataRuntime> kata_runtime(const Session& session, const KataOptions& options,
                                       const kata::ClassFile* file) {
  kata::RuntimeChoice choice = file == nullptr ? kata::RuntimeChoice{} : file->runtime;
  // The file's paths belong to the runtime that the file names, so another runtime's name drops them.
  if (options.runtime && options.runtime != choice.name) choice = {.name = options.runtime};
  if (options.configuration) choice.configuration = options.configuration;
  if (options.socket) choice.socket = options.socket;
  auto place = kata::find_runtime(*session.host, choice);
  if (!place) return fail(std::move(place).error());

  kata::KataRuntime out;
  out.asked = std::make_unique<kata::CriClient>(*session.host, place->socket);
  auto found_runtime =
      kata::found_runtime(*session.host, *session.writer, *out.asked, *place, options.containerd_version);
  if (!found_runtime) return fail(std::move(found_runtime).error());
  out.found_runtime = std::move(*found_runtime);
  add_control(session, options, file, out);
  return out;
}

Result<kata::ConfidentialMode> confidential_mode(const HostFs& host, const std::filesystem::path& node) {
  kata::ConfidentialMode out;
  if (!node.empty()) {
    const auto object = policy::read_node_object(node);
    if (!object) return fail(object.error());
    out = kata::ConfidentialMode::of_labels(object->labels);
  }
  const auto boot = boot_id(host);
  if (const auto text = host.read_file(api::kStatusFile); boot && text)
    if (const auto status = api::read_host_status(*text); status && status->boot_id == *boot)
      out.take_registers(*status);
  return out;
}

Result<kata::KataDevices> kata_devices(const Session& session, const KataOptions& options) {
  auto mode = confidential_mode(*session.host, options.node);
  if (!mode) return fail(std::move(mode).error());
  const auto inventory = vfio::scan(*session.host);
  // A tree without GPUs or without sysfs can still be prepared.
  if (!inventory && is_gone(inventory.error())) return kata::KataDevices{.gpus = 1, .mode = std::move(*mode)};
  if (!inventory) return fail(inventory.error());
  kata::KataDevices out{.mode = std::move(*mode)};
  const bool by_group = !session.host->exists("dev/iommu");
  for (const auto& [address, function] : inventory->functions) {
    const bool counts = session.rules.vendors.contains(function.vendor);
    if (counts &&
        (session.rules.match(function) ||
         (vfio::is_accelerators_vf(*inventory, session.rules, function) && vfio::on_vfio_driver(function)))) {
      ++out.gpus;
    } else if (counts && session.rules.match_by_name(function)) {
      ++out.switches;
    } else if (by_group && goes_with_one(*inventory, session.rules, function)) {
      ++out.companions;
    }
  }
  out.gpus = std::max(out.gpus, 1U);  // a GPU that comes later finds a port
  return out;
}

}  // namespace ferry::cli
