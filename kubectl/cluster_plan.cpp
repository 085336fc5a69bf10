// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "agent/agent_options.h"
#include "agent/cluster_objects.h"
#include "agent/operator_compat/two_owners.h"
#include "api/labels.h"
#include "cli/output/table.h"
#include "cli/output/text_output.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "common/text/words.h"
#include "kata-manager/classes/kubernetes_words.h"
#include "kube/api_error.h"
#include "kubectl/agent_pod.h"
#include "kubectl/cluster_reader.h"
#include "kubectl/cluster_verbs.h"
#include "policy/policy_export.h"
#include "vfio/quiesce/release.h"

namespace ferry::kubectl {
namespace {

using nlohmann::json;

Error no_change(const std::string& word, const char* why) {
  return {.code = Errc::usage,
          .message = fmt::format("'{}': {}", word, why),
          .hint = "KEY=VALUE sets a label, KEY- removes it: gpu-ferry.io/policy=NAME"};
}

/// Errc::usage: a label of Ferry's domain that the agent does not read, most likely a typing error. The pages
/// have users remove the agent's own labels together with a change, and that alone changes nothing.
Result<> check_is_read(const std::string& word, const std::string& key, bool removal) {
  constexpr std::string_view kDomain = "gpu-ferry.io/";
  static const std::vector<std::string> kRead = {api::kPolicyLabel, "gpu-ferry.io/deploy"};
  if (!key.starts_with(kDomain) || std::ranges::find(kRead, key) != kRead.end()) return {};
  if (removal && (key == api::kStateLabel || key.starts_with(api::kKataPrefix))) return {};
  return fail(Errc::usage,
              fmt::format("'{}': Ferry reads no label {}{}", word, key, did_you_mean(key, kRead)),
              fmt::format("Ferry reads {}; it writes its other labels itself", fmt::join(kRead, " and ")));
}

/// The options of the agent on a node, by the node's own pods. Else the user's words count, then the agent of
/// another node, then the names of the chart. `notes` gets what is not known.
Result<agent::AgentProgramOptions> find_agent(const kube::AskForPart& ask, const std::vector<json>& on_node,
                                              const AssumedAgent& assumed, bool kept_off,
                                              std::vector<std::string>& notes) {
  for (const json& pod : on_node) {
    auto options = agent_options_in(pod);
    if (!options) continue;
    if (!options->config_files.empty())
      notes.emplace_back("the agent reads configurations from files too, which are not known here");
    return std::move(*options);
  }

  agent::AgentProgramOptions out;
  out.space = "ferry";
  out.config_maps = {"ferry-policies", "ferry-vgpu-profiles"};
  std::string defaults = "without defaults";
  if (assumed.space.empty() || assumed.config_maps.empty()) {
    const auto pods =
        kube::list_by_parts(ask, {.kind = kube::kPods, .labels = "app.kubernetes.io/component=agent"});
    if (!pods) return fail(pods.error());
    for (const json& pod : *pods) {
      auto options = agent_options_in(pod);
      if (!options) continue;
      out = std::move(*options);
      defaults = "as the agent on node " + text_field(json_at(pod, "spec"), "nodeName");
      break;
    }
  }
  if (!assumed.space.empty()) out.space = assumed.space;
  if (!assumed.config_maps.empty()) out.config_maps = assumed.config_maps;
  notes.push_back(
      fmt::format("no pod on this node runs ferry-agent: {}; it is assumed to read ConfigMap {} in namespace "
                  "{}, {}",
                  kept_off ? "gpu-ferry.io/deploy=false keeps it off, unless it is a service of the host"
                           : "unless a service of the host does, nothing happens",
                  fmt::join(out.config_maps, ", "), out.space, defaults));
  return out;
}

/// resolve_desired_state(), but nothing where no pod of Ferry's can be.
agent::DesiredState desired_on(const policy::NodeObject& node, const std::vector<ConfigText>& configs,
                               const agent::DesiredDefaults& defaults, const std::vector<Error>& unreadable) {
  if (!is_kept_off(node.labels)) return agent::resolve_desired_state(node, configs, defaults, unreadable);
  agent::DesiredState out;
  out.reason = "the label gpu-ferry.io/deploy=false keeps Ferry off";
  return out;
}

LabelPlan::Effect effect_of(const agent::DesiredState& now, const agent::DesiredState& then) {
  using Effect = LabelPlan::Effect;
  using Kind = agent::DesiredState::Kind;
  switch (then.kind) {
    case Kind::policy: {
      const bool same = now.kind == Kind::policy &&
                        agent::same_policy(now.desired_policy.policy, then.desired_policy.policy);
      return same ? Effect::same : Effect::change;
    }
    case Kind::nothing:
      return now.kind == Kind::nothing ? Effect::same : Effect::left_as_is;
    case Kind::invalid:
      return Effect::invalid;
    case Kind::standby:
      break;
  }
  return Effect::standby;
}

/// Existing DaemonSets of the operator are not looked up, so a label without a pod is only a note.
void judge(const agent::AgentProgramOptions& agent, const agent::Labels& labels,
           const std::vector<json>& pods, LabelPlan& plan) {
  const bool was_off = is_kept_off(plan.node.labels);
  const bool is_off = is_kept_off(labels);
  if (is_off) {
    plan.effect = was_off ? LabelPlan::Effect::same : LabelPlan::Effect::left_as_is;
    if (!was_off)
      plan.notes.emplace_back(
          "Ferry's pods leave the node: its VMs keep running, and no new VM gets a GPU there");
    return;
  }
  if (was_off)
    plan.notes.emplace_back("Ferry's pods come to the node, and advertise the GPUs that are ready for VMs");
  std::map<std::string, json> by_name;
  for (const json& pod : pods) by_name.emplace(full_name(pod), pod);
  const auto owners = agent::other_owners(
      labels, {.pods = agent::pods_of(by_name, agent::believed_by(agent)), .daemon_sets = {}});
  if (std::ranges::any_of(owners, &agent::OtherOwner::seen)) {
    plan.effect = LabelPlan::Effect::standby;
    plan.then.reason = agent::standby_because(owners);
    return;
  }
  if (!owners.empty())
    plan.notes.push_back("where the DaemonSet of that label exists: " + agent::standby_because(owners));
  plan.effect = effect_of(plan.now, plan.then);
}

std::string text_of(const policy::Policy& policy) {
  return policy::policy_text({.file = {}, .policies = {policy}});
}

std::string sentence(const agent::DesiredState& status) {
  switch (status.kind) {
    case agent::DesiredState::Kind::policy:
      return fmt::format("policy {} ({})", status.desired_policy.name, status.desired_policy.source);
    case agent::DesiredState::Kind::nothing:
      return fmt::format("nothing: {}", status.reason);
    case agent::DesiredState::Kind::invalid:
      return fmt::format("this cannot be done: {}", status.error.message);
    case agent::DesiredState::Kind::standby:
      break;
  }
  return status.reason;
}

std::string effect_text(const LabelPlan& plan) {
  switch (plan.effect) {
    case LabelPlan::Effect::same:
      return "nothing would change: that is asked for already";
    case LabelPlan::Effect::change:
      return "hostd would be asked for this, when the node gets a rollout lease; GPUs in their desired mode "
             "are not touched, and a GPU in use is blocked until its user ends:";
    case LabelPlan::Effect::left_as_is:
      return "nothing would be asked for any more: the GPUs would stay as they are";
    case LabelPlan::Effect::standby:
      return "nothing would be done: " + plan.then.reason;
    case LabelPlan::Effect::invalid:
      break;
  }
  return "nothing would be done, and the node's state would be failed";
}

constexpr const char* kUnknown =
    "only the node knows the mode of each GPU and its other users: `ferry apply --dry-run -f FILE -c NAME` "
    "there prints the writes";

}  // namespace

Result<agent::LabelChanges> parse_label_changes(const std::vector<std::string>& words) {
  static const std::vector<std::string> kWorkloads = {"container", "vm-passthrough", "vm-vgpu"};
  agent::LabelChanges out;
  for (const std::string& word : words) {
    const auto equals = word.find('=');
    const bool removal = equals == std::string::npos && word.ends_with('-');
    if (equals == std::string::npos && !removal) return fail(no_change(word, "that is no change of a label"));
    const std::string key = removal ? word.substr(0, word.size() - 1) : word.substr(0, equals);
    if (!kata::is_label_key(key)) return fail(no_change(word, "no label can have that key"));
    if (auto read = check_is_read(word, key, removal); !read) return fail(std::move(read).error());

    const auto value = removal ? std::nullopt : std::optional(word.substr(equals + 1));
    if (value && !kata::is_label_value(*value)) return fail(no_change(word, "no label can have that value"));
    if (value && key == api::kWorkloadLabel && !agent::parse_workload(*value))
      return fail(
          Errc::usage,
          fmt::format("'{}': there is no workload '{}'{}", word, *value, did_you_mean(*value, kWorkloads)),
          fmt::format("the workloads are {}", fmt::join(kWorkloads, ", ")));

    if (!out.emplace(key, value).second) return fail(no_change(word, "that label comes twice"));
  }
  return out;
}

Result<LabelPlan> read_label_plan(const kube::AskForPart& ask, const std::string& node,
                                  const agent::LabelChanges& changes, const AssumedAgent& assumed) {
  LabelPlan plan;
  auto objects = read_cluster_node(ask, node);
  if (!objects) return fail(std::move(objects).error());
  plan.node = agent::node_object_of(objects->nodes.front());
  auto agent = find_agent(ask, objects->pods, assumed, is_kept_off(plan.node.labels), plan.notes);
  if (!agent) return fail(std::move(agent).error());

  std::vector<ConfigText> configs;
  std::vector<Error> unreadable;
  for (const std::string& name : agent->config_maps) {
    auto found = kube::list_by_parts(ask, kube::only(kube::config_map_ref(agent->space, name)));
    if (!found && found.error().code != kube::ApiErrc::forbidden) return fail(std::move(found).error());
    if (!found) {
      unreadable.push_back(std::move(found).error());
      continue;
    }
    for (const json& object : *found)
      std::ranges::move(agent::configurations_of(object), std::back_inserter(configs));
    if (found->empty()) plan.notes.push_back(fmt::format("there is no ConfigMap {}/{}", agent->space, name));
  }
  auto release = vfio::release_list(agent->release);
  if (!release) return fail(std::move(release).error());
  const agent::DesiredDefaults defaults{.workload = agent::parse_workload(agent->default_workload),
                                        .policy = agent->default_policy,
                                        .vgpu_config = agent->default_vgpu_config,
                                        .release = std::move(*release)};

  policy::NodeObject then = plan.node;
  then.labels = agent::with_changes(then.labels, changes);
  for (const auto& [key, value] : changes) {
    const auto has = plan.node.labels.find(key);
    const bool same = has == plan.node.labels.end() ? !value : value == has->second;
    if (!same) plan.labels.emplace(key, value);
  }
  plan.now = desired_on(plan.node, configs, defaults, unreadable);
  plan.then = desired_on(then, configs, defaults, unreadable);
  for (const std::string& warning : plan.then.warnings) plan.notes.push_back(warning);
  judge(*agent, then.labels, objects->pods, plan);
  for (GpuUser& user : cluster_gpus(*objects).users)
    if (user.is_on(plan.node.name)) plan.users.push_back(std::move(user));
  return plan;
}

std::string_view text(LabelPlan::Effect effect) {
  using Effect = LabelPlan::Effect;
  constexpr Words<Effect, 5> kWords = {{{"same", Effect::same},
                                        {"change", Effect::change},
                                        {"left_as_is", Effect::left_as_is},
                                        {"standby", Effect::standby},
                                        {"invalid", Effect::invalid}}};
  return word_for(kWords, effect, "invalid");
}

json plan_document(const LabelPlan& plan) {
  auto labels = json::array();
  for (const auto& [key, value] : plan.labels) {
    const auto has = plan.node.labels.find(key);
    labels.push_back({{"name", key},
                      {"now", has == plan.node.labels.end() ? json() : json(has->second)},
                      {"then", or_null(value)}});
  }
  auto in_use = json::array();
  for (const GpuUser& user : plan.users)
    in_use.push_back({{"user", user.text()}, {"resources", user.resources}});
  const bool has_policy = plan.then.kind == agent::DesiredState::Kind::policy;
  return {{"node", plan.node.name},
          {"effect", text(plan.effect)},
          {"labels", std::move(labels)},
          {"now", sentence(plan.now)},
          {"then", sentence(plan.then)},
          {"policy", has_policy ? json(text_of(plan.then.desired_policy.policy)) : json()},
          {"in_use", std::move(in_use)},
          {"notes", plan.notes}};
}

std::string plan_text(const LabelPlan& plan, std::optional<std::size_t> columns) {
  std::string out = fmt::format("node {}\n", plan.node.name);
  const auto say = [&](const std::string& text) { out += cli::wrapped_lines(text, columns); };
  if (!plan.labels.empty()) {
    cli::Table table({"LABEL", "CURRENT", "DESIRED"});
    for (const auto& [key, value] : plan.labels) {
      const auto has = plan.node.labels.find(key);
      table.add({key, has == plan.node.labels.end() ? "" : has->second, value.value_or("")});
    }
    out += table.text(columns);
  }
  say("now asked for: " + sentence(plan.now));
  say("then asked for: " + sentence(plan.then));
  say(effect_text(plan));
  if (plan.effect == LabelPlan::Effect::change) {
    out += text_of(plan.then.desired_policy.policy);
    for (const GpuUser& user : plan.users) {
      for (const auto& [resource, count] : user.resources)
        say(fmt::format("in use: {} x {} by {}", count, resource, user.text()));
    }
    say(fmt::format("note: {}", kUnknown));
  }
  for (const std::string& note : plan.notes) say("note: " + note);
  return out;
}

ExitStatus plan_status(const LabelPlan& plan) {
  if (plan.effect == LabelPlan::Effect::invalid) return ExitStatus::usage;
  return plan.effect == LabelPlan::Effect::standby ? ExitStatus::refused : ExitStatus::done;
}

}  // namespace ferry::kubectl
