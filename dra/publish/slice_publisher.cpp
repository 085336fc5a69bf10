// SPDX-License-Identifier: Apache-2.0
#include "dra/publish/slice_publisher.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "api/claimable_gpus.h"
#include "api/files.h"
#include "common/text/json.h"
#include "dra/names.h"
#include "dra/slices/publication.h"
#include "kube/api_error.h"
#include "kube/api_path.h"
#include "kube/field_filter.h"

namespace ferry::dra {
namespace {

using nlohmann::json;

// Keys of the parts that are kept of objects. A tree of a slice has fifteen times the size of its text.
constexpr const char* kText = "text";
constexpr const char* kDevices = "devices";
constexpr const char* kUid = "uid";
constexpr const char* kVersion = "resourceVersion";

// Subjects of errors.
constexpr const char* kSlices = "ResourceSlices";
constexpr const char* kClaims = "ResourceClaims";
constexpr const char* kGpus = "GPUs";
constexpr const char* kFeatures = "features";
constexpr const char* kRequests = "requests";

// Slices of 8 GPUs with 12 types of 16 vGPUs each have 1.5 MB.
constexpr std::size_t kMostOfSlices = std::size_t{16} << 20U;
// Slices in one answer, of which the whole tree is in memory at a time.
constexpr unsigned kSlicesOfPage = 4;

json kept_slice(const json& object) {
  const json& metadata = json_at(object, "metadata");
  json slice = {{"spec", json_at(object, "spec")}};
  for (const char* const key : {"name", "ownerReferences"})
    if (const json& value = json_at(metadata, key); !value.is_null()) slice["metadata"][key] = value;
  return {{kUid, text_at(metadata, kUid)},
          {kVersion, text_at(metadata, kVersion)},
          {kText, slice.dump(-1, ' ', false, json::error_handler_t::replace)}};
}

/// Null: the claim has no device of the pool. A device with admin access does not count: the scheduler
/// ignores it, and its claim is never prepared (read_allocated_claim()).
json kept_claim(const json& object, std::string_view pool) {
  const json& allocation = json_at(json_at(object, "status"), "allocation");
  const json& results = json_at(json_at(allocation, "devices"), "results");
  if (!results.is_array()) return {};
  json names = json::array();
  for (const json& result : results) {
    const bool is_counted = !(json_at(result, "adminAccess") == true);
    if (is_counted && text_at(result, "driver") == kDriver && text_at(result, "pool") == pool)
      names.push_back(text_at(result, "device"));
  }
  if (names.empty()) return {};
  return {{kUid, text_at(json_at(object, "metadata"), kUid)}, {kDevices, std::move(names)}};
}

/// All but the fields that tenants write, and the large ones. The scheduler copies tolerations of a request
/// to each of its results.
kube::ObjectWatch::Kept parts_of_claims(std::string pool) {
  const kube::Field results{.name = "results",
                            .inner = {{"tolerations"},
                                      {"bindingConditions"},
                                      {"bindingFailureConditions"},
                                      {"consumedCapacity"},
                                      {"compatibilityGroups"},
                                      {"skipNodeOperations"}}};
  const kube::FieldChoice fields{
      .mode = kube::FieldChoice::Mode::all_but,
      .fields = {
          {"metadata", {{"managedFields"}, {"annotations"}, {"labels"}, {"finalizers"}, {"ownerReferences"}}},
          {"spec"},
          {"status",
           {{"reservedFor"},
            {"devices"},
            {"allocation", {{"nodeSelector"}, {"devices", {{"config"}, results}}}}}}}};
  return {.fields = fields,
          .take = [pool = std::move(pool)](const json& object) { return kept_claim(object, pool); }};
}

kube::ObjectRef slice_ref(const std::string& name) {
  return {.kind = kube::kResourceSlices, .name = name};
}

}  // namespace

SlicePublisher::SlicePublisher(const HostFs& host, kube::ApiTransport& transport, kube::Timers& timers,
                               kube::Random random, Settings settings)
    : host_(host),
      timers_(timers),
      random_(std::move(random)),
      settings_(std::move(settings)),
      client_(transport, timers, random_),
      probe_(transport),
      slices_(transport, timers, random_, kube::slices_of_node(settings_.node, kDriver), listener(kSlices),
              {.take = kept_slice, .most = kMostOfSlices, .page = kSlicesOfPage}),
      claims_(transport, timers, random_, {.kind = kube::kResourceClaims}, listener(kClaims),
              parts_of_claims(pool_name(settings_.node))) {}

kube::ObjectWatch::Listener SlicePublisher::listener(const char* what) {
  kube::ObjectWatch::Listener out;
  out.changed = [this] { schedule(); };
  out.trouble = [this, what](const Error& error) { report(what, error); };
  out.well = [this, what] {
    spdlog::info("{}: the API server answers again", what);
    problems_.erase(what);
  };
  if (std::string_view(what) == kSlices) out.opened = [this] { probe(); };
  return out;
}

Result<> SlicePublisher::begin() {
  // A name that can be no object's ends the program now, and not each request of it.
  if (auto path = kube::path_of(kube::node_ref(settings_.node)); !path) return fail(std::move(path).error());
  if (auto begun = slices_.begin(); !begun) return begun;
  if (auto begun = claims_.begin(); !begun) return begun;
  probe();
  return {};
}

void SlicePublisher::gpus_changed() {
  gpus_read_ = false;
  schedule();
}

Result<NodeModel> SlicePublisher::node() const {
  if (!gpus_ || !features_ || !claims_.listed()) {
    constexpr const char* kWhat = "the GPUs of the node are not known yet";
    if (auto why = problem()) return fail(std::move(*why).during(kWhat));
    return fail(Errc::unreachable, kWhat, "`ferry dra` has just started: try again in a moment");
  }
  NodeModel out{.owner = {.node = settings_.node, .node_uid = node_uid_},
                .gpus = *gpus_,
                .held = settings_.held(),
                .allocated = {},
                .server = *features_};
  for (const auto& [key, claim] : claims_.objects())
    for (const json& name : json_at(claim, kDevices))
      if (name.is_string()) out.allocated.insert(name.get<std::string>());
  return out;
}

std::optional<std::set<std::string>> SlicePublisher::claims() const {
  if (!claims_.listed()) return std::nullopt;
  std::set<std::string> out;
  for (const auto& [key, claim] : claims_.objects()) out.insert(text_at(claim, kUid));
  return out;
}

std::optional<Error> SlicePublisher::problem() const {
  return problems_.empty() ? std::nullopt : std::optional(problems_.begin()->second);
}

/// Records an error. True: the last one of this subject had another message.
bool SlicePublisher::is_news(const char* subject, const Error& error) {
  const auto [entry, is_first] = problems_.try_emplace(subject, error);
  return is_first || std::exchange(entry->second, error).message != error.message;
}

/// A server that does not answer, or is busy, comes back by itself.
void SlicePublisher::report(const char* subject, const Error& error) {
  if (!is_news(subject, error)) return;
  spdlog::error("{}: {}", subject, error.text());
  if (settings_.refused && !kube::may_mend(error)) settings_.refused(error);
}

void SlicePublisher::schedule() {
  if (!reconcile_timer_.is_set()) reconcile_timer_.set(timers_.now(), [this] { reconcile(); });
}

void SlicePublisher::reconcile() {
  if (!gpus_read_) read_gpus();
  if (settings_.changed) settings_.changed();
  // The end of each of these reconciles again.
  if (!requests_.empty() || reading_node_ || !probed_ || retry_timer_.is_set()) return;
  const Result<NodeModel> known = node();
  if (!known || !slices_.listed()) return;
  if (!is_reported()) return look_again();
  poll_timer_.cancel();
  SlicePlan plan;
  {
    const Publication publication = publication_of(*known);
    log_notes(publication.notes);
    plan = plan_slices(stored_slices(), slices_of(publication, known->owner, 0), last_generation_);
  }
  if (plan.requests.empty()) {
    last_generation_ = plan.generation;  // a former process may have sent it
    return settle();
  }
  settled_ = false;
  const bool creates = std::ranges::any_of(plan.requests, [](const SliceRequest& request) {
    return request.action == SliceRequest::Action::create;
  });
  // A Node that was deleted and made again has another UID, and slices of the former one are collected.
  if (!std::exchange(node_read_, false) && creates) return read_node();
  last_generation_ = plan.generation;
  std::ranges::move(plan.requests, std::back_inserter(requests_));
  send_next();
}

void SlicePublisher::settle() {
  backoff_.reset();
  problems_.erase(kRequests);
  settled_ = true;
  if (!std::exchange(wrote_, false)) return;
  spdlog::info("ResourceSlices of the node are published, generation {}", last_generation_);
  if (settings_.settled) settings_.settled();
}

// Inputs.

void SlicePublisher::read_gpus() {
  auto text = host_.read_file(api::kClaimableGpusFile);
  auto gpus = text ? api::read_claimable_gpus(*text) : Result<std::vector<Gpu>>(fail(text.error()));
  gpus_read_ = true;
  if (gpus) {
    gpus_ = std::move(*gpus);
    problems_.erase(kGpus);
    return;
  }
  // A list that is gone or cannot be read is written anew by hostd, which is reported then. The former list
  // counts until then, since claims have devices of it.
  if (is_news(kGpus, gpus.error()))
    spdlog::warn("{}; {}", gpus.error().text(),
                 gpus_ ? "the former list of GPUs counts until then"
                       : "no GPUs are published before hostd has listed them");
  if (!lacks_means(gpus.error())) return;
  gpus_read_ = false;
  retry(gpus.error());
}

/// The slices that the watch has. A removed one may still be there for a while, but it must not be removed
/// twice.
std::vector<StoredSlice> SlicePublisher::stored_slices() {
  std::vector<StoredSlice> out;
  std::set<std::string> removed;
  for (const auto& [name, kept] : slices_.objects()) {
    StoredSlice one{.name = name, .uid = text_at(kept, kUid), .version = text_at(kept, kVersion)};
    if (removed_.contains(one.uid)) {
      removed.insert(std::move(one.uid));
      continue;
    }
    if (auto slice = read_slice(json::parse(text_at(kept, kText), nullptr, false)))
      one.slice = std::move(*slice);
    else
      spdlog::warn("{}; the slice is written anew", slice.error().text());
    out.push_back(std::move(one));
  }
  removed_ = std::move(removed);
  return out;
}

void SlicePublisher::log_notes(const std::vector<std::string>& notes) {
  if (notes == notes_) return;
  for (const std::string& note : notes)
    if (std::ranges::find(notes_, note) == notes_.end()) spdlog::info("not published: {}", note);
  notes_ = notes;
}

void SlicePublisher::probe() {
  probe_timer_.cancel();
  probed_ = false;
  if (probe_.is_under_way()) return;
  probe_.begin({.node = settings_.node, .node_uid = node_uid_},
               [this](Result<ServerFeatures> features) { probed(std::move(features)); });
}

void SlicePublisher::probed(Result<ServerFeatures> features) {
  if (!features) {
    report(kFeatures, features.error());
    if (features.error().code == Errc::unsupported) features_.reset();
    probe_timer_.set(timers_.now() + probe_backoff_.next(random_), [this] { probe(); });
    return;
  }
  probe_backoff_.reset();
  problems_.erase(kFeatures);
  probed_ = true;
  if (features_ != *features)
    spdlog::info("the API server stores counters: {}, taints: {}, compatibility groups: {}",
                 features->counters, features->taints, features->compatibility_groups);
  features_ = *features;
  schedule();
}

void SlicePublisher::read_node() {
  reading_node_ = true;
  client_.get(kube::node_ref(settings_.node), [this](const Result<json>& node) { node_read(node); },
              {.mode = kube::FieldChoice::Mode::only, .fields = {{"metadata", {{"name"}, {"uid"}}}}});
}

void SlicePublisher::node_read(const Result<json>& node) {
  reading_node_ = false;
  if (!node && node.error().code != kube::ApiErrc::forbidden) return retry(node.error());
  if (!node) spdlog::warn("{}; the ResourceSlices will outlive the Node", node.error().text());
  node_uid_ = node ? text_at(json_at(*node, "metadata"), kUid) : std::string();
  node_read_ = true;
  schedule();
}

// Requests.

void SlicePublisher::send_next() {
  const SliceRequest& request = requests_.front();
  const auto answered = [this](const Result<json>& answer) { written(answer); };
  wrote_ = true;
  switch (request.action) {
    case SliceRequest::Action::create:
      client_.create(kube::kResourceSlices, {}, slice_json(request.slice), answered);
      break;
    case SliceRequest::Action::update: {
      json object = slice_json(request.slice);
      json& metadata = object["metadata"];
      metadata["name"] = request.name;
      metadata[kUid] = request.uid;
      metadata[kVersion] = request.version;
      client_.replace(slice_ref(request.name), object, answered);
      break;
    }
    case SliceRequest::Action::remove:
      client_.remove(slice_ref(request.name), request.uid,
                     [this](const Result<>& answer) { removed(answer); });
      break;
  }
}

void SlicePublisher::written(const Result<json>& answer) {
  if (!answer) return failed(answer.error());
  const std::string version = kube::version_of(*answer);
  if (kube::is_later(version, awaited_version_)) awaited_version_ = version;
  const auto stored = read_slice(*answer);
  if (stored && is_stored_as_sent(*stored, requests_.front().slice)) return sent_one();
  failed(
      {.code = make_error_code(Errc::failed),
       .message =
           "ResourceSlice " + kube::object_key(*answer) + ": the API server has not stored all that was sent",
       .hint = "its feature gates are tried again; do the API servers of this cluster have different ones?"});
  probe();
}

void SlicePublisher::removed(const Result<>& answer) {
  if (!answer) return failed(answer.error());
  removed_.insert(requests_.front().uid);
  sent_one();
}

void SlicePublisher::sent_one() {
  requests_.pop_front();
  if (requests_.empty()) return schedule();
  send_next();
}

void SlicePublisher::failed(const Error& error) {
  requests_.clear();
  // The slice was changed or removed since it was read. The watch reports it.
  const bool is_overtaken = error.code == kube::ApiErrc::conflict || error.code == kube::ApiErrc::not_found ||
                            error.code == kube::ApiErrc::already_exists;
  if (!is_overtaken) return retry(error);
  spdlog::debug("{}: read again", error.text());
  pause();
}

void SlicePublisher::retry(const Error& error) {
  report(kRequests, error);
  pause();
}

void SlicePublisher::pause() {
  if (retry_timer_.is_set()) return;
  retry_timer_.set(timers_.now() + backoff_.next(random_), [this] { schedule(); });
}

bool SlicePublisher::is_reported() {
  if (!awaited_version_.empty() && kube::is_later(awaited_version_, slices_.version())) return false;
  awaited_version_.clear();
  return true;
}

// The watch may report a write without a change: after the server has answered with a list of the same
// slices.
void SlicePublisher::look_again() {
  if (!poll_timer_.is_set()) poll_timer_.set(timers_.now() + kPollPeriod, [this] { schedule(); });
}

}  // namespace ferry::dra
