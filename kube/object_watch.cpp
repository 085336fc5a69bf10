// SPDX-License-Identifier: Apache-2.0
#include "kube/object_watch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/text/encoding.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "common/text/whole_json.h"
#include "common/text/words.h"

namespace ferry::kube {
namespace {

using nlohmann::json;

constexpr Words<WatchEvent::Kind, 5> kKinds = {{{"ADDED", WatchEvent::Kind::added},
                                                {"MODIFIED", WatchEvent::Kind::modified},
                                                {"DELETED", WatchEvent::Kind::deleted},
                                                {"BOOKMARK", WatchEvent::Kind::bookmark},
                                                {"ERROR", WatchEvent::Kind::error}}};

bool is_number(std::string_view text) {
  return !text.empty() && text.front() != '0' && std::ranges::all_of(text, is_digit);
}

}  // namespace

std::string object_key(const json& object) {
  const json& metadata = json_at(object, "metadata");
  const auto name = text_at(metadata, "name");
  const auto space = text_at(metadata, "namespace");
  return name.empty() || space.empty() ? name : space + "/" + name;
}

std::string version_of(const json& object) {
  return text_at(json_at(object, "metadata"), "resourceVersion");
}

Result<WatchEvent> parse_watch_event(std::string_view line, const Asked& asked) {
  const auto malformed = [&](std::string_view why) {
    return fail(Errc::malformed_host, fmt::format("watch {}: a line of the stream {}", asked.object, why));
  };
  auto parsed = parse_answer_json(line);
  if (!parsed.is_object()) return malformed("is no JSON object");
  const auto type = parsed.find("type");
  const auto object = parsed.find("object");
  if (type == parsed.end() || !type->is_string()) return malformed("has no type");
  if (object == parsed.end() || !object->is_object()) return malformed("has no object");
  const auto kind = value_for(kKinds, type->get_ref<const std::string&>());
  if (!kind) return malformed("is of a type that this program does not know");

  WatchEvent event{.kind = *kind};
  if (event.kind != WatchEvent::Kind::error) {
    event.version = version_of(*object);
    if (event.version.empty()) return malformed("has an object without a resourceVersion");
  }
  if (event.kind != WatchEvent::Kind::error && event.kind != WatchEvent::Kind::bookmark) {
    event.key = object_key(*object);
    if (event.key.empty()) return malformed("has an object without a name");
  }
  event.object = std::move(*object);
  return event;
}

bool is_later(std::string_view version, std::string_view than) {
  if (!is_number(version) || !is_number(than)) return version != than;
  // Compares numbers of any length.
  return std::pair(version.size(), version) > std::pair(than.size(), than);
}

namespace {

using std::chrono::seconds;
using namespace std::chrono_literals;

// The server ends a watch after five to ten minutes, so that not all nodes list at once.
constexpr seconds kLeastWatch{300};
constexpr seconds kMoreWatch{300};
// A server sends a bookmark about every minute.
constexpr seconds kSilence{180};
// A watch that lasted so long did not fail, however it ended.
constexpr seconds kLasting{30};
// A list is fresh for this long: its history is still there for a watch.
constexpr seconds kFreshList{60};

std::size_t size_of(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace).size();
}

}  // namespace

ObjectWatch::ObjectWatch(ApiTransport& transport, Timers& timers, Random random, Selection selection,
                         Listener listener, Kept kept)
    : transport_(transport),
      timers_(timers),
      random_(std::move(random)),
      selection_(std::move(selection)),
      listener_(std::move(listener)),
      kept_(std::move(kept)),
      timer_(timers) {}

ObjectWatch::ObjectWatch(ApiTransport& transport, Timers& timers, Random random, Selection selection,
                         Listener listener, FieldChoice fields)
    : ObjectWatch(transport, timers, std::move(random), std::move(selection), std::move(listener),
                  Kept{.fields = std::move(fields)}) {}

ObjectWatch::~ObjectWatch() {
  if (open_) transport_.cancel(*open_);
}

Result<> ObjectWatch::begin() {
  auto path = path_of(selection_);
  if (!path) return fail(std::move(path).error().during("watch " + selection_.text()));
  path_ = std::move(*path);
  list();
  return {};
}

Asked ObjectWatch::asked(std::string_view verb) const {
  return {.verb = verb, .kind = selection_.kind, .object = selection_.text()};
}

void ObjectWatch::list() {
  listed_so_far_.clear();
  size_so_far_ = 0;
  list_version_.clear();
  after_.clear();
  list_page();
}

void ObjectWatch::list_page() {
  // Without a resourceVersion etcd answers, never a cache of older state. A single name is one key.
  std::string path = fmt::format("{}&limit={}", path_, kept_.page);
  if (!after_.empty()) path += "&continue=" + percent_escaped(after_);
  filter_ = std::make_unique<FieldFilter>(in_a_list(kept_.fields), room_of_page());
  ApiListener listener;
  listener.received = [this](std::string_view bytes) {
    if (filter_->take(bytes)) return;
    cancel();
    failed(Request::list, too_large("list"), {});
  };
  listener.ended = [this](Result<ApiReply> reply) {
    open_.reset();
    page_ended(std::move(reply));
  };
  open_ = transport_.send({.path = std::move(path)}, std::move(listener));
}

void ObjectWatch::page_ended(Result<ApiReply> reply) {
  if (!reply) return failed(Request::list, std::move(reply).error().during("list " + selection_.text()), {});
  if (reply->status != 200) {
    const Error error = error_of(*reply, asked("list"));
    const bool forgotten = error.code == ApiErrc::expired && !after_.empty();
    if (forgotten && ++list_rounds_ < kMostListRounds) return list();
    list_rounds_ = 0;
    return failed(Request::list, error, reply->retry_after);
  }
  if (auto read = read_page(); !read) return failed(Request::list, read.error(), {});
  if (after_.empty())
    list_ended();
  else
    list_page();
}

void ObjectWatch::list_ended() {
  list_rounds_ = 0;
  listed_at_ = timers_.now();
  version_ = list_version_;
  const bool changed = !std::exchange(listed_, true) || listed_so_far_ != objects_;
  objects_ = std::exchange(listed_so_far_, {});
  size_ = 0;
  for (const auto& [key, object] : objects_) size_ += size_of(object);
  watch();
  // A server that lists and then refuses the watch has not recovered, and is asked less and less.
  if (failed_ == Request::list) is_well();
  if (changed) listener_.changed();
}

Result<> ObjectWatch::read_page() {
  const std::string text = filter_->finish();
  if (!kept_.take) size_so_far_ += text.size();
  auto list = object_of(text, asked("list"));
  if (!list) return fail(std::move(list).error());
  const auto items = list->find("items");
  const auto malformed = [&](std::string_view why) {
    return fail(Errc::malformed_host,
                fmt::format("list {}: the API server's answer {}", selection_.text(), why));
  };
  // All pages are of one version.
  list_version_ = version_of(*list);
  if (list_version_.empty()) return malformed("has no resourceVersion");
  // Go writes an empty list of some kinds as null.
  if (items != list->end() && !items->is_null()) {
    if (!items->is_array()) return malformed("has no list of items");
    for (auto& item : *items) {
      auto key = object_key(item);
      if (key.empty()) return malformed("has an item without a name");
      json object = kept(std::move(item));
      if (object.is_null()) continue;
      if (kept_.take) size_so_far_ += size_of(object);
      listed_so_far_.insert_or_assign(std::move(key), std::move(object));
    }
  }
  if (size_so_far_ > kept_.most) return fail(too_large("list"));
  std::string next = continues_with(*list);
  if (!next.empty() && next == after_) return malformed("continues with itself");
  after_ = std::move(next);
  return {};
}

Error ObjectWatch::too_large(std::string_view verb) const {
  const std::string space = selection_.space.empty() ? "--all-namespaces" : "--namespace " + selection_.space;
  return {.code = make_error_code(ApiErrc::too_large),
          .message = fmt::format("{} {}: Ferry would have to keep more than {} bytes of these objects, the "
                                 "limit",
                                 verb, selection_.text(), kept_.most),
          .hint = fmt::format("look for objects that are too many or too large, and delete them: kubectl "
                              "get {} {} --field-selector '{}' --output yaml",
                              selection_.kind.plural, space, selection_.fields)};
}

void ObjectWatch::cancel() {
  if (const auto open = std::exchange(open_, {})) transport_.cancel(*open);
}

/// Null: the object is not kept.
json ObjectWatch::kept(json object) const {
  if (kept_.take) object = kept_.take(std::move(object));
  if (object.is_null()) return object;
  // A list has both once for all its items.
  object["apiVersion"] = selection_.kind.api_version;
  object["kind"] = selection_.kind.kind;
  return object;
}

void ObjectWatch::watch() {
  const auto lasts =
      kLeastWatch + seconds(static_cast<int>(random_() * static_cast<double>(kMoreWatch.count())));
  filter_ = std::make_unique<FieldFilter>(in_a_watch(kept_.fields), kept_.most);
  began_ = timers_.now();
  moved_ = false;
  open_ = transport_.send(
      {.path = fmt::format("{}&watch=1&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}", path_,
                           percent_escaped(version_), lasts.count()),
       .deadline = 0ms,
       .silence = kSilence},
      {.received = [this](std::string_view bytes) { received(bytes); },
       .ended =
           [this](Result<ApiReply> reply) {
             open_.reset();
             watch_ended(std::move(reply));
           }});
  if (listener_.opened) listener_.opened();
}

void ObjectWatch::received(std::string_view bytes) {
  bool changed = false;
  Result<> good;
  while (good && !bytes.empty()) {
    const auto end = bytes.find('\n');
    if (!filter_->take(bytes.substr(0, end))) {
      good = fail(too_large("watch"));
    } else if (end == std::string_view::npos) {
      break;
    } else {
      if (!filter_->is_fresh()) good = take_line(filter_->finish(), changed);
      bytes.remove_prefix(end + 1);
    }
  }
  if (!good) {
    cancel();
    refused(good.error(), {});
  }
  if (changed) listener_.changed();
}

Result<> ObjectWatch::take_line(const std::string& line, bool& changed) {
  auto event = parse_watch_event(line, asked("watch"));
  if (!event) return fail(std::move(event).error());
  auto taken = take(std::move(*event), changed);
  if (taken) works();
  return taken;
}

Result<> ObjectWatch::take(WatchEvent event, bool& changed) {
  if (event.kind == WatchEvent::Kind::error) return fail(error_of(event.object, asked("watch")));
  moved_ = true;
  // The event was sent before, or out of order: the known state is newer.
  if (!is_later(event.version, version_)) return {};
  version_ = event.version;
  if (event.kind == WatchEvent::Kind::bookmark) return {};
  const auto known = objects_.find(event.key);
  json object = event.kind == WatchEvent::Kind::deleted ? json() : kept(std::move(event.object));
  const bool same = known == objects_.end() ? object.is_null() : object == known->second;
  if (same) return {};
  if (known != objects_.end()) size_ -= size_of(known->second);
  if (object.is_null()) {
    objects_.erase(known);
  } else {
    size_ += size_of(object);
    if (size_ > kept_.most) return fail(too_large("watch"));
    objects_.insert_or_assign(event.key, std::move(object));
  }
  changed = true;
  return {};
}

void ObjectWatch::watch_ended(Result<ApiReply> reply) {
  const bool lasted = timers_.now() - began_ >= kLasting;
  if (reply && reply->status != 200) return refused(error_of(*reply, asked("watch")), reply->retry_after);
  if (!lasted && !moved_) {
    Error error{.code = make_error_code(Errc::unreachable), .message = "it ended too soon, without an event"};
    if (!reply) error = std::move(reply).error();
    return failed(Request::watch, std::move(error).during("watch " + selection_.text()), {},
                  reply.has_value());
  }
  // The server's time was over, or the connection was lost: the version to resume from is known.
  if (lasted) works();
  if (reply && lasted) return watch();
  later(backoff_.next(random_), &ObjectWatch::watch);
}

void ObjectWatch::refused(const Error& error, std::optional<seconds> retry_after) {
  // A single expired version is normal. If the server calls the version of its own fresh list expired, it
  // is in trouble: the next list waits for the back-off.
  if (error.code == ApiErrc::expired && !std::exchange(expired_, true)) return later({}, &ObjectWatch::list);
  failed(Request::watch, error, retry_after);
}

/// `answered`: with success, so that the version is still good.
void ObjectWatch::failed(Request which, const Error& error, std::optional<seconds> retry_after,
                         bool answered) {
  // Soon at first, even if forbidden: a restarted server refuses all requests until it has read the roles.
  // A busy server refuses a watch before it looks at the version. Many agents that all list again would
  // keep it busy.
  const bool is_busy = which == Request::watch && error.code == ApiErrc::too_many_requests;
  const bool is_fresh = timers_.now() - listed_at_ < kFreshList;
  later(backoff_.next(random_, retry_after),
        (is_busy || answered) && is_fresh ? &ObjectWatch::watch : &ObjectWatch::list);
  // A first failure that may pass is not reported: the server was busy or restarted, or the token was
  // replaced, and the transport sends the new one next.
  const bool passes = may_mend(error) || error.code == ApiErrc::unauthorized;
  const bool first = !std::exchange(failed_, which).has_value();
  if ((first && passes) || trouble_ == error.code) return;
  trouble_ = error.code;
  listener_.trouble(error);
}

// After a watch that brought an event or has lasted, earlier failures are over.
void ObjectWatch::works() {
  backoff_.reset();
  expired_ = false;
  is_well();
}

void ObjectWatch::is_well() {
  failed_.reset();
  if (std::exchange(trouble_, {})) listener_.well();
}

void ObjectWatch::later(Backoff::Pause pause, void (ObjectWatch::*job)()) {
  timer_.set(timers_.now() + pause, [this, job] { (this->*job)(); });
}

}  // namespace ferry::kube
