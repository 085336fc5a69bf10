// SPDX-License-Identifier: Apache-2.0
#include "kube/api_client.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/whole_json.h"
#include "common/text/words.h"
#include "kube/object_watch.h"

namespace ferry::kube {

ApiTransport::Call CountedTransport::send(ApiRequest request, ApiListener listener) {
  constexpr Words<std::string_view, 5> kVerbs = {
      {{"GET", "get"}, {"PATCH", "patch"}, {"POST", "post"}, {"PUT", "put"}, {"DELETE", "delete"}}};
  std::string verb(value_for(kVerbs, request.method).value_or("other"));
  if (request.deadline.count() == 0) verb = "watch";

  listener.ended = [counts = counts_, verb = std::move(verb),
                    ended = std::move(listener.ended)](Result<ApiReply> reply) {
    constexpr int kFirst = 100;
    constexpr int kBeyond = 600;
    std::string code = "none";
    if (reply)
      code = reply->status >= kFirst && reply->status < kBeyond ? std::to_string(reply->status) : "other";
    ++(*counts)[{.verb = verb, .code = std::move(code)}];
    ended(std::move(reply));
  };
  return under_.send(std::move(request), std::move(listener));
}

namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::string_view kMergePatch = "application/merge-patch+json";
constexpr std::string_view kApplyPatch = "application/apply-patch+yaml";  // JSON is YAML
constexpr std::string_view kJson = "application/json";

// The value may hold words of a driver or a file: invalid UTF-8 in them must not throw.
std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The path is filled in by begin().
ApiRequest request_of(std::string method, std::string_view type, const json& body) {
  return {.method = std::move(method), .path = {}, .content_type = std::string(type), .body = text_of(body)};
}

Result<std::string> with_manager(Result<std::string> path) {
  if (path) *path += fmt::format("?fieldManager={}", ApiClient::kFieldManager);
  return path;
}

json preconditions(std::string_view uid) {
  if (uid.empty()) return json::object();
  return {{"preconditions", {{"uid", uid}}}};
}

// Plain text comes from an overloaded proxy, and is a delay; a Status is a decision about this very request.
bool is_decision(const ApiReply& reply) {
  const auto status = parse_answer_json(reply.body);
  return status.is_object() && status.value("kind", json()) == "Status";
}

// A conflict has other reasons too; only the server's message tells them apart. The first text is that of
// rest.BeforeDelete and of evictions; the second one is the storage's, for an object replaced after that.
bool is_another_of_the_name(const Error& error) {
  return error.code == ApiErrc::conflict &&
         (error.message.find("the UID in the precondition") != std::string::npos ||
          error.message.find("Precondition failed: UID") != std::string::npos);
}

bool is_success(int status) {
  return status >= 200 && status < 300;
}

Result<json> object_in(Result<ApiReply> reply, const Asked& asked) {
  if (!reply) return fail(std::move(reply).error());
  return object_of(reply->body, asked);
}

auto on_object(Asked asked, ApiClient::Done done) {
  return [asked = std::move(asked), done = std::move(done)](ApiClient::Call, Result<ApiReply> reply, auto) {
    done(object_in(std::move(reply), asked));
  };
}

}  // namespace

/// A request until its result is reported, however often it is sent.
struct ApiClient::Exchange {
  ApiRequest request = {};
  Asked asked;
  bool repeatable = true;                    ///< a second time does no harm
  bool own_refusals = false;                 ///< a 429 with a Status is an answer
  Answered done;                             ///< gets a 2xx, or the error
  std::unique_ptr<FieldFilter> filter = {};  ///< keeps fields of the answer; null: all

  Backoff backoff = {};
  unsigned tries = 0;
  Timers::Clock::time_point began = {};  ///< time of the first try
  bool unauthorized = false;
  std::variant<std::monostate, ApiTransport::Call, Timers::Timer> waits_for = {};
};

struct ApiClient::Changing {
  Asked asked;
  std::string path;
  MakePatch make;
  Done done;
  Backoff backoff = {};
  unsigned rounds = 0;
};

ApiClient::ApiClient(ApiTransport& transport, Timers& timers, Random random,
                     std::optional<std::chrono::milliseconds> patience)
    : transport_(transport), timers_(timers), random_(std::move(random)), patience_(patience) {}

ApiClient::~ApiClient() {
  while (!running_.empty()) cancel(running_.begin()->first);
}

void ApiClient::cancel(Call call) {
  const auto found = running_.find(call);
  if (found == running_.end()) return;
  const auto& waits_for = found->second->waits_for;
  if (const auto* sent = std::get_if<ApiTransport::Call>(&waits_for)) transport_.cancel(*sent);
  if (const auto* timer = std::get_if<Timers::Timer>(&waits_for)) timers_.cancel(*timer);
  running_.erase(found);
}

ApiClient::Call ApiClient::begin(Result<std::string> path, Exchange exchange) {
  const Call call = ++last_call_;
  if (path) {
    exchange.request.path = std::move(*path);
    running_.emplace(call, std::make_unique<Exchange>(std::move(exchange)));
    send(call);
    return call;
  }
  auto error =
      std::move(path).error().during(fmt::format("{} {}", exchange.asked.verb, exchange.asked.object));
  running_.emplace(call, std::make_unique<Exchange>(std::move(exchange)));
  later(call, {}, [this, call, error = std::move(error)] { finish(call, fail(error), {}); });
  return call;
}

void ApiClient::go_on(Call call, Exchange exchange, Backoff::Pause pause) {
  running_.emplace(call, std::make_unique<Exchange>(std::move(exchange)));
  later(call, pause, [this, call] { send(call); });
}

void ApiClient::later(Call call, Backoff::Pause pause, EventLoop::Job job) {
  running_.at(call)->waits_for = timers_.at(timers_.now() + pause, std::move(job));
}

void ApiClient::send(Call call) {
  auto& exchange = *running_.at(call);
  if (++exchange.tries == 1) exchange.began = timers_.now();
  // A late try still gets this time to connect.
  constexpr milliseconds kShortest{1'000};
  if (patience_) {
    const auto left = std::chrono::duration_cast<milliseconds>(exchange.began + *patience_ - timers_.now());
    exchange.request.connect = std::clamp(left, kShortest, ApiRequest().connect);
  }
  ApiListener listener{.ended = [this, call](Result<ApiReply> reply) { ended(call, std::move(reply)); }};
  if (exchange.filter) {
    (void)exchange.filter->finish();  // drops the text of an earlier try
    listener.received = [this, call](std::string_view bytes) { received(call, bytes); };
  }
  exchange.waits_for = transport_.send(exchange.request, std::move(listener));
}

void ApiClient::received(Call call, std::string_view bytes) {
  auto& exchange = *running_.at(call);
  if (exchange.filter->take(bytes)) return;
  transport_.cancel(std::get<ApiTransport::Call>(exchange.waits_for));
  finish(call,
         fail({.code = make_error_code(ApiErrc::too_large),
               .message = fmt::format("{} {}: the fields that are read have more than {} bytes, the limit",
                                      exchange.asked.verb, exchange.asked.object, kMostKept),
               .hint = {}}),
         {});
}

void ApiClient::ended(Call call, Result<ApiReply> reply) {
  auto& exchange = *running_.at(call);
  exchange.waits_for = {};
  if (reply && is_success(reply->status) && exchange.filter) reply->body = exchange.filter->finish();
  if (reply && is_success(reply->status)) return finish(call, std::move(reply), {});

  const auto what = fmt::format("{} {}", exchange.asked.verb, exchange.asked.object);
  Error error = reply ? error_of(*reply, exchange.asked) : Error(reply.error()).during(what);
  bool again = exchange.repeatable && may_mend(error);
  if (error.code == ApiErrc::too_many_requests) again = !(exchange.own_refusals && is_decision(*reply));
  if (error.code == ApiErrc::unauthorized) again = !std::exchange(exchange.unauthorized, true);
  const auto retry_after = reply ? reply->retry_after : std::nullopt;
  if (!again || exchange.tries >= kMostTries) return finish(call, fail(std::move(error)), retry_after);
  const auto pause = exchange.backoff.next(random_, retry_after);
  if (patience_ && timers_.now() + pause > exchange.began + *patience_)
    return finish(call, fail(std::move(error)), retry_after);
  later(call, pause, [this, call] { send(call); });
}

// Ends the call before its function runs; the function may go on under the same number.
void ApiClient::finish(Call call, Result<ApiReply> reply, std::optional<std::chrono::seconds> retry_after) {
  const auto exchange = std::move(running_.extract(call).mapped());
  exchange->done(call, std::move(reply), retry_after);
}

ApiClient::Call ApiClient::get(const ObjectRef& object, Done done, const FieldChoice& fields) {
  const Asked asked{.verb = "get", .kind = object.kind, .object = object.text()};
  return begin(path_of(object), {.asked = asked,
                                 .done = on_object(asked, std::move(done)),
                                 .filter = std::make_unique<FieldFilter>(fields, kMostKept)});
}

ApiClient::Call ApiClient::list(const Selection& selection, const ListRange& range, Done done) {
  const Asked asked{.verb = "list", .kind = selection.kind, .object = selection.text()};
  return begin(path_of(selection, range), {.asked = asked, .done = on_object(asked, std::move(done))});
}

ApiClient::Call ApiClient::merge_patch(const ObjectRef& object, const json& patch, Done done) {
  const Asked asked{.verb = "patch", .kind = object.kind, .object = object.text()};
  return begin(with_manager(path_of(object)), {.request = request_of("PATCH", kMergePatch, patch),
                                               .asked = asked,
                                               .done = on_object(asked, std::move(done))});
}

ApiClient::Call ApiClient::replace(const ObjectRef& object, const json& content, Done done) {
  const Asked asked{.verb = "update", .kind = object.kind, .object = object.text()};
  return begin(with_manager(path_of(object)), {.request = request_of("PUT", kJson, content),
                                               .asked = asked,
                                               .done = on_object(asked, std::move(done))});
}

ApiClient::Call ApiClient::apply(const ObjectRef& object, json content, Done done) {
  const Asked asked{.verb = "patch", .kind = object.kind, .object = object.text()};
  auto path = with_manager(path_of(object));
  if (path) *path += "&force=true";
  content["apiVersion"] = object.kind.api_version;
  content["kind"] = object.kind.kind;
  content["metadata"]["name"] = object.name;
  if (!object.space.empty()) content["metadata"]["namespace"] = object.space;
  return begin(std::move(path), {.request = request_of("PATCH", kApplyPatch, content),
                                 .asked = asked,
                                 .done = on_object(asked, std::move(done))});
}

ApiClient::Call ApiClient::create(ApiKind kind, std::string_view space, const json& content, Done done) {
  const auto metadata = content.value("metadata", json::object());
  const ObjectRef object{
      .kind = kind, .space = std::string(space), .name = metadata.value("name", std::string())};
  const Asked asked{.verb = "create", .kind = kind, .object = object.text()};
  return begin(with_manager(collection_of(kind, space)), {.request = request_of("POST", kJson, content),
                                                          .asked = asked,
                                                          .repeatable = !object.name.empty(),
                                                          .done = on_object(asked, std::move(done))});
}

ApiClient::Call ApiClient::remove(const ObjectRef& object, std::string_view uid,
                                  std::function<void(Result<>)> done, bool dependents_first) {
  json options = preconditions(uid);
  if (dependents_first) options["propagationPolicy"] = "Foreground";
  const Asked asked{.verb = "delete", .kind = object.kind, .object = object.text()};
  auto answered = [done = std::move(done)](Call, Result<ApiReply> reply, auto) {
    const bool gone = reply.has_value() || reply.error().code == ApiErrc::not_found ||
                      is_another_of_the_name(reply.error());
    done(gone ? Result<>() : Result<>(fail(std::move(reply).error())));
  };
  return begin(path_of(object), {.request = request_of("DELETE", kJson, options),
                                 .asked = asked,
                                 .repeatable = !uid.empty(),
                                 .done = std::move(answered)});
}

ApiClient::Call ApiClient::change(const ObjectRef& object, MakePatch make_patch, Done done,
                                  const json* known) {
  const auto changing = std::make_shared<Changing>(
      Changing{.asked = {.verb = "patch", .kind = object.kind, .object = object.text()},
               .path = {},
               .make = std::move(make_patch),
               .done = std::move(done)});
  const auto path = path_of(object);
  const Call call = ++last_call_;
  if (path) changing->path = *path;
  if (path && known == nullptr) {
    read(call, changing, {});
    return call;
  }
  running_.emplace(call, std::make_unique<Exchange>(Exchange{.asked = changing->asked, .done = {}}));
  later(call, {}, [this, call, changing, path, object = known == nullptr ? json() : *known] {
    running_.erase(call);
    if (!path) return changing->done(fail(path.error()));
    make(call, changing, object);
  });
  return call;
}

void ApiClient::read(Call call, const std::shared_ptr<Changing>& changing, Backoff::Pause pause) {
  auto asked = changing->asked;
  asked.verb = "get";
  auto answered = [this, changing, asked](Call same, Result<ApiReply> reply, auto) {
    auto object = object_in(std::move(reply), asked);
    if (!object) return changing->done(fail(std::move(object).error()));
    make(same, changing, *object);
  };
  go_on(call,
        {.request = {.method = "GET", .path = changing->path}, .asked = asked, .done = std::move(answered)},
        pause);
}

void ApiClient::make(Call call, const std::shared_ptr<Changing>& changing, const json& object) {
  auto patch = changing->make(object);
  if (!patch) return changing->done(fail(std::move(patch).error()));
  if (patch->empty()) return changing->done(object);
  const auto version = version_of(object);
  if (version.empty())
    return changing->done(fail(Errc::malformed_host, fmt::format("get {}: the answer has no resourceVersion",
                                                                 changing->asked.object)));
  (*patch)["metadata"]["resourceVersion"] = version;

  auto answered = [this, changing](Call same, Result<ApiReply> reply, auto retry_after) {
    auto changed = object_in(std::move(reply), changing->asked);
    // After silence or a fault, the object itself shows if it was changed.
    const bool again = !changed && (changed.error().code == ApiErrc::conflict || may_mend(changed.error()));
    if (!again || ++changing->rounds >= kMostRounds) return changing->done(std::move(changed));
    read(same, changing, changing->backoff.next(random_, retry_after));
  };
  go_on(call,
        {.request = {.method = "PATCH",
                     .path = changing->path + fmt::format("?fieldManager={}", kFieldManager),
                     .content_type = std::string(kMergePatch),
                     .body = text_of(*patch)},
         .asked = changing->asked,
         .repeatable = false,
         .done = std::move(answered)},
        {});
}

ApiClient::Call ApiClient::evict(const ObjectRef& pod, std::string_view uid,
                                 std::function<void(Result<Eviction>)> done) {
  auto path = path_of(pod, "eviction");
  return begin(std::move(path), eviction(pod, uid, old_policy_, std::nullopt, std::move(done)));
}

ApiClient::Exchange ApiClient::eviction(const ObjectRef& pod, std::string_view uid, bool old_policy,
                                        const std::optional<Error>& first,
                                        std::function<void(Result<Eviction>)> done) {
  const auto path = path_of(pod, "eviction").value_or("");
  auto answered = [this, pod, path, old_policy, first, uid = std::string(uid), done = std::move(done)](
                      Call call, Result<ApiReply> reply, std::optional<std::chrono::seconds> retry_after) {
    if (reply) {
      old_policy_ = old_policy;
      return done(Eviction{});
    }
    const auto& error = reply.error();
    if (error.code == ApiErrc::invalid && !first) {
      auto in_other_words = eviction(pod, uid, !old_policy, error, done);
      in_other_words.request.path = path;
      return go_on(call, std::move(in_other_words), {});
    }
    if (error.code == ApiErrc::not_found || is_another_of_the_name(error))
      return done(Eviction{.gone = true});
    // Any other conflict: the pod was written meanwhile, and still exists.
    if (error.code == ApiErrc::too_many_requests || error.code == ApiErrc::conflict)
      return done(Eviction{.why = error.message, .retry_after = retry_after});
    // The server knows neither version, or a policy refuses the request: the first answer says why.
    done(fail(error.code == ApiErrc::invalid && first ? *first : error));
  };
  const json body = {{"apiVersion", old_policy ? "policy/v1beta1" : "policy/v1"},
                     {"kind", "Eviction"},
                     {"metadata", {{"name", pod.name}, {"namespace", pod.space}}},
                     {"deleteOptions", preconditions(uid)}};
  return {.request = request_of("POST", kJson, body),
          .asked = {.verb = "create",
                    .kind = pod.kind,
                    .subresource = "eviction",
                    .object = "eviction of " + pod.text()},
          .repeatable = !uid.empty(),
          .own_refusals = true,
          .done = std::move(answered)};
}

}  // namespace ferry::kube
