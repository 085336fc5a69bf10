// SPDX-License-Identifier: Apache-2.0
#include "kube/event_recorder.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/text.h"

namespace ferry::kube {
namespace {

using nlohmann::json;

// Events of a node are here, since a node has no namespace.
constexpr std::string_view kSpace = "default";
constexpr std::string_view kComponent = "ferry";

constexpr auto kSame = std::chrono::minutes(10);
constexpr double kBurst = 10;
constexpr std::chrono::duration<double> kPerToken{30};
// Different events of a type within ten minutes: many more than can be written.
constexpr std::size_t kMostRemembered = 100;

// metav1.Time has whole seconds.
std::string text_of(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

}  // namespace

/// An event, as it is on the server or is about to be.
struct EventRecorder::Recorded {
  EventSubject subject = {};
  Type type = Type::normal;
  std::string name = {};  ///< name on the server; empty: not there
  std::uint64_t count = 0;
  std::uint64_t written = 0;  ///< the count that the server has
  std::uint64_t waits = 0;    ///< its number in the queue for a token; 0: not in it
  std::chrono::system_clock::time_point first = {};
  std::chrono::system_clock::time_point last = {};
  Timers::Clock::time_point seen = {};
  std::optional<ApiClient::Call> call = {};  ///< the call in progress
};

EventRecorder::EventRecorder(ApiClient& client, Timers& timers, Random random, WallClock wall_clock,
                             std::string node, std::function<void(const Error&)> refused,
                             std::string controller)
    : client_(client),
      timers_(timers),
      random_(std::move(random)),
      wall_clock_(std::move(wall_clock)),
      node_(std::move(node)),
      controller_(std::move(controller)),
      refused_(std::move(refused)),
      normals_{.tokens = kBurst, .at = timers.now()},
      warnings_(normals_) {}

EventRecorder::~EventRecorder() {
  for (const Budget* budget : {&normals_, &warnings_}) timers_.cancel(budget->token);
  for (const auto& [key, recorded] : recorded_)
    if (const auto call = recorded->call) client_.cancel(*call);
}

void EventRecorder::record(Type type, std::string_view reason, std::string_view message) {
  // The kubelet names a node's events by its name in place of its UID, and kubectl looks for both.
  record({.object = node_ref(node_), .uid = node_}, type, reason, message);
}

void EventRecorder::record(const EventSubject& subject, Type type, std::string_view reason,
                           std::string_view message) {
  forget_old();
  Key key{.space = subject.object.space,
          .uid = subject.uid,
          .reason = std::string(reason),
          .message = std::string(beginning_of(message, kLongestMessage))};
  auto found = recorded_.find(key);
  if (found == recorded_.end()) {
    const auto remembered =
        std::ranges::count_if(recorded_, [&](const auto& entry) { return entry.second->type == type; });
    if (static_cast<std::size_t>(remembered) >= kMostRemembered) return;
    found = recorded_
                .emplace(std::move(key), std::make_unique<Recorded>(Recorded{
                                             .subject = subject, .type = type, .first = wall_clock_()}))
                .first;
  }
  auto& recorded = *found->second;
  ++recorded.count;
  recorded.last = wall_clock_();
  recorded.seen = timers_.now();
  write(found->first);
}

// An equal event after this time is a new event.
void EventRecorder::forget_old() {
  std::erase_if(recorded_, [&](const auto& entry) {
    return !entry.second->call && timers_.now() - entry.second->seen >= kSame;
  });
}

bool EventRecorder::may_write(Budget& budget) {
  const auto now = timers_.now();
  budget.tokens = std::min(kBurst, budget.tokens + (now - budget.at) / kPerToken);
  budget.at = now;
  if (budget.tokens < 1) return false;
  budget.tokens -= 1;
  return true;
}

void EventRecorder::write(const Key& key) {
  auto& recorded = *recorded_.at(key);
  if (recorded.call || recorded.written == recorded.count) return;
  if (!may_write(budget(recorded.type))) {
    if (recorded.waits == 0) recorded.waits = ++last_number_;
    return wait_for_token(recorded.type);
  }
  recorded.waits = 0;
  if (recorded.name.empty()) {
    create(key, recorded);
  } else {
    raise(key, recorded);
  }
}

void EventRecorder::wait_for_token(Type type) {
  Budget& of_type = budget(type);
  if (std::exchange(of_type.waits, true)) return;
  const auto missing =
      std::chrono::duration_cast<std::chrono::milliseconds>((1 - of_type.tokens) * kPerToken);
  of_type.token = timers_.at(of_type.at + missing + std::chrono::milliseconds(1), [this, type] {
    budget(type).waits = false;
    write_waiting(type);
  });
}

void EventRecorder::write_waiting(Type type) {
  forget_old();
  std::map<std::uint64_t, Key> waiting;
  for (const auto& [key, recorded] : recorded_)
    if (recorded->type == type && recorded->waits > 0) waiting.emplace(recorded->waits, key);
  for (const auto& [number, key] : waiting) {
    write(key);
    if (budget(type).waits) return;
  }
}

std::string EventRecorder::space_of(const Recorded& recorded) {
  return recorded.subject.object.space.empty() ? std::string(kSpace) : recorded.subject.object.space;
}

void EventRecorder::create(const Key& key, Recorded& recorded) {
  const ObjectRef& object = recorded.subject.object;
  const std::string space = space_of(recorded);
  recorded.name = new_name(object.name);
  json involved = {{"apiVersion", object.kind.api_version},
                   {"kind", object.kind.kind},
                   {"name", object.name},
                   {"uid", recorded.subject.uid}};
  if (!object.space.empty()) involved["namespace"] = object.space;
  const json event = {
      {"apiVersion", kEvents.api_version},
      {"kind", kEvents.kind},
      {"metadata", {{"name", recorded.name}, {"namespace", space}}},
      {"involvedObject", std::move(involved)},
      {"reason", key.reason},
      {"message", key.message},
      {"type", recorded.type == Type::warning ? "Warning" : "Normal"},
      {"source", {{"component", kComponent}, {"host", node_}}},
      {"reportingComponent", controller_},
      {"reportingInstance", node_},
      {"count", recorded.count},
      {"firstTimestamp", text_of(recorded.first)},
      {"lastTimestamp", text_of(recorded.last)},
  };
  recorded.call = client_.create(kEvents, space, event, [this, key, count = recorded.count](auto result) {
    hear(result);
    auto& created = *recorded_.at(key);
    const bool there = result || result.error().code == ApiErrc::already_exists;
    if (!there) created.name.clear();
    written(key, there ? count : created.written);
  });
}

void EventRecorder::raise(const Key& key, Recorded& recorded) {
  const json patch = {{"count", recorded.count}, {"lastTimestamp", text_of(recorded.last)}};
  const ObjectRef event{.kind = kEvents, .space = space_of(recorded), .name = recorded.name};
  recorded.call = client_.merge_patch(event, patch, [this, key, count = recorded.count](auto result) {
    hear(result);
    auto& raised = *recorded_.at(key);
    if (result) return written(key, count);
    if (result.error().code != ApiErrc::not_found) return written(key, raised.written);
    // The event has expired on the server, after an hour, or was deleted.
    create(key, raised);
  });
}

// Silence is no refusal, nor is an event that exists already or no longer.
void EventRecorder::hear(const Result<json>& answer) {
  if (answer) refusal_reported_ = false;
  if (answer || may_mend(answer.error()) || answer.error().code == ApiErrc::already_exists ||
      answer.error().code == ApiErrc::not_found)
    return;
  if (!std::exchange(refusal_reported_, true) && refused_) refused_(answer.error());
}

// Called when a write is done. Writes the counts that have come meanwhile.
void EventRecorder::written(const Key& key, std::uint64_t count) {
  auto& recorded = *recorded_.at(key);
  recorded.call.reset();
  const bool failed = recorded.written == count;
  recorded.written = count;
  if (!failed) write(key);
}

// The name of an object: at most 253 letters, with a letter or digit before the dot.
std::string EventRecorder::new_name(std::string_view object) {
  constexpr std::size_t kLongestPrefix = 220;
  constexpr double kRange = 4294967296.0;  // 2^32
  std::string prefix(object.substr(0, kLongestPrefix));
  prefix.erase(prefix.find_last_not_of(".-") + 1);
  const auto since_epoch = wall_clock_().time_since_epoch();
  return fmt::format("{}.{:x}{:08x}", prefix,
                     std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count(),
                     static_cast<std::uint32_t>(random_() * kRange));
}

}  // namespace ferry::kube
