// SPDX-License-Identifier: Apache-2.0
#include "tests/support/api_server.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ranges>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace ferry::test {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::array<kube::ApiKind, 12> kKinds = {
    kube::kNodes,        kube::kConfigMaps,     kube::kPods,           kube::kEvents,
    kube::kLeases,       kube::kDaemonSets,     kube::kKubeVirts,      kube::kVmis,
    kube::kNodeFeatures, kube::kResourceSlices, kube::kResourceClaims, kube::kDeviceClasses};
constexpr seconds kBookmarks{60};
// For an answer to begin, where there is no deadline for the whole: as the transport has it.
constexpr milliseconds kBegins{30'000};

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const auto hex = text.substr(i, 3);
    if (hex.size() == 3 && hex.front() == '%' &&
        std::from_chars(hex.data() + 1, hex.data() + 3, value, 16).ec == std::errc()) {
      out.push_back(static_cast<char>(value));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::vector<std::string> divided(std::string_view text, char by) {
  std::vector<std::string> parts(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == by) {
      parts.emplace_back();
    } else {
      if (text[i] == '\\' && i + 1 < text.size()) ++i;
      parts.back().push_back(text[i]);
    }
  }
  return parts;
}

std::string text_at(const json& object, const std::string& pointer) {
  const json::json_pointer place(pointer);
  return object.contains(place) && object[place].is_string() ? object[place].get<std::string>()
                                                             : std::string();
}

// Terms "a=b" and "a!=b" of fields; of labels "a" too.
bool matches(const json& object, std::string_view fields, std::string_view labels) {
  for (const auto& term : divided(fields, ',')) {
    if (term.empty()) continue;
    const auto equals = term.find('=');
    const bool is_not = equals > 0 && term[equals - 1] == '!';
    std::string pointer = "/" + term.substr(0, is_not ? equals - 1 : equals);
    std::ranges::replace(pointer, '.', '/');
    if ((text_at(object, pointer) == term.substr(equals + 1)) == is_not) return false;
  }
  const auto present = object.value("/metadata/labels"_json_pointer, json::object());
  const auto terms = divided(labels, ',');
  return std::ranges::all_of(terms, [&](const std::string& term) {
    if (term.empty()) return true;
    const auto equals = term.find('=');
    const auto found = present.find(term.substr(0, equals));
    return found != present.end() && (equals == std::string::npos || *found == term.substr(equals + 1));
  });
}

std::string status_text(int code, std::string_view reason, std::string_view message,
                        const json& details = json::object()) {
  return json{{"kind", "Status"},   {"apiVersion", "v1"}, {"metadata", json::object()}, {"status", "Failure"},
              {"message", message}, {"reason", reason},   {"details", details},         {"code", code}}
      .dump();
}

kube::ApiReply refusal(int code, std::string_view reason, std::string_view message,
                       const json& details = json::object()) {
  return {.status = code, .body = status_text(code, reason, message, details)};
}

json without_managers(json object) {
  object["metadata"].erase("managedFields");
  return object;
}

std::string key_of(const json& object) {
  const auto space = text_at(object, "/metadata/namespace");
  return (space.empty() ? "" : space + "/") + text_at(object, "/metadata/name");
}

std::string line_of(std::string_view type, const json& object) {
  return json{{"type", type}, {"object", object}}.dump() + "\n";
}

std::string_view kind_of(std::string_view plural) {
  return std::ranges::find(kKinds, plural, &kube::ApiKind::plural)->kind;
}

std::string path_of_object(const json& object) {
  const auto* const kind = std::ranges::find(kKinds, text_at(object, "/kind"), &kube::ApiKind::kind);
  if (kind == kKinds.end()) throw std::runtime_error("no kind that this server knows: " + object.dump());
  auto path = kube::path_of(kube::ObjectRef{.kind = *kind,
                                            .space = text_at(object, "/metadata/namespace"),
                                            .name = text_at(object, "/metadata/name")});
  if (!path) throw std::runtime_error(path.error().message);
  return *path;
}

}  // namespace

/// What a path means.
struct ApiServer::Place {
  std::string plural;
  std::string path;  ///< of the collection or the object, without query and subresource
  std::string space;
  std::string name;  ///< empty: the collection
  std::string subresource;
  std::map<std::string, std::string> query;

  bool holds(const std::string& other_plural, const json& object) const {
    return other_plural == plural && (space.empty() || text_at(object, "/metadata/namespace") == space) &&
           matches(object, value("fieldSelector"), value("labelSelector"));
  }
  std::string value(const std::string& key) const {
    const auto found = query.find(key);
    return found == query.end() ? "" : found->second;
  }
};

struct ApiServer::Change {
  std::uint64_t version = 0;
  std::string plural;
  json before;  ///< null: it was not there
  json after;   ///< null: it is gone
};

struct ApiServer::Waiting {
  kube::ApiRequest request;
  kube::ApiListener listener;
  kube::Timers::Timer deadline;
};

struct ApiServer::Stream {
  Place place;
  kube::ApiListener listener;
  seconds lasts{0};
  milliseconds silence{0};
  std::uint64_t version = 0;  ///< up to which all has been sent
  std::string former;         ///< the line before the last
  bool pumping = false;
  bool silent = false;
  kube::Timers::Timer end;
  kube::Timers::Timer next_bookmark;
  kube::Timers::Timer next_pump;
  kube::Timers::Timer too_silent;
};

ApiFault ApiFault::status_of(int code, std::string_view reason, std::string_view message) {
  return {.what = What::answer, .status = code, .body = status_text(code, reason, message)};
}

ApiServer::ApiServer(VirtualClock& clock, std::uint64_t seed) : clock_(clock), random_(seed) {}
ApiServer::~ApiServer() = default;

double ApiServer::draw() {
  constexpr double kRange = 18446744073709551616.0;  // 2^64
  return std::min(static_cast<double>(random_()) / kRange, 0.999999);
}

milliseconds ApiServer::latency() {
  const double most = happens(chances.late) ? 60'000 : 20;
  return milliseconds(1 + static_cast<int>(draw() * most));
}

// "/api/v1/namespaces/default/pods/x/eviction?a=b"
std::optional<ApiServer::Place> ApiServer::place_of(std::string_view path) {
  Place place;
  const auto question = path.find('?');
  if (question != std::string_view::npos)
    for (const auto& part : divided(path.substr(question + 1), '&')) {
      const auto equals = part.find('=');
      if (equals != std::string::npos)
        place.query[part.substr(0, equals)] = unescaped(std::string_view(part).substr(equals + 1));
    }
  auto parts = divided(path.substr(0, question), '/');
  const std::size_t root = parts.size() > 1 && parts[1] == "apis" ? 4 : 3;
  if (parts.size() <= root) return std::nullopt;
  std::size_t next = root;
  if (parts[next] == "namespaces" && parts.size() > next + 2) {
    place.space = unescaped(parts[next + 1]);
    next += 2;
  }
  place.plural = parts[next++];
  if (std::ranges::find(kKinds, place.plural, &kube::ApiKind::plural) == kKinds.end()) return std::nullopt;
  if (next < parts.size()) place.name = unescaped(parts[next++]);
  const auto end = next;
  if (next < parts.size()) place.subresource = parts[next++];
  if (next != parts.size()) return std::nullopt;
  for (std::size_t i = 1; i < end; ++i) place.path += "/" + parts[i];
  return place;
}

// --- Requests on their way --------------------------------------------------------------------------------

kube::ApiTransport::Call ApiServer::send(kube::ApiRequest request, kube::ApiListener listener) {
  const Call call = ++last_call_;
  seen_.push_back({.time = clock_.now(), .request = request});
  auto waiting = std::make_unique<Waiting>();
  waiting->request = request;
  waiting->listener = std::move(listener);
  const auto deadline = request.deadline.count() > 0 ? request.deadline : kBegins;
  waiting->deadline = clock_.at(clock_.now() + deadline, [this, call] { lose(call); });
  waiting_.emplace(call, std::move(waiting));
  clock_.at(clock_.now() + latency(), [this, call, request = std::move(request)] { arrive(call, request); });
  return call;
}

std::size_t ApiServer::watches() const {
  const auto asked = std::ranges::count_if(waiting_, [](const auto& waiting) {
    return waiting.second->request.path.find("watch=1") != std::string::npos;
  });
  return streams_.size() + static_cast<std::size_t>(asked);
}

void ApiServer::cancel(Call call) {
  if (const auto waiting = waiting_.find(call); waiting != waiting_.end()) {
    clock_.cancel(waiting->second->deadline);
    waiting_.erase(waiting);
  }
  const auto found = streams_.find(call);
  if (found == streams_.end()) return;
  const auto& stream = *found->second;
  for (const auto& timer : {stream.end, stream.next_bookmark, stream.next_pump, stream.too_silent})
    clock_.cancel(timer);
  streams_.erase(found);
}

std::optional<ApiFault> ApiServer::fault_for(const kube::ApiRequest& request) {
  if (!next.empty()) {
    auto scripted = std::move(next.front());
    next.pop_front();
    return scripted;
  }
  if (script)
    if (auto scripted = script(request)) return scripted;
  if (happens(chances.lost_before)) return ApiFault::lost_before();
  if (happens(chances.lost_after)) return ApiFault::lost_after();
  if (happens(chances.unauthorized)) return ApiFault::status_of(401, "Unauthorized", "Unauthorized");
  if (happens(chances.forbidden)) return ApiFault::status_of(403, "Forbidden", "not now");
  if (happens(chances.too_many_requests)) {
    auto fault = ApiFault{.status = 429, .body = "Too many requests, please try again later.\n"};
    if (draw() < 0.8) fault.retry_after = seconds(static_cast<int>(draw() * 5));
    return fault;
  }
  if (happens(chances.server_fault)) {
    constexpr std::array<int, 4> kFaults = {500, 502, 503, 504};
    return ApiFault::status_of(kFaults.at(static_cast<std::size_t>(draw() * kFaults.size())),
                               "InternalError");
  }
  return std::nullopt;
}

// What has been sent arrives, though the client may have turned away.
void ApiServer::arrive(Call call, const kube::ApiRequest& request) {
  if (down_) return lose(call);
  const auto fault = fault_for(request);
  if (fault && fault->what == ApiFault::What::lost_before) return lose(call);
  if (fault && fault->what == ApiFault::What::answer)
    return answer(call, {.status = fault->status, .body = fault->body, .retry_after = fault->retry_after});

  const auto place = place_of(request.path);
  if (request.method == "GET" && place && place->query.contains("watch")) {
    if (fault) return lose(call);
    return open_stream(call, *place);
  }
  auto reply = handle(request);
  if (fault) return lose(call);
  answer(call, std::move(reply));
}

// Half of what is lost is noticed at once, the other half only by its deadline.
void ApiServer::lose(Call call) {
  const auto waiting = waiting_.find(call);
  if (waiting == waiting_.end()) return;
  if (waiting->second->deadline.first > clock_.now() && !down_ && draw() < 0.5) return;
  end(call, fail(Errc::unreachable, "the connection was lost"));
}

void ApiServer::answer(Call call, kube::ApiReply reply) {
  clock_.at(clock_.now() + latency(), [this, call, reply = std::move(reply)] { end(call, reply); });
}

void ApiServer::end(Call call, Result<kube::ApiReply> reply) {
  if (reply && reply->status == 200 && !give_body(call, reply->body)) return;
  std::function<void(Result<kube::ApiReply>)> ended;
  if (const auto waiting = waiting_.find(call); waiting != waiting_.end()) {
    ended = std::move(waiting->second->listener.ended);
  } else if (const auto stream = streams_.find(call); stream != streams_.end()) {
    ended = std::move(stream->second->listener.ended);
  }
  cancel(call);
  if (ended) ended(std::move(reply));
}

// Gives the body in pieces to a client that takes it as it comes. False: the client has cancelled meanwhile.
bool ApiServer::give_body(Call call, std::string& body) {
  const auto waiting = waiting_.find(call);
  if (waiting == waiting_.end() || !waiting->second->listener.received) return true;
  const auto received = waiting->second->listener.received;  // outlives a cancel from within
  const std::string whole = std::exchange(body, {});
  const auto cut = whole.size() / 2;
  for (const auto& part : {whole.substr(0, cut), whole.substr(cut)})
    if (!part.empty() && waiting_.contains(call)) received(part);
  return waiting_.contains(call);
}

// --- What the server does ---------------------------------------------------------------------------------

kube::ApiReply ApiServer::handle(const kube::ApiRequest& request) {
  const auto place = place_of(request.path);
  if (!place) return refusal(404, "NotFound", "the server could not find the requested resource");
  if (request.method == "GET" && place->subresource == "log") {
    const auto log = logs.find(fmt::format("{}/{}/{}", place->space, place->name, place->value("container")));
    return log == logs.end() ? refusal(404, "NotFound", "no such log")
                             : kube::ApiReply{.status = 200, .body = log->second};
  }
  if (request.method == "GET") return read(*place);
  if (request.method == "PATCH") return patch(*place, request);
  auto content = json::parse(request.body, nullptr, false);
  if (!content.is_object()) return refusal(400, "BadRequest", "the body is no JSON object");
  if (request.method == "POST" && place->subresource == "eviction") return evict(*place, content);
  if (request.method == "POST") return create(*place, std::move(content));
  if (request.method == "PUT") return replace(*place, std::move(content));
  if (request.method == "DELETE") return remove(*place, content);
  return refusal(405, "MethodNotAllowed", "the server does not allow this method");
}

kube::ApiReply ApiServer::read(const Place& place) const {
  if (!place.name.empty()) {
    const auto found = objects_.find(place.path);
    if (found == objects_.end())
      return refusal(404, "NotFound", fmt::format("{} \"{}\" not found", place.plural, place.name));
    return {.status = 200, .body = found->second.dump()};
  }
  // "1017 /api/v1/nodes/n1": a list of that version, behind that object.
  const auto limit = place.value("limit");
  const auto token = place.value("continue");
  const auto blank = std::min(token.find(' '), token.size());
  const auto version = token.empty() ? std::to_string(version_) : token.substr(0, blank);
  if (!token.empty() && std::stoull(version) < forgotten_)
    return refusal(410, "Expired", "The provided continue parameter is too old");
  const auto behind = token.substr(std::min(blank + 1, token.size()));
  json metadata = {{"resourceVersion", version}};
  auto items = json::array();
  std::string last;
  for (const auto& [path, object] : objects_) {
    const auto of = place_of(path);
    if (path <= behind || !of || !place.holds(of->plural, object)) continue;
    if (!limit.empty() && items.size() == std::stoull(limit)) {
      metadata["continue"] = fmt::format("{} {}", version, last);
      break;
    }
    last = path;
    auto item = object;
    item.erase("kind");
    item.erase("apiVersion");
    items.push_back(std::move(item));
  }
  return {.status = 200,
          .body = json{{"kind", fmt::format("{}List", kind_of(place.plural))},
                       {"apiVersion", "v1"},
                       {"metadata", std::move(metadata)},
                       {"items", std::move(items)}}
                      .dump()};
}

void ApiServer::let_another_write(const Place& place) {
  if (happens(chances.other_writer) && objects_.contains(place.path))
    edit(place.path,
         {{"metadata", {{"annotations", {{"example.com/other-writer", std::to_string(version_)}}}}}});
}

kube::ApiReply ApiServer::replace(const Place& place, json content) {
  let_another_write(place);
  const auto found = objects_.find(place.path);
  if (found == objects_.end())
    return refusal(404, "NotFound", fmt::format("{} \"{}\" not found", place.plural, place.name));
  if (text_at(content, "/metadata/name") != place.name)
    return refusal(400, "BadRequest", "the name of the object does not match the name on the URL");
  const auto before = found->second;
  if (text_at(content, "/metadata/resourceVersion") != text_at(before, "/metadata/resourceVersion"))
    return refusal(409, "Conflict",
                   fmt::format("Operation cannot be fulfilled on {} \"{}\": the object has been modified",
                               place.plural, place.name));
  content["metadata"]["uid"] = before["metadata"]["uid"];
  if (kept) content = kept(std::move(content));
  owners_.updated(place.path, place.value("fieldManager") + "|Update", before, content);
  return {.status = 200, .body = store(place.path, std::move(content)).dump()};
}

kube::ApiReply ApiServer::patch(const Place& place, const kube::ApiRequest& request) {
  let_another_write(place);
  auto content = json::parse(request.body, nullptr, false);
  if (!content.is_object()) return refusal(400, "BadRequest", "the body is no JSON object");
  const auto manager = place.value("fieldManager");
  if (request.content_type == "application/apply-patch+yaml") {
    if (manager.empty())
      return refusal(422, "Invalid", "fieldManager: Required value: is required for apply patch");
    return apply(place, content);
  }
  if (request.content_type != "application/merge-patch+json")
    return refusal(415, "UnsupportedMediaType", "the body of the request was in an unknown format");
  const auto found = objects_.find(place.path);
  if (found == objects_.end())
    return refusal(404, "NotFound", fmt::format("{} \"{}\" not found", place.plural, place.name));
  const auto expected = text_at(content, "/metadata/resourceVersion");
  if (!expected.empty() && expected != text_at(found->second, "/metadata/resourceVersion"))
    return refusal(
        409, "Conflict",
        fmt::format("Operation cannot be fulfilled on {} \"{}\": the object has been modified; please "
                    "apply your changes to the latest version and try again",
                    place.plural, place.name));
  const auto before = found->second;
  auto after = before;
  after.merge_patch(content);
  after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"];
  if (kept) after = kept(std::move(after));
  owners_.updated(place.path, manager + "|Update", before, after);
  return {.status = 200, .body = store(place.path, std::move(after)).dump()};
}

kube::ApiReply ApiServer::apply(const Place& place, const json& content) {
  const auto manager = place.value("fieldManager") + "|Apply";
  const auto found = objects_.find(place.path);
  const bool exists = found != objects_.end();
  const auto before = exists ? found->second : json();
  if (const auto conflicts = owners_.conflicts(place.path, manager, before, content);
      !conflicts.empty() && place.value("force") != "true")
    return refusal(409, "Conflict",
                   fmt::format("Apply failed with {} conflict(s): {}", conflicts.size(), *conflicts.begin()));
  auto after = owners_.applied(place.path, manager, before, content);
  return {.status = exists ? 200 : 201, .body = store(place.path, std::move(after)).dump()};
}

kube::ApiReply ApiServer::create(const Place& place, json content) {
  if (text_at(content, "/metadata/name").empty()) {
    const auto prefix = text_at(content, "/metadata/generateName");
    if (prefix.empty()) return refusal(422, "Invalid", "name or generateName is required");
    content["metadata"]["name"] = fmt::format("{}{:05x}", prefix, static_cast<int>(draw() * 0xFFFFF));
  }
  const auto name = text_at(content, "/metadata/name");
  const auto path = place.path + "/" + name;
  if (objects_.contains(path))
    return refusal(409, "AlreadyExists", fmt::format("{} \"{}\" already exists", place.plural, name));
  if (!place.space.empty()) content["metadata"]["namespace"] = place.space;
  if (kept) content = kept(std::move(content));
  if (place.value("dryRun") == "All") return {.status = 201, .body = content.dump()};
  owners_.updated(path, place.value("fieldManager") + "|Update", json(), content);
  return {.status = 201, .body = store(path, std::move(content)).dump()};
}

kube::ApiReply ApiServer::remove(const Place& place, const json& options) {
  const auto found = objects_.find(place.path);
  if (place.name.empty() || found == objects_.end())
    return refusal(404, "NotFound", fmt::format("{} \"{}\" not found", place.plural, place.name));
  const auto uid = text_at(options, "/preconditions/uid");
  const auto has = text_at(found->second, "/metadata/uid");
  if (!uid.empty() && uid != has)
    return refusal(409, "Conflict",
                   fmt::format("Operation cannot be fulfilled on {} \"{}\": the UID in the precondition ({}) "
                               "does not match the UID in record ({}). The object might have been deleted "
                               "and then recreated",
                               place.plural, place.name, uid, has));
  if (place.plural == kube::kPods.plural || text_at(options, "/propagationPolicy") == "Foreground") {
    end_later(place.path);
  } else {
    forget(place.path);
  }
  return {.status = 200, .body = R"({"kind":"Status","apiVersion":"v1","status":"Success"})"};
}

kube::ApiReply ApiServer::evict(const Place& place, const json& eviction) {
  const auto version = text_at(eviction, "/apiVersion");
  if (version != (knows_policy_v1 ? "policy/v1" : "policy/v1beta1"))
    return refusal(400, "BadRequest",
                   fmt::format("Eviction in version \"{}\" cannot be handled as a Eviction", version));
  if (objects_.contains(place.path) && disruption_budgeted.contains(place.space + "/" + place.name))
    return refusal(
        429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.",
        {{"causes", {{{"reason", "DisruptionBudget"}, {"message", "The disruption budget x needs 1"}}}}});
  return remove(place, eviction.value("deleteOptions", json::object()));
}

// A pod ends in two steps, as the kubelet has it; what waits for its pods does so, too.
void ApiServer::end_later(const std::string& path) {
  const auto first = objects_.at(path);
  if (!text_at(first, "/metadata/deletionTimestamp").empty()) return;
  edit(path, {{"metadata", {{"deletionTimestamp", "1970-01-01T00:00:00Z"}}}});
  clock_.at(clock_.now() + grace, [this, path, uid = text_at(first, "/metadata/uid")] {
    if (text_at(object(path), "/metadata/uid") == uid) forget(path);
  });
}

std::string ApiServer::plural_of(const std::string& path) {
  return place_of(path).value_or(Place{}).plural;
}

json ApiServer::store(const std::string& path, json object) {
  const auto found = objects_.find(path);
  const auto before = found == objects_.end() ? json() : found->second;
  if (before.is_null()) object["metadata"]["uid"] = fmt::format("uid-{}", ++last_uid_);
  if (!before.is_null()) object["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"];
  object["metadata"]["managedFields"] = owners_.managed_fields(path);
  if (object == before) return object;  // nothing changed, and nobody hears of it
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  objects_[path] = object;
  history_.push_back({.version = version_, .plural = plural_of(path), .before = before, .after = object});
  pump_soon();
  return object;
}

void ApiServer::forget(const std::string& path) {
  const auto found = objects_.find(path);
  if (found == objects_.end()) return;
  auto last = found->second;
  objects_.erase(found);
  owners_.forget(path);
  ++version_;
  history_.push_back(
      {.version = version_, .plural = plural_of(path), .before = std::move(last), .after = json()});
  pump_soon();
}

// --- What others do ---------------------------------------------------------------------------------------

json ApiServer::put(json object) {
  const auto path = path_of_object(object);
  const auto found = objects_.find(path);
  if (found != objects_.end()) object["metadata"]["uid"] = found->second["metadata"]["uid"];
  owners_.updated(path, "kubectl|Update", found == objects_.end() ? json() : found->second, object);
  return store(path, std::move(object));
}

void ApiServer::edit(const std::string& path, const json& patch) {
  const auto before = objects_.at(path);
  auto after = before;
  after.merge_patch(patch);
  owners_.updated(path, "kubectl|Update", before, after);
  store(path, std::move(after));
}

void ApiServer::erase(const std::string& path) {
  forget(path);
}

json ApiServer::object(const std::string& path) const {
  const auto found = objects_.find(path);
  return found == objects_.end() ? json() : found->second;
}

std::map<std::string, json> ApiServer::objects(const kube::Selection& selection) const {
  std::map<std::string, json> selected;
  const auto text = kube::path_of(selection);
  const auto place = text ? place_of(*text) : std::nullopt;
  if (!place) throw std::runtime_error("no selection that this server knows: " + selection.text());
  for (const auto& [path, object] : objects_)
    if (const auto of = place_of(path); of && place->holds(of->plural, object))
      selected.emplace(key_of(object), without_managers(object));
  return selected;
}

void ApiServer::set_down(bool down) {
  down_ = down;
  if (down) cut_streams();
}

void ApiServer::end_streams(const Result<kube::ApiReply>& how) {
  const auto keys = streams_ | std::views::keys;
  const std::vector<Call> calls(keys.begin(), keys.end());  // some go meanwhile
  for (const auto call : calls) end(call, how);
}

void ApiServer::silence_streams() {
  for (const auto& [call, stream] : streams_) stream->silent = true;
}

void ApiServer::say(std::string_view line) {
  const auto keys = streams_ | std::views::keys;
  const std::vector<Call> calls(keys.begin(), keys.end());  // some go meanwhile
  for (const auto call : calls) give(call, std::string(line) + "\n");
}

std::size_t ApiServer::count(std::string_view method, std::string_view part) const {
  return static_cast<std::size_t>(std::ranges::count_if(seen_, [&](const ReceivedApiRequest& seen) {
    return seen.request.method == method && seen.request.path.find(part) != std::string::npos;
  }));
}

// --- Streams ----------------------------------------------------------------------------------------------

void ApiServer::open_stream(Call call, const Place& place) {
  const auto waiting = waiting_.find(call);
  if (waiting == waiting_.end()) return;  // the client has turned away
  if (happens(chances.compacted)) compact();
  const auto from = std::stoull(place.value("resourceVersion"));
  const bool expired = from < forgotten_;
  // It may be said in either way.
  if (expired && draw() < 0.5)
    return answer(call, refusal(410, "Expired", fmt::format("too old resource version: {}", from)));

  const auto opened = std::move(waiting->second);
  waiting_.erase(waiting);
  auto stream = std::make_unique<Stream>();
  stream->place = place;
  stream->listener = std::move(opened->listener);
  stream->silence = opened->request.silence;
  stream->version = from;
  clock_.cancel(opened->deadline);
  const seconds lasts(std::stoul(place.value("timeoutSeconds")));
  stream->end = clock_.at(clock_.now() + lasts, [this, call] {
    if (!streams_.at(call)->silent) end(call, kube::ApiReply{.status = 200, .body = {}});
  });
  streams_.emplace(call, std::move(stream));
  heard(call);
  if (expired) {
    give(call, line_of("ERROR", json::parse(status_text(410, "Expired", "too old resource version"))));
    if (streams_.contains(call)) end(call, kube::ApiReply{.status = 200, .body = {}});
    return;
  }
  streams_.at(call)->next_bookmark = clock_.at(clock_.now() + kBookmarks, [this, call] { bookmark(call); });
  pump_soon();
}

// A stream's news come in their order, some time later.
void ApiServer::pump_soon() {
  for (const auto& [call, stream] : streams_) {
    if (stream->place.plural == held_back_) continue;
    if (std::exchange(stream->pumping, true)) continue;
    stream->next_pump = clock_.at(clock_.now() + latency(), [this, call = call] { pump(call); });
  }
}

void ApiServer::hold_back(std::string plural) {
  held_back_ = std::move(plural);
  pump_soon();
}

void ApiServer::pump(Call call) {
  auto& stream = *streams_.at(call);
  stream.pumping = false;
  auto change = std::ranges::upper_bound(history_, stream.version, {}, &Change::version);
  std::vector<std::string> lines;
  for (; change != history_.end(); ++change) {
    const bool held = !change->before.is_null() && stream.place.holds(change->plural, change->before);
    const bool holds = !change->after.is_null() && stream.place.holds(change->plural, change->after);
    if (holds) {
      lines.push_back(line_of(held ? "MODIFIED" : "ADDED", change->after));
    } else if (held) {
      auto last = change->before;
      last["metadata"]["resourceVersion"] = std::to_string(change->version);
      lines.push_back(line_of("DELETED", last));
    }
  }
  stream.version = version_;
  for (const auto& line : lines)
    if (!deliver(call, line)) return;
}

void ApiServer::bookmark(Call call) {
  auto& stream = *streams_.at(call);
  stream.next_bookmark = clock_.at(clock_.now() + kBookmarks, [this, call] { bookmark(call); });
  if (stream.pumping || stream.place.plural == held_back_)
    return;  // it knows no more than what has been sent
  const std::string kind(kind_of(stream.place.plural));
  give(call, line_of("BOOKMARK", {{"kind", kind},
                                  {"apiVersion", "v1"},
                                  {"metadata", {{"resourceVersion", std::to_string(stream.version)}}}}));
}

// False: the stream has ended.
bool ApiServer::deliver(Call call, std::string_view line) {
  if (happens(chances.cut)) {
    give(call, line.substr(0, static_cast<std::size_t>(draw() * static_cast<double>(line.size()))));
    if (streams_.contains(call)) end(call, fail(Errc::unreachable, "the connection was lost"));
    return false;
  }
  if (happens(chances.nonsense)) give(call, "{\"type\":\"NONSENSE\"}\n");
  if (!streams_.contains(call)) return false;
  const auto former = std::exchange(streams_.at(call)->former, std::string(line));
  give(call, line);
  if (streams_.contains(call) && happens(chances.again))
    give(call, draw() < 0.5 ? line : std::string_view(former));
  if (streams_.contains(call) && happens(chances.ended)) end(call, kube::ApiReply{.status = 200, .body = {}});
  return streams_.contains(call);
}

// In one piece or two, wherever the network has cut.
void ApiServer::give(Call call, std::string_view bytes) {
  const auto cut = static_cast<std::size_t>(draw() * static_cast<double>(bytes.size()));
  for (const auto part : {bytes.substr(0, cut), bytes.substr(cut)}) {
    const auto found = streams_.find(call);
    if (found == streams_.end() || found->second->silent || part.empty()) continue;
    heard(call);
    const auto received = found->second->listener.received;  // outlives a cancel from within
    received(part);
  }
}

void ApiServer::heard(Call call) {
  auto& stream = *streams_.at(call);
  if (stream.silence.count() == 0) return;
  clock_.cancel(stream.too_silent);
  stream.too_silent = clock_.at(clock_.now() + stream.silence, [this, call] {
    end(call, fail(Errc::unreachable, "nothing has come for too long"));
  });
}

}  // namespace ferry::test
