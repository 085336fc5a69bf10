// SPDX-License-Identifier: Apache-2.0
#include "agent/node_refusals.h"

#include <algorithm>

#include "agent/labels/feature_labels.h"
#include "api/labels.h"
#include "kube/api_error.h"

namespace ferry::agent {
namespace {

// Factor of the pause after a refusal that only a person can end.
constexpr int kLongPause = 10;

bool has_notes(const NodePatchContent& changes) {
  return std::ranges::any_of(kNotes, [&](const char* note) { return changes.annotations.contains(note); });
}

bool concerns_a_drain(const NodePatchContent& changes) {
  return changes.unschedulable || changes.annotations.contains(api::kDrainAnnotation) ||
         changes.annotations.contains(api::kCordonedAnnotation);
}

bool can_wait(const LabelChanges::value_type& change) {
  return is_feature_label(change.first) || change.first.starts_with(api::kKataPrefix);
}

}  // namespace

bool is_refusal(const Error& error) {
  return error.code == kube::ApiErrc::forbidden || error.code == kube::ApiErrc::invalid;
}

bool NodePatchContent::has_labels_that_can_wait() const {
  return annotations.contains(api::kFeaturesAnnotation) || std::ranges::any_of(labels, can_wait);
}

bool NodePatchContent::has_own_labels() const {
  return !std::ranges::all_of(labels, can_wait);
}

void NodeRefusals::Kind::refuse(int pauses, const std::string& reason, Moment now,
                                const kube::Random& random) {
  why = reason;
  until = now + pauses * backoff.next(random);
}

void NodeRefusals::refuse(const NodePatchContent& sent, const std::string& why, Moment now,
                          const kube::Random& random) {
  // These are left out first, since they are only text. If the rest is refused too, they were not the cause.
  if (has_notes(sent) && !is_refused_again(sent)) return notes_.refuse(kLongPause, why, now, random);
  notes_.until = {};
  if (sent.has_labels_that_can_wait()) return labels_.refuse(kLongPause, why, now, random);
  if (concerns_a_drain(sent)) return cordon_.refuse(1, why, now, random);
  all_ = !sent.has_own_labels();
  own_.refuse(kLongPause, why, now, random);
}

/// True if a part of `sent` was refused before, and has not been accepted since.
bool NodeRefusals::is_refused_again(const NodePatchContent& sent) const {
  return (sent.has_labels_that_can_wait() && !labels_.why.empty()) ||
         (concerns_a_drain(sent) && !cordon_.why.empty()) || (sent.has_own_labels() && !own_.why.empty());
}

void NodeRefusals::take(const NodePatchContent& sent) {
  cordon_.backoff.reset();
  if (has_notes(sent)) notes_.taken();
  if (concerns_a_drain(sent)) cordon_.taken();
  if (sent.has_labels_that_can_wait()) labels_.taken();
}

void NodeRefusals::forget_own() {
  own_.taken();
  all_ = false;
}

}  // namespace ferry::agent
