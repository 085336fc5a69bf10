// SPDX-License-Identifier: Apache-2.0
#include "kube/field_filter.h"

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

// The same bound as in parse_answer_json().
constexpr std::size_t kDeepest = 100;
// The longest name of Kubernetes' has 253 bytes.
constexpr std::size_t kLongestText = 256;
// A pod has one owner, and few containers.
constexpr std::size_t kMostElements = 8;
// Below the list, its items and their first fields, all is written by the object's author.
constexpr std::size_t kBoundedFrom = 3;

}  // namespace

FieldChoice whole_object() {
  return {.mode = FieldChoice::Mode::all_but, .fields = {{"metadata", {{"managedFields"}}}}};
}

FieldChoice in_a_list(const FieldChoice& object) {
  FieldChoice out{.mode = object.mode, .fields = {{"items", object.fields}}};
  if (object.mode == FieldChoice::Mode::only) out.fields.push_back({"metadata"});
  return out;
}

FieldChoice in_a_watch(const FieldChoice& object) {
  FieldChoice out{.mode = object.mode, .fields = {{"object", object.fields}}};
  if (object.mode == FieldChoice::Mode::all_but) return out;
  // An error's object is a Status.
  for (const char* const of_status : {"code", "reason", "message"})
    out.fields.front().inner.push_back({of_status});
  out.fields.push_back({"type"});
  return out;
}

FieldFilter::FieldFilter(FieldChoice choice, std::size_t most) : choice_(std::move(choice)), most_(most) {}

bool FieldFilter::take(std::string_view bytes) {
  if (!bytes.empty()) fresh_ = false;
  while (!bytes.empty() && !broken_ && fits()) {
    if (quoted_) {
      bytes.remove_prefix(take_quoted(bytes));
    } else {
      take_char(bytes.front());
      bytes.remove_prefix(1);
    }
  }
  return fits();
}

// A text that may still become null counts when it ends, so that the same fits wherever the bytes are cut.
bool FieldFilter::fits() const {
  const bool is_open = quoted_ && sink_ == Sink::kept && is_bounded();
  return (is_open ? text_begin_ : kept_.size()) <= most_ && key_.size() <= most_;
}

std::string FieldFilter::finish() {
  std::string out = broken_ ? std::string() : std::move(kept_);
  kept_.clear();
  key_.clear();
  levels_.clear();
  fresh_ = true;
  quoted_ = escaped_ = word_ = broken_ = false;
  return out;
}

void FieldFilter::take_char(char c) {
  const bool is_word = std::string_view(" \t\r\n,:{}[]\"").find(c) == std::string_view::npos;
  if (!is_word) word_ = false;
  if (is_word) {
    if (!std::exchange(word_, true)) word_kept_ = begin_value();
    if (word_kept_) kept_ += c;
  } else if (c == '"') {
    begin_text();
  } else if (c == '{' || c == '[') {
    open(c);
  } else if (c == '}' || c == ']') {
    close(c);
  } else if (c == ',' && !levels_.empty()) {
    Level& level = levels_.back();
    if (!std::exchange(level.filled, false)) broken_ = true;
    level.at_key = !level.list;
  }
}

std::size_t FieldFilter::take_quoted(std::string_view bytes) {
  if (std::exchange(escaped_, false)) {
    keep_quoted(bytes.substr(0, 1));
    return 1;
  }
  const auto end = bytes.find_first_of("\"\\");
  keep_quoted(bytes.substr(0, end));
  if (end == std::string_view::npos) return bytes.size();
  if (bytes[end] == '\\') {
    keep_quoted(bytes.substr(end, 1));
    escaped_ = true;
  } else {
    end_text();
  }
  return end + 1;
}

void FieldFilter::keep_quoted(std::string_view piece) {
  if (sink_ == Sink::key) key_ += piece;
  if (sink_ != Sink::kept) return;
  kept_ += piece;
  if (!is_bounded() || kept_.size() - text_begin_ <= kLongestText) return;
  kept_.resize(text_begin_);
  kept_.pop_back();  // the quotation mark
  kept_ += "null";
  sink_ = Sink::nowhere;
}

void FieldFilter::begin_text() {
  quoted_ = true;
  sink_ = Sink::nowhere;
  if (!levels_.empty() && levels_.back().at_key) {
    key_.clear();
    if (levels_.back().kept) sink_ = Sink::key;
  } else if (begin_value()) {
    kept_ += '"';
    text_begin_ = kept_.size();
    sink_ = Sink::kept;
  }
}

void FieldFilter::end_text() {
  quoted_ = false;
  if (sink_ == Sink::kept) kept_ += '"';
  if (levels_.empty() || !std::exchange(levels_.back().at_key, false)) return;
  if (levels_.back().kept) levels_.back().pick = pick(levels_.back().fields, key_);
}

// True: its bytes are kept. Then the comma and the key in front of it are there already.
bool FieldFilter::begin_value() {
  value_fields_ = choice_.fields.empty() ? nullptr : &choice_.fields;
  if (levels_.empty()) return true;
  Level& level = levels_.back();
  if (level.at_key || std::exchange(level.filled, true)) broken_ = true;
  ++level.elements;
  if (!level.kept) return false;
  Pick pick = level.pick;
  if (level.list) pick = {.kept = !is_bounded() || level.elements <= kMostElements, .fields = level.fields};
  if (!pick.kept) return false;
  if (std::exchange(level.has_kept, true)) kept_ += ',';
  if (!level.list) {
    kept_ += '"';
    kept_ += key_;
    kept_ += "\":";
  }
  if (pick.presence) kept_ += "true";
  value_fields_ = pick.fields;
  return !pick.presence;
}

void FieldFilter::open(char bracket) {
  const bool kept = begin_value();
  if (levels_.size() >= kDeepest) broken_ = true;
  if (kept) kept_ += bracket;
  levels_.push_back({.list = bracket == '[',
                     .kept = kept,
                     .fields = kept ? value_fields_ : nullptr,
                     .at_key = bracket == '{'});
}

void FieldFilter::close(char bracket) {
  if (levels_.empty() || levels_.back().list != (bracket == ']')) {
    broken_ = true;
    return;
  }
  if (levels_.back().kept) kept_ += bracket;
  levels_.pop_back();
}

FieldFilter::Pick FieldFilter::pick(const std::vector<Field>* fields, std::string_view name) const {
  if (fields == nullptr) return {.kept = true};
  const auto found = std::ranges::find(*fields, name, &Field::name);
  const bool named = found != fields->end();
  const bool whole = !named || found->inner.empty();
  if (choice_.mode == FieldChoice::Mode::only && !named) return {};
  if (choice_.mode == FieldChoice::Mode::all_but && named && whole) return {};
  return {.kept = true, .fields = whole ? nullptr : &found->inner, .presence = named && found->presence};
}

bool FieldFilter::is_bounded() const {
  return choice_.mode == FieldChoice::Mode::only && levels_.size() >= kBoundedFrom;
}

}  // namespace ferry
