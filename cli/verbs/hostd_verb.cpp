// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/files.h"
#include "cli/options/plugin_options.h"
#include "cli/verbs/kata_inputs.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/process/signals.h"
#include "common/process/standard_streams.h"
#include "host/desired_state.h"
#include "host/gpu_numbers.h"
#include "host/node_keeper.h"
#include "host/system/agent_folders.h"
#include "host/system/systemd_services.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/classes/desired_classes.h"
#include "kata-manager/controller/kata_keeper.h"
#include "kata-manager/runtimes/cri_client.h"
#include "kubevirt-plugin/discovery/device_names.h"
#include "kubevirt-plugin/discovery/resource_name.h"
#include "kubevirt-plugin/discovery/resource_rules.h"
#include "kubevirt-plugin/discovery/scanner.h"
#include "policy/accelerators.h"

namespace ferry::cli {
namespace {

/// Makes the host's Kata runtimes those of a class file, if enabled, and reports which are ready.
class KataBeside {
 public:
  KataBeside(const Session& session, EventLoop& loop, const std::filesystem::path& socket, bool obeys)
      : asked_(*session.host, socket),
        keeper_(uses_of(session, socket, obeys), {}),
        rounds_(loop, *session.host, keeper_, socket, obeys, {}) {}

 private:
  kata::KataKeeper::Uses uses_of(const Session& session, const std::filesystem::path& socket, bool obeys) {
    kata::KataKeeper::Uses out{.host = session.host.get(), .writer = session.writer.get(), .asked = &asked_};
    if (!obeys) return out;
    KataOptions options;
    options.socket = socket;
    out.runtime_for = [&session, options](const kata::ClassFile& file) {
      return kata_runtime(session, options, &file);
    };
    // hostd has no Node object: the agent reads it and writes the GPUs' mode into its file.
    out.devices = [&session, options] { return kata_devices(session, options); };
    return out;
  }

  kata::CriClient asked_;
  kata::KataKeeper keeper_;
  kata::KataKeeperLoop rounds_;
};

std::vector<std::filesystem::path> of_the_host(const std::vector<std::filesystem::path>& folders) {
  std::vector<std::filesystem::path> out;
  out.reserve(folders.size());
  for (const auto& folder : folders) out.push_back(folder.relative_path());
  return out;
}

/// Gives their folders to the groups of the agent and of `ferry dra`; empty: neither is another user than
/// root.
std::function<void()> keep_folders(const HostFs& host, const HostdOptions& options) {
  std::vector<std::shared_ptr<host::AgentFolders>> all;
  const auto add = [&](host::AgentFolders::Settings settings) {
    all.push_back(std::make_shared<host::AgentFolders>(host, std::move(settings)));
  };
  if (options.agent_group)
    add({.group = *options.agent_group,
         .lock = api::kAgentLock,
         .folders = {},
         .trees = of_the_host(options.agent_trees)});
  if (options.dra_group) {
    // The kubelet and the runtime make most of the folders that `ferry dra` writes, as root's.
    std::vector<std::filesystem::path> folders = of_the_host(options.dra_folders);
    folders.insert(folders.begin(), std::filesystem::path(api::kCheckpointFile).parent_path());
    add({.group = *options.dra_group,
         .lock = {},
         .folders = std::move(folders),
         .trees = {},
         .whose = "that of `ferry dra`"});
  }
  if (all.empty()) return {};
  return [all = std::move(all)] {
    for (const auto& folders : all) folders->give();
  };
}

ExitStatus preview_desired(const Session& session, const std::filesystem::path& file, Reading profiles,
                           const policy::ResourceNames& resources) {
  const auto desired = host::read_desired(*session.host, file, profiles);
  if (!desired) return complain(desired.error());
  if (const auto& there = *desired) {
    for (const std::string& warning : there->warnings) print_to_stderr("warning: {}\n", warning);
    const auto vgpus = read_vgpus(session, policy::rules_for(there->policy, session.rules));
    if (!vgpus) return complain(vgpus.error());
    const auto numbered = host::resolve_numbers(*session.host, there->policy, *vgpus);
    if (!numbered) return complain(numbered.error());
    const ExitStatus gone = numbered->gone ? complain(*numbered->gone) : ExitStatus::done;
    return worse(gone, apply_preview(session, numbered->policy, true, resources));
  }
  print_to_stderr("ferry: there is no /{}: there is no desired state, so nothing would be changed\n",
                  file.string());
  return ExitStatus::done;
}

/// Absent: the classes cannot be read.
std::optional<bool> has_confidential_class(const HostFs& host) {
  const auto desired = kata::read_desired_classes(host);
  if (!desired) return std::nullopt;
  if (!*desired) return false;
  const auto file = kata::desired_class_file(**desired);
  if (!file) return std::nullopt;
  return std::ranges::any_of(file->classes, kata::is_confidential, &kata::KataClass::kind);
}

/// Errc::usage: a class or an option for names is malformed.
Result<policy::ResourceNames> resource_names(const Session& session, const HostdOptions& options) {
  const auto rules = resource_rules(session, options.naming);
  if (!rules) return fail(rules.error());
  policy::ResourceNames out;
  for (const std::string& text : options.classes) {
    const auto sign = text.find('=');
    const std::string device =
        sign == std::string::npos ? std::string() : plugin::model_of(std::string_view(text).substr(sign + 1));
    const auto resource = plugin::ResourceName::parse(text.substr(0, sign));
    if (!resource || device.empty())
      return fail(Errc::usage, fmt::format("class '{}': not of the form RESOURCE=DEVICE", text),
                  "as nvidia.com/AD102GL_L40S=10de:26b9 or nvidia.com/NVIDIA_L40S-6Q=L40S-6Q");
    out.classes.push_back({.resource = resource->text(), .device = device});
  }
  out.of_gpu = [rules = *rules,
                known = std::make_shared<plugin::DeviceNames>(*session.host)](const vfio::PciFunction& gpu) {
    const auto domain = plugin::resource_domain(rules, gpu.vendor, *known);
    if (!domain) return std::string();  // the plugin has no name for it either
    const auto name =
        rules.names.function_name(*domain, gpu.ids(), known->find(gpu.vendor, gpu.device).value_or(""));
    return name ? name->text() : std::string();
  };
  out.of_vgpus = [names = rules->names](const std::string& type) {
    return fmt::format("{}/{}", policy::kResourceDomain, names.vgpu_part(type));
  };
  return out;
}

ExitStatus keep(const Session& session, const host::NodeLoopOptions& options,
                const policy::ResourceNames& resources) {
  const StopOnSignal stop;
  const auto ended = host::run_node_loop(
      *session.host, hostd_probes(session),
      [&](const host::NodeProbes& uses) {
        auto context = hostd_context(session, uses);
        if (context) context->resources = resources;
        return context;
      },
      options, stop.token());
  if (!ended) return complain(ended.error());
  return *ended;
}

}  // namespace

ExitStatus hostd_verb(const Session& session, const HostdOptions& options) {
  const auto resources = resource_names(session, options);
  if (!resources) return complain(resources.error());
  host::NodeLoopOptions settings;
  settings.once = options.once;
  settings.keeper.desired_file = options.desired.relative_path();
  settings.keeper.status_file = options.status_file.relative_path();
  settings.keeper.validations = options.validations;
  settings.keeper.sets_cc_mode = options.sets_cc_mode;
  settings.keeper.has_confidential_class = [&session, last = false]() mutable {
    return last = has_confidential_class(*session.host).value_or(last);
  };
  settings.keeper.profiles = options.lenient ? Reading::lenient : Reading::strict;
  if (!settings.once)
    settings.beside = [&](EventLoop& loop) -> std::shared_ptr<void> {
      if (!options.cri_socket.empty())
        return std::make_shared<KataBeside>(session, loop, options.cri_socket, options.kata);
      // Without a CRI socket readiness is unknown, so the file of ready handlers is removed.
      if (auto removed = session.host->remove_file(api::kReadyHandlersFile); !removed)
        complain(removed.error());
      return nullptr;
    };
  settings.claim_metadata = options.claim_metadata.relative_path();
  if (options.dra_user && options.dra_group)
    settings.claims = host::ClaimServerSettings{.user = *options.dra_user, .group = *options.dra_group};
  if (session.dry_run)
    return preview_desired(session, settings.keeper.desired_file, settings.keeper.profiles, *resources);
  if (auto root = require_root(session); !root) return complain(root.error());
  settings.keep_folders = keep_folders(*session.host, options);
  if (options.once && !session.host->exists(settings.keeper.desired_file))
    print_to_stderr("ferry: there is no /{}: there is no desired state, so nothing is changed\n",
                    settings.keeper.desired_file.string());
  if (!options.own_scope) return keep(session, settings, *resources);
  const int ended = host::in_own_scope(*session.host,
                                       [&] { return static_cast<int>(keep(session, settings, *resources)); });
  if (ended >= 0) return static_cast<ExitStatus>(ended);
  return complain({.code = make_error_code(Errc::failed),
                   .message = "hostd: no process could be made",
                   .hint = "see how many this host and its control groups permit"});
}

}  // namespace ferry::cli
