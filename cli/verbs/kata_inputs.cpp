// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/kata_inputs.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/output/kata_report.h"
#include "cli/output/wait_note.h"
#include "common/process/standard_streams.h"
#include "host/system/systemd_services.h"
#include "kata-manager/artifacts/content_hash.h"
#include "kata-manager/artifacts/fetch_request.h"
#include "kata-manager/runtime/cri_client.h"
#include "kata-manager/runtime/unit_file.h"
#include "policy/accelerators.h"
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

class UnitRestart final : public kata::RuntimeControl {
 public:
  UnitRestart(const HostFs& host, HostWriter& writer, std::string unit)
      : host_(host), writer_(writer), unit_(std::move(unit)) {}
  std::string text() const override { return "restart " + unit_; }
  std::optional<std::string> harm() const override {
    auto said = loaded(writer_, unit_);
    if (said && said->value("Service", "NeedDaemonReload") == "yes")
      return unit_ + " was changed, and systemd has not read it since (systemctl daemon-reload)";
    if (!said) said = kata::UnitFile::read(host_, unit_);
    if (!said) return unit_ + " has no unit file, and what its stop kills is not known";
    // ABI: systemd.kill(5). Any other mode kills all processes of the service, sooner or later.
    const std::string mode = said->value("Service", "KillMode").value_or("control-group");
    if (mode == "process" || mode == "none") return std::nullopt;
    return fmt::format("{} has KillMode={}, and the processes that keep pods running are its own", unit_,
                       mode);
  }
  Result<> act() override {
    const WaitNote waits(text());
    return host::SystemdServices(host_, kPatience).restart(unit_);
  }

 private:
  const HostFs& host_;
  HostWriter& writer_;
  std::string unit_;
};

class UnitReload final : public kata::RuntimeControl {
 public:
  UnitReload(const HostFs& host, std::string unit) : host_(host), unit_(std::move(unit)) {}
  std::string text() const override { return "reload " + unit_; }
  std::optional<std::string> harm() const override { return std::nullopt; }
  Result<> act() override {
    const WaitNote waits(text());
    return host::SystemdServices(host_, kPatience).reload(unit_);
  }

 private:
  const HostFs& host_;
  std::string unit_;
};

class CommandRun final : public kata::RuntimeControl {
 public:
  CommandRun(HostWriter& writer, std::vector<std::string> words)
      : writer_(writer), command_{.words = std::move(words), .killed_when_late = true} {}
  std::string text() const override { return "run " + command_.text(); }
  std::optional<std::string> harm() const override { return std::nullopt; }
  Result<> act() override {
    const WaitNote waits(text());
    return writer_.run(command_, kPatience);
  }

 private:
  HostWriter& writer_;
  HostCommand command_;
};

class LeftToAnother final : public kata::RuntimeControl {
 public:
  explicit LeftToAnother(std::string program) : program_(std::move(program)) {}
  std::string text() const override { return fmt::format("wait until {} has had it read", program_); }
  std::optional<std::string> harm() const override { return std::nullopt; }
  Result<> act() override { return {}; }

 private:
  std::string program_;
};

}  // namespace

std::unique_ptr<kata::RuntimeControl> restart_of_unit(const HostFs& host, HostWriter& writer,
                                                      std::string unit) {
  return std::make_unique<UnitRestart>(host, writer, std::move(unit));
}

std::unique_ptr<kata::RuntimeControl> reload_of_unit(const HostFs& host, std::string unit) {
  return std::make_unique<UnitReload>(host, std::move(unit));
}

std::unique_ptr<kata::RuntimeControl> run_of_command(HostWriter& writer, std::vector<std::string> words) {
  return std::make_unique<CommandRun>(writer, std::move(words));
}

std::unique_ptr<kata::RuntimeControl> left_to(std::string program) {
  return std::make_unique<LeftToAnother>(std::move(program));
}

namespace {

kata::RuntimeChoice choice_of(const KataOptions& options, const kata::ClassFile* file) {
  kata::RuntimeChoice out = file == nullptr ? kata::RuntimeChoice{} : file->runtime;
  // The file's paths belong to the runtime that the file names, so another runtime's name drops them.
  if (options.runtime && options.runtime != out.name) out = {.name = options.runtime};
  if (options.configuration) out.configuration = options.configuration;
  if (options.socket) out.socket = options.socket;
  return out;
}

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
    runtime.control = left_to(place.name);
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

/// Prints progress to stderr, since stdout is for data.
std::function<void(const kata::FetchProgress&)> fetch_note(const std::string& name) {
  return [lines = FetchProgressLines(name)](const kata::FetchProgress& progress) mutable {
    if (const auto line = lines.line(progress)) print_to_stderr("{}", *line);
  };
}

kata::PullCredentials credentials(const KataOptions& options) {
  return {.secrets = options.pull_secrets, .docker_config = options.docker_config};
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
  auto place = kata::find_runtime(*session.host, choice_of(options, file));
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

Result<kata::ConfidentialMode> confidential_mode(const std::filesystem::path& node) {
  if (node.empty()) return kata::ConfidentialMode();
  const auto object = policy::read_node_object(node);
  if (!object) return fail(Error(object.error()));
  return kata::ConfidentialMode::of_labels(object->labels);
}

Result<kata::KataDevices> kata_devices(const Session& session, const KataOptions& options) {
  auto mode = confidential_mode(options.node);
  if (!mode) return fail(std::move(mode).error());
  const auto inventory = vfio::scan(*session.host);
  // A tree without GPUs or without sysfs can still be prepared.
  if (!inventory && is_gone(inventory.error())) return kata::KataDevices{.gpus = 1, .mode = std::move(*mode)};
  if (!inventory) return fail(Error(inventory.error()));
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

Result<std::string> credentials_of(const Session& session, const KataOptions& options,
                                   const kata::ClassFile& file, const kata::KataClass& kata) {
  return credentials_of(*session.host, credentials(options), file, kata);
}

Result<std::vector<std::string>> check_files(const Session& session, const kata::Artifact& artifact) {
  return kata::changes_since_fetch(*session.host, artifact, fetch_note(artifact.name));
}

Result<kata::Artifact> fetch_class(const Session& session, const KataOptions& options,
                                   const kata::ClassFile& file, const kata::KataClass& kata) {
  auto request = kata::fetch_request(*session.host, credentials(options), file, kata);
  if (!request) return fail(std::move(request).error());
  // Without a registry the files here are enough: a change that began with them can end, or be reported
  // again.
  request->or_what_is_here = true;
  auto artifact = kata::fetch(*session.host, *request, fetch_note(kata.name));
  if (!artifact) return fail(kata::explained(std::move(artifact).error(), kata, *request));
  return artifact;
}

}  // namespace ferry::cli
