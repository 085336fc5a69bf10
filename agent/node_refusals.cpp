// SPDX-License-Identifier: Apache-2.0
#include "agent/node_refusals.h"

#include <algorithm>
#include <array>

#include "api/labels.h"

namespace ferry::agent {
namespace {

// Factor of the pause after a refusal that only a person can end.
constexpr int kLongPause = 10;

/// Annotations for people, on which nothing depends.
constexpr std::array kNotes = {api::kErrorAnnotation, api::kKataErrorAnnotation};

bool has_notes(const NodeStep& step) {
  return std::ranges::any_of(kNotes, [&](const char* note) { return step.annotations.contains(note); });
}

bool concerns_a_drain(const NodeStep& step) {
  return step.unschedulable || step.annotations.contains(api::kDrainAnnotation) ||
         step.annotations.contains(api::kCordonedAnnotation);
}

}  // namespace

void NodeRefusals::refuse(Kind& kind, int pauses, const std::string& why, Moment now) {
  kind.why = why;
  kind.until = now + pauses * kind.backoff.next(random_);
}

void NodeRefusals::refuse(const NodeStep& sent, const std::string& why, Moment now) {
  // These are left out first, since they are only text. If the rest is refused too, they were not the cause.
  if (has_notes(sent) && !is_refused_again(sent)) return refuse(notes_, kLongPause, why, now);
  notes_.until = {};
  if (has_labels_that_can_wait(sent)) return refuse(labels_, kLongPause, why, now);
  if (concerns_a_drain(sent)) return refuse(cordon_, 1, why, now);
  all_ = !has_own_labels(sent);
  refuse(own_, kLongPause, why, now);
}

/// True if a part of `sent` was refused before, and has not been accepted since.
bool NodeRefusals::is_refused_again(const NodeStep& sent) const {
  return (has_labels_that_can_wait(sent) && !labels_.why.empty()) ||
         (concerns_a_drain(sent) && !cordon_.why.empty()) || (has_own_labels(sent) && !own_.why.empty());
}

void NodeRefusals::take(const NodeStep& sent) {
  cordon_.backoff.reset();
  if (has_notes(sent)) notes_.taken();
  if (concerns_a_drain(sent)) cordon_.taken();
  if (has_labels_that_can_wait(sent)) labels_.taken();
}

void NodeRefusals::forget_own() {
  own_.taken();
  all_ = false;
}

void NodeRefusals::leave_out(NodeStep& step, Moment now) const {
  if (!are_notes_left_out(now)) return;
  for (const char* note : kNotes) step.annotations.erase(note);
}

}  // namespace ferry::agent
