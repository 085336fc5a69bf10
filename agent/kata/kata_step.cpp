// SPDX-License-Identifier: Apache-2.0
#include "agent/kata/kata_step.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "agent/labels/own_labels.h"
#include "agent/rollout/rollout.h"
#include "api/events.h"
#include "api/files.h"
#include "api/labels.h"
#include "common/generation.h"

namespace ferry::agent {

Result<std::optional<kata::DesiredClasses>> desired_runtimes(const KataSource& source, const Labels& labels) {
  constexpr const char* kStay = "Kata's runtimes stay as they are";
  const auto without = [](const std::string& trouble) { return fail(Errc::invalid_config, trouble); };
  if (!source.is_known) return std::nullopt;
  if (!source.trouble.empty()) return without(fmt::format("{}: {}", source.trouble, kStay));
  if (source.texts.empty())
    return without(
        fmt::format("{} is not there, or has no class file: {}; one with `runtimeClasses: []` removes all",
                    source.name, kStay));
  if (source.texts.size() > 1)
    return without(
        fmt::format("{} has several keys, and none of them is config.yaml: {}", source.name, kStay));
  auto file = kata::read_classes(source.texts.front());
  if (!file) return fail(std::move(file).error());
  if (file->classes.empty()) {
    // A file without classes asks for none with an empty list.
    const auto root = parse_config(source.texts.front());
    const ConfigMember* const classes = root ? root->find("runtimeClasses") : nullptr;
    const bool says_none = classes != nullptr && classes->value.kind == ConfigNode::Kind::list;
    if (!says_none)
      return without(fmt::format("{}: no runtime classes in it: {}; `runtimeClasses: []` removes all",
                                 source.texts.front().file, kStay));
  }
  kata::DesiredClasses out{.config = source.texts.front(), .classes = {}, .source = source.name};
  for (const kata::KataClass& kata : file->classes)
    if (!kata.node_selector || has_all(labels, *kata.node_selector)) out.classes.push_back(kata.name);
  return out;
}

namespace {

bool has_state(const kata::HandlersFile& said, kata::HandlerState state) {
  return std::ranges::find(said.others, state, &kata::OtherHandler::state) != said.others.end();
}

bool has_label(const Labels& labels, const std::string& handler) {
  return labels.contains(api::kKataPrefix + handler);
}

/// Null: the file has no class with that handler.
const kata::KataClass* class_of(const std::optional<kata::ClassFile>& file, const std::string& handler) {
  if (!file) return nullptr;
  for (const kata::KataClass& kata : file->classes) {
    const auto handlers = kata.handlers();
    if (std::ranges::find(handlers, handler) != handlers.end()) return &kata;
  }
  return nullptr;
}

bool rests(const KataSnapshot& snapshot, const std::string& name) {
  const auto found = snapshot.pulls.find(name);
  return found != snapshot.pulls.end() && found->second.rests;
}

/// True if pods can start with the class's present files. Such a pull waits for the rollout lease, since
/// hostd changes the class as soon as its new files are there.
bool is_in_use(const HostSide& host, const kata::KataClass& kata) {
  return std::ranges::any_of(kata.handlers(),
                             [&](const std::string& name) { return host.kata.ready.contains(name); });
}

/// True if a pull needs the rollout lease and may be tried now.
bool pulls_in_turn(const HostSide& host, const KataSnapshot& snapshot,
                   const std::optional<kata::ClassFile>& file) {
  if (snapshot.pulls_no_more) return false;
  return std::ranges::any_of(host.kata.others, [&](const kata::OtherHandler& other) {
    const kata::KataClass* const kata = class_of(file, other.name);
    return other.state == kata::HandlerState::missing_artifact && kata != nullptr && is_in_use(host, *kata) &&
           !rests(snapshot, kata->name);
  });
}

std::string never_listed() {
  return fmt::format(
      "the container runtime has it for more than {} seconds, and the kubelet does not list it "
      "(status.runtimeHandlers): no pod is sent here with it. Does the kubelet use the container runtime "
      "whose socket ferry hostd has (its --container-runtime-endpoint)?",
      kListPatience.count());
}

std::string why_failed(const policy::NodeObject& node, const HostSide& host) {
  constexpr std::size_t kMost = 256;
  for (const kata::OtherHandler& other : host.kata.others)
    if (other.state == kata::HandlerState::failed) return one_line(other.name + ": " + other.why, kMost);
  const auto unlisted = unknown_to_kubelet(node, host.kata.ready);
  if (!unlisted.empty() && host.kata_unlisted > kListPatience)
    return one_line(*unlisted.begin() + ": " + never_listed(), kMost);
  return "ferry hostd says nothing";
}

/// Higher than any generation that hostd has read, even if that file was lost.
std::uint64_t generation_after(const HostSide& host) {
  const std::uint64_t written = host.kata_written ? host.kata_written->generation : 0;
  return next_generation(std::max(written, host.kata.generation.value_or(0)));
}

/// Sets the confidential mode of the node's GPUs, if it matters to a class of the file. If other classes may
/// use the GPUs than before, the desired state is new: it needs its own answer and rollout lease.
void say_mode(const policy::NodeObject& node, const HostSide& host, const kata::ClassFile& file,
              kata::DesiredClasses& next) {
  const bool matters = std::ranges::any_of(
      file.classes, [](const kata::KataClass& kata) { return kata::is_confidential(kata.kind); });
  const kata::ConfidentialMode before = kata::confidential_mode_of(next);
  const kata::ConfidentialMode now =
      matters ? kata::ConfidentialMode::of_labels(node.labels) : kata::ConfidentialMode();
  next.confidential_mode = now.state;
  const bool is_new = !host.kata_written || host.kata_written->generation != next.generation;
  const bool admits_the_same = std::ranges::all_of(file.classes, [&](const kata::KataClass& kata) {
    return before.admits(kata).has_value() == now.admits(kata).has_value();
  });
  if (is_new || admits_the_same) return;
  next.generation = generation_after(host);
  next.permitted = false;
}

/// Handlers without a label that are being removed, or that the present file lists as unlabelled.
std::set<std::string> unlabelled(const Labels& labels, const HostSide& host) {
  std::set<std::string> out;
  for (const kata::OtherHandler& other : host.kata.others) {
    const bool was = host.kata_written && host.kata_written->unlabelled.contains(other.name);
    const bool goes = other.state == kata::HandlerState::leaving || was;
    if (goes && !host.kata.ready.contains(other.name) && !has_label(labels, other.name))
      out.insert(other.name);
  }
  return out;
}

/// The result of the classes in `plan` on this node.
ChangeOutcome outcome_of(const policy::NodeObject& node, const HostSide& host, const KataSnapshot& snapshot,
                         const KataPlan& plan, bool has_lease) {
  const kata::HandlersFile& said = host.kata;
  const bool permitted = host.kata_written && host.kata_written->permitted;
  const bool has_begun = permitted || has_lease;
  if (said.applying) return ChangeOutcome::open;
  if (!plan.answered) return has_begun ? ChangeOutcome::open : ChangeOutcome::none;
  if (has_state(said, kata::HandlerState::failed)) return ChangeOutcome::failed;
  if (!permitted && !said.others.empty()) return ChangeOutcome::none;
  if (permitted) {
    const bool goes_on = has_state(said, kata::HandlerState::pending) ||
                         has_state(said, kata::HandlerState::installing) ||
                         pulls_in_turn(host, snapshot, plan.file);
    if (goes_on && said.error.empty()) return ChangeOutcome::open;
    // A handler that is blocked, or still lacks its files, proves nothing.
    if (!said.others.empty() || !said.error.empty()) return ChangeOutcome::blocked;
  }

  // The container runtime's answer is half of the proof: the kubelet, which starts pods, must list the
  // handlers.
  if (unknown_to_kubelet(node, said.ready).empty()) return ChangeOutcome::done;
  if (host.kata_unlisted > kListPatience) return ChangeOutcome::failed;
  return has_begun ? ChangeOutcome::open : ChangeOutcome::none;
}

/// The node's change to the classes in `plan`, for the rollout lease.
NodeChange change_of(const policy::NodeObject& node, const HostSide& host, const KataSnapshot& snapshot,
                     const KataPlan& plan, const Rollout* rollout) {
  NodeChange out;
  out.node = node.name;
  const auto& written = host.kata_written;
  out.written = written ? kata_configuration_id(written->config) : std::string();
  const bool has_lease =
      rollout != nullptr && std::ranges::any_of(rollout->leases, [&](const RolloutLease& lease) {
        return lease.holder == node.name && is_kata_configuration(lease.configuration);
      });
  out.outcome = outcome_of(node, host, snapshot, plan, has_lease);
  if (out.outcome == ChangeOutcome::open && host.kata_silent > kChangePatience)
    out.outcome = ChangeOutcome::failed;
  if (out.outcome == ChangeOutcome::failed) out.why = why_failed(node, host);

  // After a failure hostd reports `failed` until its pause is over, then `pending`. An interrupted change is
  // `pending` too.
  const bool permitted = written && written->permitted;
  if (plan.next && plan.answered && !permitted && host.kata.error.empty() &&
      (has_state(host.kata, kata::HandlerState::pending) || pulls_in_turn(host, snapshot, plan.file)))
    out.begin = kata_configuration_id(plan.next->config);
  return out;
}

// ---- messages for people

/// The messages for the node's error, each with the reason of its event. An empty reason: no event is
/// recorded.
std::vector<NodeEvent> troubles_of(const policy::NodeObject& node, const HostSide& host,
                                   const KataSnapshot& snapshot, const KataPlan& plan,
                                   const RolloutStep& rollout_step) {
  std::vector<NodeEvent> out;
  const auto add = [&out](const char* reason, std::string text) {
    out.push_back({.warning = true, .reason = reason, .message = std::move(text)});
  };
  if (!plan.trouble.empty()) add(api::event::kInvalidRuntimeClasses, plan.trouble);
  if (!snapshot.unwritable.empty()) add(api::event::kRuntimeFailed, snapshot.unwritable);
  if (!plan.next) return out;

  if (!plan.answered && !host.kata.applying && host.kata_silent > kAnswerPatience)
    add(api::event::kHostdUnavailable,
        fmt::format("ferry hostd has not taken up /{} for more than {} seconds; does it run on this node, "
                    "with --kata?",
                    api::kDesiredClassesFile, kAnswerPatience.count()));
  if (!host.kata.error.empty()) add(api::event::kRuntimeFailed, host.kata.error);
  for (const kata::OtherHandler& other : host.kata.others) {
    const bool blocked = other.state == kata::HandlerState::blocked;
    if (!blocked && other.state != kata::HandlerState::failed) continue;
    add(blocked ? api::event::kRuntimeBlocked : api::event::kRuntimeFailed,
        fmt::format("{}: {}{}{}", other.name, text(other.state), other.why.empty() ? "" : ": ", other.why));
  }
  for (const std::string& handler : unknown_to_kubelet(node, host.kata.ready)) {
    if (host.kata_unlisted > kListPatience)
      add(api::event::kRuntimeNotListed, handler + ": " + never_listed());
    else  // normal for some seconds, so there is no event
      add("", handler + ": the kubelet does not list it yet (status.runtimeHandlers)");
  }

  if (plan.file) {
    for (const kata::KataClass& kata : plan.file->classes) {
      const auto pull = snapshot.pulls.find(kata.name);
      if (pull != snapshot.pulls.end() && !pull->second.error.empty())
        add(api::event::kArtifactPullFailed, pull->second.error);
    }
  }
  if (!rollout_step.held.empty())
    add(api::event::kRolloutHeld,
        fmt::format("Kata's runtimes ({}) are held back: {}", plan.next->source, rollout_step.held));
  return out;
}

void record_events(const policy::NodeObject& node, const HostSide& host,
                   const std::vector<NodeEvent>& troubles, KataStep& step) {
  std::string all;
  for (const NodeEvent& trouble : troubles) all += (all.empty() ? "" : "; ") + trouble.message;
  step.trouble = one_line(all);
  if (!step.trouble.empty() && value_of(node.annotations, api::kKataErrorAnnotation) != step.trouble) {
    constexpr std::size_t kMostEvents = 8;
    for (NodeEvent trouble : troubles) {
      if (trouble.reason.empty() || step.events.size() >= kMostEvents) continue;
      trouble.message = one_line(trouble.message);
      step.events.push_back(std::move(trouble));
    }
  }
  for (const std::string& handler : labelled_handlers(node, host)) {
    if (!kata_labels({}, {handler}).empty() && !has_label(node.labels, handler))
      step.events.push_back({.warning = false,
                             .reason = api::event::kRuntimeReady,
                             .message = one_line("pods can be started with " + handler)});
  }
}

}  // namespace

KataPlan kata_plan(const policy::NodeObject& node, const HostSide& host, const KataSnapshot& snapshot,
                   const Rollout* rollout) {
  KataPlan out;
  auto runtimes = desired_runtimes(snapshot.source, node.labels);
  if (!runtimes) out.trouble = runtimes.error().text();
  auto desired = std::move(runtimes).value_or(std::nullopt);
  const auto& written = host.kata_written;
  out.next = written;
  if (desired) {
    const bool same =
        written && written->config.text == desired->config.text && written->classes == desired->classes;
    if (!same) {
      out.next = std::move(desired);
      out.next->generation = generation_after(host);
    }
    out.next->source = snapshot.source.name;
  }
  if (!out.next) return out;
  out.next->unlabelled = unlabelled(node.labels, host);
  if (auto file = kata::desired_class_file(*out.next)) out.file = std::move(*file);
  if (out.file) say_mode(node, host, *out.file, *out.next);
  out.answered =
      written && written->generation == out.next->generation && host.kata.generation == out.next->generation;
  out.change = change_of(node, host, snapshot, out, rollout);
  return out;
}

KataStep kata_step(const policy::NodeObject& node, const HostSide& host, const KataSnapshot& snapshot,
                   const KataPlan& plan, const RolloutStep& rollout_step) {
  KataStep out;
  if (plan.next) {
    kata::DesiredClasses next = *plan.next;
    const auto& written = host.kata_written;
    if (next.permitted) {
      next.permitted = plan.change.outcome == ChangeOutcome::open;
    } else if (!plan.change.begin.empty() && rollout_step.may_begin) {
      next.permitted = true;
      // Only hostd's answer to this generation is the result of the permission.
      next.generation = next_generation(next.generation);
    }
    const bool has_lease = next.permitted;
    const bool same = written && written->generation == next.generation &&
                      written->config.text == next.config.text && written->classes == next.classes &&
                      written->permitted == next.permitted && written->unlabelled == next.unlabelled &&
                      written->source == next.source && written->confidential_mode == next.confidential_mode;
    if (!same) out.file = std::move(next);
    std::set<std::string> named;
    for (const kata::OtherHandler& other : host.kata.others) {
      const kata::KataClass* const kata = class_of(plan.file, other.name);
      if (other.state != kata::HandlerState::missing_artifact || !plan.file || kata == nullptr) continue;
      if (!named.insert(kata->name).second) continue;
      out.pulls.push_back({.file = *plan.file,
                           .kata = *kata,
                           .configuration = kata_configuration_id(plan.next->config),
                           .waits = is_in_use(host, *kata) && !has_lease});
    }
  }
  if (plan.next && !plan.answered) out.awaited = kAnswerPatience;
  if (plan.change.outcome == ChangeOutcome::open) out.awaited = kChangePatience;
  out.awaits_kubelet = plan.next && !unknown_to_kubelet(node, host.kata.ready).empty();
  record_events(node, host, troubles_of(node, host, snapshot, plan, rollout_step), out);
  return out;
}

std::set<std::string> known_to_kubelet(const policy::NodeObject& node,
                                       const std::set<std::string>& handlers) {
  if (node.runtime_handlers.empty()) return handlers;
  std::set<std::string> out;
  std::ranges::set_intersection(handlers, node.runtime_handlers, std::inserter(out, out.end()));
  return out;
}

std::set<std::string> unknown_to_kubelet(const policy::NodeObject& node,
                                         const std::set<std::string>& handlers) {
  const auto known = known_to_kubelet(node, handlers);
  std::set<std::string> out;
  std::ranges::set_difference(handlers, known, std::inserter(out, out.end()));
  return out;
}

std::set<std::string> labelled_handlers(const policy::NodeObject& node, const HostSide& host) {
  std::set<std::string> out = known_to_kubelet(node, host.kata.ready);
  if (host.kata_written)
    for (const std::string& name : host.kata_written->unlabelled) out.erase(name);
  return out;
}

}  // namespace ferry::agent
