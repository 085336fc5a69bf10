// SPDX-License-Identifier: Apache-2.0
#include "cli/kata_inputs.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "cli/fetch_progress_lines.h"
#include "cli/runtime_control.h"
#include "common/standard_streams.h"
#include "kata-manager/artifact_check.h"
#include "kata-manager/cri_client.h"
#include "kata-manager/fetch_request.h"
#include "policy/accelerators.h"
#include "policy/kubernetes_files.h"
#include "vfio/inventory.h"

namespace ferry {
namespace {

RuntimeChoice choice_of(const KataOptions& options, const ClassFile* file) {
  RuntimeChoice out = file == nullptr ? RuntimeChoice{} : file->runtime;
  // The file's paths belong to the runtime that the file names, so another runtime's name drops them.
  if (options.runtime && options.runtime != out.name) out = {.name = options.runtime};
  if (options.configuration) out.configuration = options.configuration;
  if (options.socket) out.socket = options.socket;
  return out;
}

void add_control(const Session& session, const KataOptions& options, const ClassFile* file,
                 KataRuntime& runtime) {
  if (options.no_restart) return;
  if (file != nullptr && file->restart.how == RuntimeRestart::How::none) return;
  if (file != nullptr && file->restart.how == RuntimeRestart::How::command) {
    runtime.control = run_of_command(*session.writer, file->restart.command);
    return;
  }
  const RuntimePlace& place = runtime.at_hand.place;
  if (place.kind == RuntimeKind::k0s) {
    runtime.control = left_to(place.name);
    return;
  }
  const auto unit = unit_of(*session.host, place);
  if (!unit) {
    runtime.no_control = {
        .code = Errc::unsupported,
        .message = fmt::format("{} runs, but has no systemd unit that could be restarted", place.name),
        .hint =
            "say `restart: {command: [...]}` in the class file, or write the files alone with --no-restart"};
  } else if (place.kind == RuntimeKind::crio) {
    runtime.control = reload_of_unit(*session.host, *unit);
  } else {
    runtime.control = restart_of_unit(*session.host, *session.writer, *unit);
  }
}

/// True: the function goes to a VM with an accelerator or a switch of its IOMMU group.
bool goes_with_one(const Inventory& inventory, const AcceleratorRules& rules, const PciFunction& function) {
  if (function.is_bridge()) return false;
  return std::ranges::any_of(inventory.group_of(function), [&](const PciAddress& address) {
    const PciFunction* const member = inventory.find(address);
    return member != nullptr && rules.vendors.contains(member->vendor) &&
           (rules.match(*member) || rules.match_by_name(*member));
  });
}

/// Prints progress to stderr, since stdout is for data.
std::function<void(const FetchProgress&)> told_to_people(const std::string& name) {
  return [lines = FetchProgressLines(name)](const FetchProgress& progress) mutable {
    if (const auto line = lines.line(progress)) print_to_stderr("{}", *line);
  };
}

PullCredentials credentials(const KataOptions& options) {
  return {.secrets = options.pull_secrets, .docker_config = options.docker_config};
}

}  // namespace

Result<ClassFile> read_classes_for(const KataOptions& options) {
  auto file = read_class_file(options.file, options.lenient ? Reading::lenient : Reading::strict);
  if (!file) {
    if (file.error().hint.empty())
      file.error().hint = "-f takes a class file: NVIDIA's, ours (docs/kata.md), or a ConfigMap with either";
    return file;
  }
  for (const std::string& warning : file->warnings) print_to_stderr("warning: {}\n", warning);
  return file;
}

Result<KataRuntime> kata_runtime(const Session& session, const KataOptions& options, const ClassFile* file) {
  auto place = find_runtime(*session.host, choice_of(options, file));
  if (!place) return fail(std::move(place).error());
  KataRuntime out;
  out.asked = std::make_unique<CriClient>(*session.host, place->socket);
  auto at_hand =
      runtime_at_hand(*session.host, *session.writer, *out.asked, *place, options.containerd_version);
  if (!at_hand) return fail(std::move(at_hand).error());
  out.at_hand = std::move(*at_hand);
  add_control(session, options, file, out);
  return out;
}

Result<ConfidentialMode> confidential_mode(const std::filesystem::path& node) {
  if (node.empty()) return ConfidentialMode();
  const auto object = read_node_object(node);
  if (!object) return fail(Error(object.error()));
  return ConfidentialMode::of_labels(object->labels);
}

Result<KataDevices> kata_devices(const Session& session, const KataOptions& options) {
  auto mode = confidential_mode(options.node);
  if (!mode) return fail(std::move(mode).error());
  const auto inventory = scan(*session.host);
  // A tree without GPUs or without sysfs can still be prepared.
  if (!inventory && is_gone(inventory.error())) return KataDevices{.gpus = 1, .mode = std::move(*mode)};
  if (!inventory) return fail(Error(inventory.error()));
  KataDevices out{.mode = std::move(*mode)};
  const bool by_group = !session.host->exists("dev/iommu");
  for (const auto& [address, function] : inventory->functions) {
    const bool counts = session.rules.vendors.contains(function.vendor);
    if (counts && (session.rules.match(function) ||
                   (is_accelerators_vf(*inventory, session.rules, function) && on_vfio_driver(function)))) {
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

Result<std::string> credentials_of(const Session& session, const KataOptions& options, const ClassFile& file,
                                   const KataClass& kata) {
  return credentials_of(*session.host, credentials(options), file, kata);
}

Result<std::vector<std::string>> check_files(const Session& session, const Artifact& artifact) {
  return changes_since_fetch(*session.host, artifact, told_to_people(artifact.name));
}

Result<Artifact> fetch_class(const Session& session, const KataOptions& options, const ClassFile& file,
                             const KataClass& kata) {
  auto request = fetch_request(*session.host, credentials(options), file, kata);
  if (!request) return fail(std::move(request).error());
  // Without a registry the files here will do: a change that began with them can end, or be reported again.
  request->or_what_is_here = true;
  auto artifact = fetch(*session.host, *request, told_to_people(kata.name));
  if (!artifact) return fail(explained(std::move(artifact).error(), kata, *request));
  return artifact;
}

}  // namespace ferry
