// SPDX-License-Identifier: Apache-2.0
// ferry-agent, which talks to an API server, and so links libcurl (docs/adr/0015). `ferry agent` execs it.
// The chart's uninstall hook runs `retire`, and its test `get`.
#include <array>
#include <charconv>
#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "agent/agent_options.h"
#include "agent/agent_settings.h"
#include "agent/host_files.h"
#include "agent/kata/artifact_pulls.h"
#include "agent/metrics/metrics_listener.h"
#include "agent/metrics/metrics_server.h"
#include "agent/node_agent.h"
#include "agent/programs/programs.h"
#include "cli/options/daemon.h"
#include "common/event_loop.h"
#include "common/process/standard_streams.h"
#include "common/process/this_process.h"
#include "common/version.h"
#include "hostfs/directory_watch.h"
#include "kube/api_client.h"
#include "kube/cluster_access.h"
#include "kube/curl_transport.h"
#include "vfio/quiesce/release.h"

namespace ferry::agent {
namespace {

Result<std::chrono::seconds> duration_of(const char* option, const std::string& text) {
  constexpr std::array<std::pair<char, unsigned>, 3> kUnits = {{{'s', 1}, {'m', 60}, {'h', 3'600}}};
  constexpr std::chrono::hours kLongest{24};
  unsigned number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool one_more = fault == std::errc() && end + 1 == text.data() + text.size();
  for (const auto& [unit, seconds] : kUnits) {
    if (!one_more || *end != unit || number == 0 || number > kLongest / std::chrono::seconds(seconds))
      continue;
    return std::chrono::seconds(number * seconds);
  }
  return fail(Errc::usage, fmt::format("{} {}: that is no duration", option, text),
              "a number and its unit, up to a day: 90s, 10m or 1h");
}

/// Absent: the options name no address, so no metrics are served.
Result<std::optional<MetricsListener::Settings>> metrics_settings(const AgentProgramOptions& command) {
  if (command.metrics_address.empty()) return std::optional<MetricsListener::Settings>();
  auto address = ListenAddress::parse(command.metrics_address);
  if (!address) return fail(std::move(address).error().during("--metrics-address"));
  return std::optional(MetricsListener::Settings{.address = std::move(*address),
                                                 .certificate = command.metrics_certificate,
                                                 .key = command.metrics_key,
                                                 .token = command.metrics_token});
}

/// `default_space`: the namespace of the API access; empty: it has none. The fetcher is left out.
Result<AgentSettings> settings_of(const AgentProgramOptions& command, std::chrono::seconds drain_timeout,
                                  const std::string& default_space) {
  auto release = vfio::release_list(command.release);
  if (!release) return fail(std::move(release).error());
  const std::string space = command.space.empty() ? default_space : command.space;
  if (space.empty()) {
    return fail(Errc::usage, "the namespace of the ConfigMaps is not known",
                "name it: --namespace, or POD_NAMESPACE");
  }
  // "NAMESPACE/NAME", or a name in the agent's own namespace.
  const auto slash = command.kata_classes.find('/');
  const bool has_space = slash != std::string::npos;
  return AgentSettings{
      .node = command.node,
      .space = space,
      .config_maps = command.config_files.empty() || command.has_config_map ? command.config_maps
                                                                            : std::vector<std::string>(),
      .config_files = command.config_files,
      .among_others = command.among_others,
      .operator_space = command.without_operator ? "" : command.operator_space,
      .owner_spaces = command.owner_spaces,
      .defaults = {.workload = parse_workload(command.default_workload),
                   .policy = command.default_policy,
                   .vgpu_config = command.default_vgpu_config,
                   .release = std::move(*release)},
      // Beside NVIDIA's programs the agent has their role, which permits no Leases.
      .most_changing = command.among_others ? 0 : command.max_unavailable,
      .drain_timeout = command.drain ? std::optional(drain_timeout) : std::nullopt,
      .not_confidential = command.not_confidential,
      .sets_cc_mode = command.sets_cc_mode,
      .features = parse_feature_way(command.feature_labels).value_or(FeatureWay::none),
      .feature_owner = command.feature_owner,
      .kata_classes = has_space ? command.kata_classes.substr(slash + 1) : command.kata_classes,
      .kata_space = has_space ? command.kata_classes.substr(0, slash) : space,
      .pull = {.secrets = command.pull_secrets.empty() ? std::nullopt : std::optional(command.pull_secrets)}};
}

Result<> serve(const AgentProgramOptions& command, HostFs& host, const std::stop_token& stop) {
  const auto drain_timeout = duration_of("--drain-timeout", command.drain_timeout);
  if (!drain_timeout) return fail(drain_timeout.error());
  auto shown = metrics_settings(command);
  if (!shown) return fail(std::move(shown).error());
  auto access = kube::cluster_access({.kubeconfig = command.kubeconfig, .context = command.context},
                                     process_environment());
  if (!access) return fail(std::move(access).error());
  auto settings = settings_of(command, *drain_timeout, access->default_namespace);
  if (!settings) return fail(std::move(settings).error());
  auto loop = EventLoop::create();
  if (!loop) return fail(std::move(loop).error());
  kube::LoopTimers timers(**loop);
  kube::CurlTransport curl(**loop, std::move(*access));
  kube::CountedTransport transport(curl);
  const kube::Random random = kube::random_numbers();
  FetchRunner fetcher(**loop, host);
  if (!settings->kata_classes.empty()) settings->fetcher = &fetcher;
  NodeAgent agent(
      host, transport, timers, random, [] { return std::chrono::system_clock::now(); }, std::move(*settings));
  FolderWatch of_configs(**loop, [&agent] { agent.configurations_changed(); });
  std::optional<NodeMetrics> metrics;
  std::optional<MetricsServer> scraped;
  HostWatch files(**loop, host, [&agent, &metrics] {
    agent.host_changed();
    if (metrics) metrics->host_changed();
  });
  AgentInstance only(**loop, host, [&]() -> Result<> {
    for (const auto& file : command.config_files) {
      const auto folder = file.has_parent_path() ? file.parent_path() : ".";
      if (auto watched = of_configs.add(folder); !watched) return watched;
    }
    if (auto begun = files.begin(); !begun) return begun;
    if (*shown) {
      metrics.emplace(
          **loop, host, [&transport] { return transport.counts(); }, [&agent] { return agent.vmis(); },
          [&agent] { return agent.node_labels(); }, [&agent] { return agent.pulls(); });
      scraped.emplace(**loop, std::move(**shown), [&metrics] { return metrics->text(); });
      if (auto begun = scraped->begin(); !begun) return begun;
      metrics->begin();
    }
    return agent.begin();
  });
  // Before it ends, the agent resumes the operands that it paused and gives back its rollout lease.
  std::stop_source left;
  const std::stop_callback leaves(stop,
                                  [&] { (*loop)->post([&] { agent.leave([&] { left.request_stop(); }); }); });
  return only.run(left.get_token());
}

}  // namespace
}  // namespace ferry::agent

int main(int argc, char** argv) {
  ferry::guard_standard_streams();
  if (argc > 1 && std::string_view(argv[1]) == "get") return ferry::agent::get_program(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "retire")
    return ferry::agent::retire_program(argc - 1, argv + 1);
  CLI::App app("Turns the labels of a Node into the desired state of its host, and reports the result",
               "ferry agent");
  app.set_version_flag("--version", std::string("ferry ") + ferry::kVersion);
  ferry::agent::AgentProgramOptions options;
  const ferry::agent::AgentOptionList list(app, options);
  app.get_option("--node-name")->envname("NODE_NAME")->required();
  app.get_option("--namespace")->envname("POD_NAMESPACE");
  ferry::cli::DaemonOptions daemon;
  ferry::cli::add_daemon_options(app, daemon);
  return ferry::cli::run_daemon(app, argc, argv, daemon, "ferry-agent",
                                [&](ferry::HostFs& host, const std::stop_token& stop) {
                                  // hostd removes the files that this agent pulls, as a member of their
                                  // group: new files stay group-writable.
                                  if (::geteuid() != 0) ::umask(S_IWOTH);
                                  return ferry::agent::serve(options, host, stop);
                                });
}
