// SPDX-License-Identifier: Apache-2.0
// ferry-agent: the agent at an API server. A program of its own, since it links libcurl (docs/adr/0012);
// `ferry agent` becomes it.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "agent/node_agent.h"
#include "agent/seen_host.h"
#include "agent/wish_file.h"
#include "common/directory_watch.h"
#include "common/event_loop.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/stop_on_signal.h"
#include "common/version.h"
#include "kube/cluster_access.h"
#include "kube/curl_transport.h"
#include "vfio/release.h"

namespace ferry {
namespace {

struct AgentCommand {
  std::string node;
  std::string space;
  std::vector<std::string> config_maps = {"ferry"};
  std::string operator_space = "gpu-operator";
  AccessChoice access;
  std::filesystem::path host_root = "/";
  std::string default_workload;
  std::optional<std::string> default_policy;
  std::string default_vgpu_config = "default";
  std::vector<std::string> release;
  std::string log_level = "info";
  std::string log_format = "text";
};

void describe(CLI::App& app, AgentCommand& command) {
  app.set_version_flag("--version", std::string("ferry ") + kVersion);
  app.add_option("--node-name", command.node, "the Node that this host is")->envname("NODE_NAME")->required();
  app.add_option("--namespace", command.space, "where the configurations are; else the namespace we are in")
      ->envname("POD_NAMESPACE");
  app.add_option("--config-map", command.config_maps,
                 "ConfigMaps with policies and vGPU profiles; may be repeated")
      ->capture_default_str();
  app.add_option("--operator-namespace", command.operator_space, "where NVIDIA's operator runs its pods")
      ->capture_default_str();
  app.add_option("--kubeconfig", command.access.kubeconfig,
                 "how to reach the API server; else KUBECONFIG, the pod's own account, ~/.kube/config");
  app.add_option("--context", command.access.context, "the context of that file; else its own choice");
  app.add_option("--host-root", command.host_root, "where the host's / is mounted")->capture_default_str();
  CLI::Option* workload =
      app.add_option(
             "--default-workload", command.default_workload,
             "what a node without labels is for: container, vm-passthrough, vm-vgpu; without it it is "
             "left as it is")
          ->check(CLI::IsMember({"container", "vm-passthrough", "vm-vgpu"}))
          ->option_text("WORKLOAD");
  app.add_option("--default-policy", command.default_policy, "or the policy that it shall be")
      ->excludes(workload);
  app.add_option("--default-vgpu-config", command.default_vgpu_config,
                 "the vGPU configuration of a node for vGPUs that names none")
      ->capture_default_str();
  app.add_option("--release", command.release,
                 "host service that may be stopped for a workload's moves; policies have their own list; may "
                 "be repeated");
  app.add_option("--log-level", command.log_level, "trace, debug, info, warn, error, off")
      ->capture_default_str();
  app.add_option("--log-format", command.log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

int complain(const Error& error) {
  fmt::print(stderr, "ferry-agent: {}\n", error.message);
  if (!error.hint.empty()) fmt::print(stderr, "hint: {}\n", error.hint);
  return static_cast<int>(exit_status_of(error));
}

Environment environment() {
  Environment out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto sign = text.find('=');
    if (sign != std::string_view::npos) out.emplace(text.substr(0, sign), text.substr(sign + 1));
  }
  return out;
}

/// The folder of a file of ours, which is made if need be, so that whoever writes it is heard.
Result<DirectoryWatch> watch_folder_of(HostFs& host, const std::filesystem::path& file) {
  std::error_code failure;
  const auto folder = host.root() / file.parent_path();
  std::filesystem::create_directories(folder, failure);
  if (failure) return fail(error_from_errno(failure.value(), "make directory " + folder.string()));
  return DirectoryWatch::open(folder);
}

Result<> serve(const AgentCommand& command, HostFs& host, const std::stop_token& stop) {
  auto access = cluster_access(command.access, environment());
  if (!access) return fail(std::move(access).error());
  auto release = release_list(command.release);
  if (!release) return fail(std::move(release).error());
  const std::string space = command.space.empty() ? access->default_namespace : command.space;
  if (space.empty()) {
    return fail(Errc::usage, "nobody says in which namespace the configurations are",
                "name it: --namespace, or POD_NAMESPACE");
  }
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  LoopTimers timers(**loop);
  CurlTransport transport(**loop, std::move(*access));
  std::mt19937_64 generator(std::random_device{}());
  const Random random = [&generator] { return std::uniform_real_distribution<double>(0, 1)(generator); };
  NodeAgent agent(host, transport, timers, random, [] { return std::chrono::system_clock::now(); },
                  {.node = command.node,
                   .space = space,
                   .config_maps = command.config_maps,
                   .operator_space = command.operator_space,
                   .defaults = {.workload = parse_workload(command.default_workload),
                                .policy = command.default_policy,
                                .vgpu_config = command.default_vgpu_config,
                                .release = std::move(*release)}});
  std::vector<DirectoryWatch> watches;
  for (const char* file : {kWishFile, kStateFile}) {
    auto watch = watch_folder_of(host, file);
    if (!watch) return fail(std::move(watch).error());
    watches.push_back(std::move(*watch));
  }
  for (const DirectoryWatch& watch : watches) {
    (*loop)->watch(watch.fd(), [&agent, &watch] {
      watch.read();
      agent.host_changed();
    });
  }
  if (auto begun = agent.begin(); !begun) return begun;
  (*loop)->run(stop);
  return {};
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  CLI::App app("Has this node's GPUs be what its labels say, and tells the cluster what has come of it.",
               "ferry agent");
  ferry::AgentCommand command;
  ferry::describe(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "ferry agent: {}\nhint: `ferry agent --help` lists what there is\n", error.what());
    return static_cast<int>(ferry::ExitStatus::usage);
  }
  const auto format = command.log_format == "json" ? ferry::LogFormat::json : ferry::LogFormat::text;
  if (auto log = ferry::set_up_log(command.log_level, format); !log) return ferry::complain(log.error());
  const ferry::StopOnSignal stop;
  ferry::HostFs host(command.host_root);
  if (auto served = ferry::serve(command, host, stop.token()); !served)
    return ferry::complain(served.error());
  return 0;
}
