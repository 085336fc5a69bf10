// SPDX-License-Identifier: Apache-2.0
// `agent --once`: reconciles a Node object and the host once, without an API server.
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/host_files.h"
#include "agent/labels/feature_labels.h"
#include "agent/reconcile.h"
#include "api/files.h"
#include "cli/output/document.h"
#include "cli/output/table.h"
#include "cli/verbs/agent_program.h"
#include "cli/verbs/verbs.h"
#include "common/config/config_tree.h"
#include "common/text/json.h"
#include "common/text/words.h"
#include "hostfs/locks.h"
#include "policy/kubernetes_files.h"
#include "vfio/quiesce/release.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

/// The snapshot without the host's side, which is read only once no other agent writes there.
Result<agent::NodeSnapshot> snapshot_of(const AgentOptions& options) {
  agent::NodeSnapshot snapshot;
  auto node = policy::read_node_object(options.node);
  if (!node) return fail(std::move(node).error());
  snapshot.node = std::move(*node);
  for (const auto& file : options.configs) {
    auto text = read_carried_text(file, "policy");
    if (!text) return fail(std::move(text).error());
    snapshot.configs.push_back(std::move(*text));
  }
  auto release = vfio::release_list(options.program.release);
  if (!release) return fail(std::move(release).error());
  snapshot.defaults = {.workload = agent::parse_workload(options.program.default_workload),
                       .policy = options.program.default_policy,
                       .vgpu_config = options.program.default_vgpu_config,
                       .release = std::move(*release)};
  snapshot.features =
      agent::parse_feature_way(options.program.feature_labels).value_or(agent::FeatureWay::none);
  snapshot.not_confidential = options.program.not_confidential;
  snapshot.sets_cc_mode = options.program.sets_cc_mode;
  snapshot.others.pods = std::vector<agent::PodOnNode>();  // a single reconcile waits for no pods
  if (options.handed_over) {
    snapshot.others.daemon_sets = std::set<std::string>();
    snapshot.others.unserved = agent::kUnservedPatience;
  }
  return snapshot;
}

void add(agent::LabelChanges& all, const agent::LabelChanges& later) {
  for (const auto& [key, value] : later) all[key] = value;
}

// Without an API server each label counts as set at once, so the reconciles of one change run in a row.
agent::ReconcileResult steps_of(agent::NodeSnapshot snapshot) {
  agent::ReconcileResult all = agent::reconcile(snapshot);
  constexpr int kMostAttempts = 3;
  for (int attempt = 1; attempt < kMostAttempts && !all.waits_for.empty(); ++attempt) {
    snapshot.node.labels = agent::with_changes(snapshot.node.labels, all.labels);
    snapshot.node.annotations = agent::with_changes(snapshot.node.annotations, all.annotations);
    agent::ReconcileResult next = agent::reconcile(snapshot);
    add(all.labels, next.labels);
    add(all.annotations, next.annotations);
    all.desired_file = std::move(next.desired_file);
    all.waits_for = std::move(next.waits_for);
  }
  return all;
}

std::string sentence(const agent::DesiredState& desired_state) {
  switch (desired_state.kind) {
    case agent::DesiredState::Kind::policy:
      return fmt::format("policy {}, by {}", desired_state.desired_policy.name,
                         desired_state.desired_policy.source);
    case agent::DesiredState::Kind::nothing:
      return "left as it is: " + desired_state.reason;
    case agent::DesiredState::Kind::standby:
      return desired_state.reason;
    case agent::DesiredState::Kind::invalid:
      break;
  }
  return "left as it is: what is asked for cannot be";
}

json to_json(const agent::LabelChanges& changes) {
  json out = json::object();
  for (const auto& [key, value] : changes) out[key] = or_null(value);
  return out;
}

/// The results that a step lacks: a change of serving.json (a planned one in a dry run), and hostd's state.
struct Written {
  bool serving = false;
  std::optional<bool> hostd_runs = {};  ///< absent: it cannot be determined
};

/// A hint for people who wait for the change. Empty: nothing is awaited, or hostd's state is unknown.
std::string_view how_it_goes_on(const agent::ReconcileResult& step, const Written& written, bool dry_run) {
  const agent::NodeCondition now = step.report.condition;
  if (step.desired_state.kind != agent::DesiredState::Kind::policy || now == agent::NodeCondition::ready ||
      !written.hostd_runs)
    return {};
  if (!*written.hostd_runs)
    return "ferry hostd does not run, so nothing is applied now; `ferry hostd --once` applies it once";
  const bool begun = now == agent::NodeCondition::pending || now == agent::NodeCondition::applying;
  if (!begun || (dry_run && step.desired_file)) return {};
  return "ferry hostd applies this now; run the same command again to see the result";
}

const char* action_on_serving(const agent::ReconcileResult& step, const Written& written) {
  if (!written.serving || !step.standby) return "kept";
  return step.standby->empty() ? "removed" : "written";
}

json document_of(const agent::NodeSnapshot& snapshot, const agent::ReconcileResult& step,
                 const Written& written, bool dry_run) {
  using Kind = agent::DesiredState::Kind;
  constexpr Words<Kind, 3> kKinds = {
      {{"policy", Kind::policy}, {"nothing", Kind::nothing}, {"standby", Kind::standby}}};
  const agent::DesiredState& desired_state = step.desired_state;
  const bool policy = desired_state.kind == Kind::policy;
  const bool invalid = desired_state.kind == Kind::invalid;
  json events = json::array();
  for (const agent::NodeEvent& event : step.events) {
    events.push_back({{"type", event.warning ? "Warning" : "Normal"},
                      {"reason", event.reason},
                      {"message", event.message}});
  }
  const json generation = step.desired_file ? json(step.desired_file->generation.value_or(0)) : json();
  const char* const action = step.desired_file ? "written" : step.remove_desired_file ? "removed" : "kept";
  return {{"node", snapshot.node.name},
          {"dry_run", dry_run},
          {"desired_state",
           {{"kind", word_for(kKinds, desired_state.kind, "invalid")},
            {"policy", policy ? json(desired_state.desired_policy.name) : json(nullptr)},
            {"source", policy ? json(desired_state.desired_policy.source) : json(nullptr)},
            {"reason", desired_state.reason},
            {"error", invalid ? ferry::cli::to_json(desired_state.error) : json(nullptr)},
            {"warnings", desired_state.warnings}}},
          {"state", text(step.report.condition)},
          {"hostd_runs", or_null(written.hostd_runs)},
          {"labels", to_json(step.labels)},
          {"annotations", to_json(step.annotations)},
          {"events", events},
          {"desired_file",
           {{"path", std::string("/") + api::kDesiredFile}, {"action", action}, {"generation", generation}}},
          {"serving_file",
           {{"path", std::string("/") + api::kServingFile}, {"action", action_on_serving(step, written)}}},
          {"node_feature", or_null(step.node_feature)}};
}

void add_rows(Table& table, const char* kind, const agent::Labels& now, const agent::LabelChanges& changes) {
  for (const auto& [key, value] : changes) {
    const auto found = now.find(key);
    table.add({kind, key, found == now.end() ? "" : found->second, value.value_or("")});
  }
}

std::string text_of(const Session& session, const agent::NodeSnapshot& snapshot,
                    const agent::ReconcileResult& step, const Written& written) {
  const char* const would = session.dry_run ? "would be " : "";
  std::string out = fmt::format("node {}: {}\nstate: {}\n", snapshot.node.name, sentence(step.desired_state),
                                text(step.report.condition));
  if (const auto more = how_it_goes_on(step, written, session.dry_run); !more.empty())
    out += fmt::format("  {}\n", more);
  const auto file = [&](std::string_view path, const std::string& what, const std::string& why) {
    out += fmt::format("/{}: {}{}\n", path, would, what);
    if (session.explain) out += fmt::format("  because {}\n", why);
  };
  if (step.desired_file) {
    file(api::kDesiredFile, fmt::format("written, generation {}", step.desired_file->generation.value_or(0)),
         step.desired_state.desired_policy.source);
  } else if (step.remove_desired_file) {
    file(api::kDesiredFile, "removed", step.desired_state.reason);
  }
  if (written.serving && step.standby)
    file(api::kServingFile, action_on_serving(step, written),
         step.standby->empty() ? "no device plugin of NVIDIA's serves this node" : *step.standby);
  if (!step.labels.empty() || !step.annotations.empty()) {
    Table table({"KIND", "NAME", "CURRENT", "DESIRED"});
    add_rows(table, "label", snapshot.node.labels, step.labels);
    add_rows(table, "annotation", snapshot.node.annotations, step.annotations);
    out += table.text();
  }
  if (step.node_feature && !step.node_feature->empty()) {
    Table table({"KIND", "NAME", "DESIRED"});
    for (const auto& [key, value] : *step.node_feature) table.add({"NodeFeature", key, value});
    out += table.text();
  }
  for (const agent::NodeEvent& event : step.events)
    out +=
        fmt::format("event {} {}: {}\n", event.warning ? "Warning" : "Normal", event.reason, event.message);
  return out;
}

/// An error if the options do not fit `--once`, or do not fit a long-running agent.
std::optional<Error> misuse(const Session& session, const AgentOptions& options) {
  const auto wrong = [](const char* message, const char* hint) {
    return Error{.code = make_error_code(Errc::usage), .message = message, .hint = hint};
  };
  const bool of_files =
      !options.node.empty() || !options.configs.empty() || options.handed_over || session.dry_run;
  if (!options.once && of_files)
    return wrong("agent: --node-file, --config, --handed-over and --dry-run are for one look",
                 "add --once; without it --node-name says whose Node the API server is asked for");
  if (options.once && options.node.empty())
    return wrong("agent --once: no Node object is named", "--node-file FILE, or - for standard input");
  if (options.once && !options.only_for_the_server.empty())
    return Error{
        .code = make_error_code(Errc::usage),
        .message = "agent --once: it asks no API server, for which " + options.only_for_the_server + " is",
        .hint = options.only_for_the_server == "--config-file" ? "--config FILE names what it reads"
                                                               : "leave out one of the two"};
  return std::nullopt;
}

}  // namespace

ExitStatus agent_verb(const Session& session, const AgentOptions& options) {
  if (const auto wrong = misuse(session, options)) return complain(*wrong);
  if (!options.once) return complain(become_program("ferry-agent", options.words));
  auto snapshot = snapshot_of(options);
  if (!snapshot) return complain(snapshot.error());
  std::optional<InstanceLock> only;
  if (!session.dry_run) {
    if (auto allowed = require_root(session); !allowed) return complain(allowed.error());
    // A running agent would overwrite the files, and the GPUs would change twice.
    auto mine = InstanceLock::claim(*session.host, api::kAgentLock);
    if (!mine && mine.error().code == Errc::refused)
      return complain(
          {.code = make_error_code(Errc::refused),
           .message = fmt::format("/{}: a ferry agent serves this node", api::kAgentLock),
           .hint = "change the Node's labels in the cluster, or stop that agent first; --dry-run looks all "
                   "the same"});
    if (!mine) return complain(mine.error());
    only = std::move(*mine);
  }
  auto host = agent::read_host_side(*session.host);
  if (!host) return complain(host.error());
  snapshot->host = std::move(*host);
  const agent::ReconcileResult step = steps_of(*snapshot);
  if (!session.dry_run) {
    if (auto written = agent::write_desired_file(*session.host, step); !written)
      return complain(written.error());
  }
  const auto serving = agent::write_serving(*session.host, step, session.dry_run);
  if (!serving) return complain(serving.error());
  Written written = {.serving = *serving};
  if (const auto runs = is_present(*session.host, api::kHostdLiveness)) written.hostd_runs = *runs;
  print(session, {.document = document_of(*snapshot, step, written, session.dry_run),
                  .text = text_of(session, *snapshot, step, written)});
  if (step.desired_state.kind == agent::DesiredState::Kind::invalid) {
    Error error = step.desired_state.error;
    // The original hint is made for the cluster and names ConfigMaps.
    if (options.configs.empty())
      error.hint = "--config FILE names a policy (docs/policy.md) or a vGPU profile file";
    return complain(error);
  }
  return step.desired_state.kind == agent::DesiredState::Kind::standby ? ExitStatus::refused
                                                                       : ExitStatus::done;
}

}  // namespace ferry::cli
