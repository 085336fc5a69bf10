// SPDX-License-Identifier: Apache-2.0
#include "agent/node_refusals.h"

#include <algorithm>
#include <array>

#include "agent/cluster_words.h"

namespace ferry {
namespace {

// So many times a backoff's pause, of what only a person can bring to be taken.
constexpr int kLongPause = 10;

/// Annotations that say what is wrong, and nothing goes by.
constexpr std::array kNotes = {kErrorAnnotation, kKataErrorAnnotation};

bool has_notes(const NodeStep& step) {
  return std::ranges::any_of(kNotes, [&](const char* note) { return step.annotations.contains(note); });
}

bool concerns_a_drain(const NodeStep& step) {
  return step.unschedulable || step.annotations.contains(kDrainAnnotation) ||
         step.annotations.contains(kCordonedAnnotation);
}

}  // namespace

void NodeRefusals::refuse(Kind& kind, int pauses, const std::string& why, Moment now) {
  kind.why = why;
  kind.until = now + pauses * kind.backoff.next(random_);
}

void NodeRefusals::refuse(const NodeStep& sent, const std::string& why, Moment now) {
  // First, for they are words alone. Where it is refused without them too they were not what is refused.
  if (has_notes(sent) && !is_refused_again(sent)) return refuse(notes_, kLongPause, why, now);
  notes_.until = {};
  if (has_labels_that_can_wait(sent)) return refuse(labels_, kLongPause, why, now);
  if (concerns_a_drain(sent)) return refuse(cordon_, 1, why, now);
  all_ = !has_own_labels(sent);
  refuse(own_, kLongPause, why, now);
}

/// Something of it has been refused before, and not been taken since.
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

}  // namespace ferry
