// SPDX-License-Identifier: Apache-2.0
#include "kube/object_watch.h"

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/percent_escape.h"
#include "kube/api_error.h"
#include "kube/line_splitter.h"
#include "kube/watch_event.h"

namespace ferry {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using namespace std::chrono_literals;

// The server ends a watch after that long: between five and ten minutes, not all nodes at once.
constexpr seconds kLeastWatch{300};
constexpr seconds kMoreWatch{300};
// A server sends a bookmark about every minute.
constexpr seconds kSilence{180};
// What lasted as long as this did not fail, however it ended.
constexpr seconds kLasting{30};
// The largest object that etcd takes is 1.5 MiB.
constexpr std::size_t kLongestLine = 8UL * 1024 * 1024;

}  // namespace

class ObjectWatch::Impl {
 public:
  Impl(ApiTransport& transport, Timers& timers, Random random, Selection selection, Listener listener)
      : transport_(transport),
        timers_(timers),
        random_(std::move(random)),
        selection_(std::move(selection)),
        listener_(std::move(listener)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;
  ~Impl() {
    if (open_) transport_.cancel(*open_);
    timers_.cancel(timer_);
  }

  Result<> begin() {
    auto path = path_of(selection_);
    if (!path) return fail(std::move(path).error().during("watch " + selection_.text()));
    path_ = std::move(*path);
    list();
    return {};
  }

  const Objects& objects() const { return objects_; }
  bool listed() const { return listed_; }

 private:
  enum class Request { list, watch };

  Asked asked(std::string_view verb) const {
    return {.verb = verb, .kind = selection_.kind, .object = selection_.text()};
  }

  void list() {
    // Without a resourceVersion: what etcd has, never a cache's older view. Of a single name it is one key.
    open_ = transport_.send({.path = path_}, {.ended = [this](Result<ApiReply> reply) {
                              open_.reset();
                              list_ended(std::move(reply));
                            }});
  }

  void list_ended(Result<ApiReply> reply) {
    if (!reply)
      return failed(Request::list, std::move(reply).error().during("list " + selection_.text()), {});
    if (reply->status != 200)
      return failed(Request::list, error_of(*reply, asked("list")), reply->retry_after);
    auto read = read_list(reply->body);
    if (!read) return failed(Request::list, read.error(), {});

    const bool changed = !std::exchange(listed_, true) || *read != objects_;
    objects_ = std::move(*read);
    watch();
    // A server that lists and then does not let watch is not well, and is asked less and less.
    if (failed_ == Request::list) is_well();
    if (changed) listener_.changed();
  }

  Result<Objects> read_list(std::string_view body) {
    auto list = object_of(body, asked("list"));
    if (!list) return fail(std::move(list).error());
    const auto items = list->find("items");
    const auto version = version_of(*list);
    const auto malformed = [&](std::string_view why) {
      return fail(Errc::malformed_host,
                  fmt::format("list {}: the API server's answer {}", selection_.text(), why));
    };
    if (version.empty()) return malformed("has no resourceVersion");
    Objects read;
    // Go writes an empty list of some kinds as null.
    if (items != list->end() && !items->is_null()) {
      if (!items->is_array()) return malformed("has no list of items");
      for (auto& item : *items) {
        auto key = object_key(item);
        if (key.empty()) return malformed("has an item without a name");
        read.insert_or_assign(std::move(key), kept(std::move(item)));
      }
    }
    version_ = version;
    return read;
  }

  json kept(json object) const {
    object["metadata"].erase("managedFields");
    // A list says it once for all its items.
    object["apiVersion"] = selection_.kind.api_version;
    object["kind"] = selection_.kind.kind;
    return object;
  }

  void watch() {
    const auto lasts =
        kLeastWatch + seconds(static_cast<int>(random_() * static_cast<double>(kMoreWatch.count())));
    lines_ = std::make_unique<LineSplitter>(kLongestLine);
    began_ = timers_.now();
    moved_ = false;
    open_ = transport_.send(
        {.path = fmt::format("{}&watch=1&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
                             path_, percent_escaped(version_), lasts.count()),
         .deadline = 0ms,
         .silence = kSilence},
        {.received = [this](std::string_view bytes) { received(bytes); },
         .ended =
             [this](Result<ApiReply> reply) {
               open_.reset();
               watch_ended(std::move(reply));
             }});
  }

  void received(std::string_view bytes) {
    bool changed = false;
    Result<> good;
    const bool taken = lines_->take(bytes, [&](std::string_view line) {
      auto event = parse_watch_event(line, asked("watch"));
      good = event ? take(std::move(*event), changed) : Result<>(fail(std::move(event).error()));
      return good.has_value();
    });
    if (!taken && good)
      good = fail(Errc::malformed_host, fmt::format("watch {}: a line of the stream is longer than {} bytes",
                                                    selection_.text(), kLongestLine));
    if (!good) {
      if (const auto open = std::exchange(open_, {})) transport_.cancel(*open);
      refused(good.error(), {});
    }
    if (changed) listener_.changed();
  }

  Result<> take(WatchEvent event, bool& changed) {
    if (event.kind == WatchEvent::Kind::error) return fail(error_of(event.object, asked("watch")));
    moved_ = true;
    works();
    // Sent before, or out of its order: what we have is newer.
    if (!is_later(event.version, version_)) return {};
    version_ = event.version;
    if (event.kind == WatchEvent::Kind::bookmark) return {};
    if (event.kind == WatchEvent::Kind::deleted) {
      if (objects_.erase(event.key) > 0) changed = true;
    } else {
      objects_.insert_or_assign(event.key, kept(std::move(event.object)));
      changed = true;
    }
    return {};
  }

  void watch_ended(Result<ApiReply> reply) {
    const bool lasted = timers_.now() - began_ >= kLasting;
    if (reply && reply->status != 200) return refused(error_of(*reply, asked("watch")), reply->retry_after);
    if (!reply && !lasted && !moved_)
      return failed(Request::watch, std::move(reply).error().during("watch " + selection_.text()), {});
    // The server's time was over, or the connection was lost on the way: we know where we were.
    if (lasted) works();
    if (reply && lasted) return watch();
    later(backoff_.next(random_), &Impl::watch);
  }

  void refused(const Error& error, std::optional<seconds> retry_after) {
    // Nothing is wrong with that once. A server that says so of its own newest version is given time.
    if (error.code == ApiErrc::expired && !std::exchange(expired_, true)) return later({}, &Impl::list);
    failed(Request::watch, error, retry_after);
  }

  void failed(Request which, const Error& error, std::optional<seconds> retry_after) {
    // Soon at first also where our role does not permit it: a server that has started again refuses all, for
    // as long as it has not read the roles.
    later(backoff_.next(random_, retry_after), &Impl::list);
    // Once is nothing: a server that was busy or restarted; a token that was replaced, of which the transport
    // sends the new one next.
    const bool passes = may_mend(error) || error.code == ApiErrc::unauthorized;
    const bool first = !std::exchange(failed_, which).has_value();
    if ((first && passes) || trouble_ == error.code) return;
    trouble_ = error.code;
    listener_.trouble(error);
  }

  // A watch that has brought something or has lasted: what failed before is past.
  void works() {
    backoff_.reset();
    expired_ = false;
    is_well();
  }

  void is_well() {
    failed_.reset();
    if (std::exchange(trouble_, {})) listener_.well();
  }

  void later(Backoff::Pause pause, void (Impl::*job)()) {
    timer_ = timers_.at(timers_.now() + pause, [this, job] { (this->*job)(); });
  }

  ApiTransport& transport_;
  Timers& timers_;
  const Random random_;
  const Selection selection_;
  const Listener listener_;
  std::string path_;

  Objects objects_;
  bool listed_ = false;
  std::string version_;  ///< up to which objects_ has everything

  std::optional<ApiTransport::Call> open_;
  Timers::Timer timer_;
  Backoff backoff_;
  std::optional<std::error_code> trouble_;  ///< that was told
  std::optional<Request> failed_;           ///< the last that did, since all was well
  bool expired_ = false;                    ///< since the last watch that worked

  // Of the watch that is open.
  bool moved_ = false;  ///< something has come
  Timers::Clock::time_point began_;
  std::unique_ptr<LineSplitter> lines_;
};

ObjectWatch::ObjectWatch(ApiTransport& transport, Timers& timers, Random random, Selection selection,
                         Listener listener)
    : impl_(std::make_unique<Impl>(transport, timers, std::move(random), std::move(selection),
                                   std::move(listener))) {}
ObjectWatch::~ObjectWatch() = default;

Result<> ObjectWatch::begin() {
  return impl_->begin();
}

const ObjectWatch::Objects& ObjectWatch::objects() const {
  return impl_->objects();
}

bool ObjectWatch::listed() const {
  return impl_->listed();
}

}  // namespace ferry
