// SPDX-License-Identifier: Apache-2.0
#include "agent/kata_step.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "agent/cluster_words.h"
#include "agent/kata_labels.h"
#include "agent/node_turn.h"

namespace ferry {
namespace {

bool has_state(const HandlersFile& said, HandlerState state) {
  return std::ranges::find(said.others, state, &OtherHandler::state) != said.others.end();
}

bool has_label(const Labels& labels, const std::string& handler) {
  return labels.contains(kKataPrefix + handler);
}

/// Null: the file has no class with that handler.
const KataClass* class_of(const std::optional<ClassFile>& file, const std::string& handler) {
  if (!file) return nullptr;
  for (const KataClass& kata : file->classes) {
    const auto handlers = kata.handlers();
    if (std::ranges::find(handlers, handler) != handlers.end()) return &kata;
  }
  return nullptr;
}

bool rests(const KataView& view, const std::string& name) {
  const auto found = view.pulls.find(name);
  return found != view.pulls.end() && found->second.rests;
}

/// True if pods can start with the class's present files. A pull repoints the link to them at once, and a
/// class file or an administrator may name that link. So such a pull waits for the rollout lease.
bool is_in_use(const HostSide& host, const KataClass& kata) {
  return std::ranges::any_of(kata.handlers(),
                             [&](const std::string& name) { return host.kata.ready.contains(name); });
}

/// True if a pull needs the rollout lease and may be tried now.
bool pulls_in_turn(const HostSide& host, const KataView& view, const std::optional<ClassFile>& file) {
  if (view.pulls_no_more) return false;
  return std::ranges::any_of(host.kata.others, [&](const OtherHandler& other) {
    const KataClass* const kata = class_of(file, other.name);
    return other.state == HandlerState::missing_artifact && kata != nullptr && is_in_use(host, *kata) &&
           !rests(view, kata->name);
  });
}

/// The result of a permitted change, from hostd's answer.
ChangeOutcome outcome_of(const HostSide& host, const KataView& view, const std::optional<ClassFile>& file) {
  const HandlersFile& said = host.kata;
  if (has_state(said, HandlerState::failed)) return ChangeOutcome::failed;
  const bool goes_on = has_state(said, HandlerState::waiting) || has_state(said, HandlerState::installing) ||
                       pulls_in_turn(host, view, file);
  if (goes_on && said.error.empty()) return ChangeOutcome::open;
  // A handler that was refused, or still lacks its files, proves nothing.
  return said.others.empty() && said.error.empty() ? ChangeOutcome::done : ChangeOutcome::refused;
}

/// The container runtime's answer is half of the proof: the kubelet, which starts pods, must list the
/// handlers.
ChangeOutcome proven_by_kubelet(const NodeObject& node, const HostSide& host, ChangeOutcome outcome,
                                bool has_begun) {
  if (outcome != ChangeOutcome::done || unknown_to_kubelet(node, host.kata.ready).empty()) return outcome;
  if (host.kata_unlisted > kListPatience) return ChangeOutcome::failed;
  return has_begun ? ChangeOutcome::open : ChangeOutcome::none;
}

std::string never_listed() {
  return fmt::format(
      "the container runtime has it for more than {} seconds, and the kubelet does not list it "
      "(status.runtimeHandlers): no pod is sent here with it. Does the kubelet use the container "
      "runtime whose socket ferry hostd has (its --container-runtime-endpoint)?",
      kListPatience.count());
}

std::string why_failed(const NodeObject& node, const HostSide& host) {
  constexpr std::size_t kMost = 256;
  for (const OtherHandler& other : host.kata.others)
    if (other.state == HandlerState::failed) return told(other.name + ": " + other.why, kMost);
  const auto unlisted = unknown_to_kubelet(node, host.kata.ready);
  if (!unlisted.empty() && host.kata_unlisted > kListPatience)
    return told(*unlisted.begin() + ": " + never_listed(), kMost);
  return "ferry hostd says nothing";
}

/// Higher than any generation that hostd has read, even if that file was lost.
std::uint64_t next_generation(const HostSide& host) {
  const std::uint64_t written = host.kata_written ? host.kata_written->generation : 0;
  return std::max(written, host.kata.generation.value_or(0)) + 1;
}

WantedClasses next_file(const HostSide& host, const KataWish& wish) {
  const bool same = host.kata_written && host.kata_written->config.text == wish.config.text &&
                    host.kata_written->classes == wish.classes;
  if (same) return *host.kata_written;
  WantedClasses out;
  out.generation = next_generation(host);
  out.config = wish.config;
  out.classes = wish.classes;
  return out;
}

bool admit_the_same(const ConfidentialMode& a, const ConfidentialMode& b, const ClassFile& file) {
  return std::ranges::all_of(file.classes, [&](const KataClass& kata) {
    return a.admits(kata).has_value() == b.admits(kata).has_value();
  });
}

/// Sets the confidential mode of the node's GPUs, if it matters to a class of the file. If other classes may
/// use the GPUs than before, the desired state is new: it needs its own answer and rollout lease.
void say_mode(const NodeObject& node, const HostSide& host, const ClassFile& file, WantedClasses& next) {
  const bool matters =
      std::ranges::any_of(file.classes, [](const KataClass& kata) { return is_confidential(kata.kind); });
  const ConfidentialMode before = confidential_mode_of(next);
  const ConfidentialMode now = matters ? ConfidentialMode::of_labels(node.labels) : ConfidentialMode();
  next.confidential_mode = now.state;
  const bool is_new = !host.kata_written || host.kata_written->generation != next.generation;
  if (is_new || admit_the_same(before, now, file)) return;
  next.generation = next_generation(host);
  next.permitted = false;
}

/// Handlers without a label that are being removed, or that the present file lists as unlabelled.
std::set<std::string> unlabelled(const Labels& labels, const HostSide& host) {
  std::set<std::string> out;
  for (const OtherHandler& other : host.kata.others) {
    const bool was = host.kata_written && host.kata_written->unlabelled.contains(other.name);
    const bool goes = other.state == HandlerState::leaving || was;
    if (goes && !host.kata.ready.contains(other.name) && !has_label(labels, other.name))
      out.insert(other.name);
  }
  return out;
}

bool says_the_same(const WantedClasses& a, const WantedClasses& b) {
  return a.generation == b.generation && a.config.text == b.config.text && a.classes == b.classes &&
         a.permitted == b.permitted && a.unlabelled == b.unlabelled && a.asked_by == b.asked_by &&
         a.confidential_mode == b.confidential_mode;
}

// ---- messages for people

struct Line {
  const char* reason;  // the event's; null: no event is recorded
  std::string text;
};

void add_handlers(std::vector<Line>& out, const HandlersFile& said) {
  for (const OtherHandler& other : said.others) {
    const bool refused = other.state == HandlerState::refused;
    if (!refused && other.state != HandlerState::failed) continue;
    out.push_back(
        {refused ? "KataRefused" : "KataFailed",
         fmt::format("{}: {}{}{}", other.name, text(other.state), other.why.empty() ? "" : ": ", other.why)});
  }
}

std::vector<Line> lines_of(const NodeObject& node, const HostSide& host, const KataView& view,
                           const KataPlan& plan, const BudgetStep& turn) {
  std::vector<Line> out;
  if (!plan.wish.trouble.empty()) out.push_back({"KataClassesInvalid", plan.wish.trouble});
  if (!view.unwritable.empty()) out.push_back({"KataFailed", view.unwritable});
  if (!plan.next) return out;
  if (!plan.answered && !host.kata.changing && host.kata_silent > kAnswerPatience) {
    out.push_back(
        {"HostSilent", fmt::format("ferry hostd has not taken up /{} for more than {} seconds; does "
                                   "it run on this node, with --kata?",
                                   kWantedClassesFile, kAnswerPatience.count())});
  }
  if (!host.kata.error.empty()) out.push_back({"KataFailed", host.kata.error});
  add_handlers(out, host.kata);
  for (const std::string& handler : unknown_to_kubelet(node, host.kata.ready)) {
    if (host.kata_unlisted > kListPatience) {
      out.push_back({"KataNotListed", handler + ": " + never_listed()});
    } else {  // normal for some seconds, so there is no event
      out.push_back({nullptr, handler + ": the kubelet does not list it yet (status.runtimeHandlers)"});
    }
  }
  if (plan.file) {
    for (const KataClass& kata : plan.file->classes) {
      const auto pull = view.pulls.find(kata.name);
      if (pull != view.pulls.end() && !pull->second.error.empty())
        out.push_back({"KataPullFailed", pull->second.error});
    }
  }
  if (!turn.held.empty())
    out.push_back({"ChangeHeld",
                   fmt::format("Kata's runtimes ({}) are held back: {}", plan.next->asked_by, turn.held)});
  return out;
}

void tell(const NodeObject& node, const HostSide& host, const std::vector<Line>& lines, KataStep& step) {
  std::string all;
  for (const Line& line : lines) all += (all.empty() ? "" : "; ") + line.text;
  step.trouble = told(all);
  const auto shown = node.annotations.find(kKataErrorAnnotation);
  if (!step.trouble.empty() && (shown == node.annotations.end() || shown->second != step.trouble)) {
    constexpr std::size_t kMostEvents = 8;
    for (const Line& line : lines) {
      if (line.reason != nullptr && step.events.size() < kMostEvents)
        step.events.push_back({.warning = true, .reason = line.reason, .message = told(line.text)});
    }
  }
  for (const std::string& handler : labelled_handlers(node, host)) {
    if (!kata_labels({}, {handler}).empty() && !has_label(node.labels, handler))
      step.events.push_back(
          {.warning = false, .reason = "KataReady", .message = told("pods can be started with " + handler)});
  }
}

}  // namespace

KataPlan kata_plan(const NodeObject& node, const HostSide& host, const KataView& view,
                   const ChangeBudget* budget) {
  KataPlan out;
  out.wish = kata_wish(view.source, node.labels);
  if (out.wish.counts) {
    out.next = next_file(host, out.wish);
    out.next->asked_by = out.wish.asked_by;
  } else if (host.kata_written) {
    out.next = host.kata_written;
  }
  if (!out.next) return out;
  out.next->unlabelled = unlabelled(node.labels, host);
  if (auto file = wanted_class_file(*out.next)) out.file = std::move(*file);
  if (out.file) say_mode(node, host, *out.file, *out.next);
  const auto& written = host.kata_written;
  const bool is_written = written && written->generation == out.next->generation;
  const bool heard = host.kata.generation == out.next->generation;
  out.answered = is_written && heard;

  NodeChange& change = out.change;
  change.node = node.name;
  change.written = written ? kata_configuration_id(written->config) : std::string();
  const bool has_turn = budget != nullptr && std::ranges::any_of(budget->slots, [&](const ChangeSlot& slot) {
                          return slot.holder == node.name && is_kata_configuration(slot.configuration);
                        });
  const bool asked = written && written->permitted;
  if (host.kata.changing) {
    change.outcome = ChangeOutcome::open;
  } else if (!out.answered) {
    change.outcome = asked || has_turn ? ChangeOutcome::open : ChangeOutcome::none;
  } else if (asked) {
    change.outcome = outcome_of(host, view, out.file);
  } else if (has_state(host.kata, HandlerState::failed)) {
    change.outcome = ChangeOutcome::failed;
  } else {
    change.outcome = host.kata.others.empty() ? ChangeOutcome::done : ChangeOutcome::none;
  }
  change.outcome = proven_by_kubelet(node, host, change.outcome, asked || has_turn);
  if (change.outcome == ChangeOutcome::open && host.kata_silent > kChangePatience)
    change.outcome = ChangeOutcome::failed;
  if (change.outcome == ChangeOutcome::failed) change.why = why_failed(node, host);
  // After a failure hostd reports `failed` until its pause is over, then `waiting`. An interrupted change is
  // `waiting` too.
  if (out.answered && !asked && host.kata.error.empty() &&
      (has_state(host.kata, HandlerState::waiting) || pulls_in_turn(host, view, out.file)))
    change.begin = kata_configuration_id(out.next->config);
  return out;
}

KataStep kata_step(const NodeObject& node, const HostSide& host, const KataView& view, const KataPlan& plan,
                   const BudgetStep& turn) {
  KataStep out;
  if (plan.next) {
    WantedClasses next = *plan.next;
    const auto& written = host.kata_written;
    if (next.permitted) {
      next.permitted = plan.change.outcome == ChangeOutcome::open;
    } else if (!plan.change.begin.empty() && turn.may_begin) {
      next.permitted = true;
      // Only hostd's answer to this generation is the result of the permission.
      ++next.generation;
    }
    const bool has_turn = next.permitted;
    if (!written || !says_the_same(next, *written)) out.file = std::move(next);
    std::set<std::string> named;
    for (const OtherHandler& other : host.kata.others) {
      const KataClass* const kata = class_of(plan.file, other.name);
      if (other.state != HandlerState::missing_artifact || !plan.file || kata == nullptr) continue;
      if ((is_in_use(host, *kata) && !has_turn) || !named.insert(kata->name).second) continue;
      out.pulls.push_back(
          {.file = *plan.file, .kata = *kata, .configuration = kata_configuration_id(plan.next->config)});
    }
  }
  if (plan.next && !plan.answered) out.awaited = kAnswerPatience;
  if (plan.change.outcome == ChangeOutcome::open) out.awaited = kChangePatience;
  out.awaits_kubelet = plan.next && !unknown_to_kubelet(node, host.kata.ready).empty();
  tell(node, host, lines_of(node, host, view, plan, turn), out);
  return out;
}

std::set<std::string> known_to_kubelet(const NodeObject& node, const std::set<std::string>& handlers) {
  if (node.runtime_handlers.empty()) return handlers;
  std::set<std::string> out;
  std::ranges::set_intersection(handlers, node.runtime_handlers, std::inserter(out, out.end()));
  return out;
}

std::set<std::string> unknown_to_kubelet(const NodeObject& node, const std::set<std::string>& handlers) {
  const auto known = known_to_kubelet(node, handlers);
  std::set<std::string> out;
  std::ranges::set_difference(handlers, known, std::inserter(out, out.end()));
  return out;
}

std::set<std::string> labelled_handlers(const NodeObject& node, const HostSide& host) {
  std::set<std::string> out = known_to_kubelet(node, host.kata.ready);
  if (host.kata_written)
    for (const std::string& name : host.kata_written->unlabelled) out.erase(name);
  return out;
}

}  // namespace ferry
