// SPDX-License-Identifier: Apache-2.0
#include "agent/labels/node_feature.h"

#include <chrono>
#include <utility>

#include <spdlog/spdlog.h>

#include "common/text/json.h"
#include "kube/api_error.h"

namespace ferry::agent {
namespace {

using nlohmann::json;

constexpr const char* kNodeNameLabel = "nfd.node.kubernetes.io/node-name";

std::string metadata_text(const json& object, const char* key) {
  return text_at(json_at(object, "metadata"), key);
}

void complain(const Error& error) {
  spdlog::warn("labels for Node Feature Discovery: {}{}", error.text(),
               error.code == kube::ApiErrc::not_found
                   ? "; it is not installed, or older than NodeFeature objects"
                   : "");
}

}  // namespace

json node_feature(const std::string& node, const Labels& labels, kube::ApiKind owner_kind,
                  const json& owner) {
  json desired = json::object();
  for (const auto& [key, value] : labels) desired[key] = value;
  const json none = json::object();
  return {
      {"metadata",
       {{"labels", {{kNodeNameLabel, node}}},
        {"ownerReferences",
         {{{"apiVersion", owner_kind.api_version},
           {"kind", owner_kind.kind},
           {"name", metadata_text(owner, "name")},
           {"uid", metadata_text(owner, "uid")}}}}}},
      // Older releases of NFD refuse an object without its three kinds of features.
      {"spec",
       {{"features", {{"flags", none}, {"attributes", none}, {"instances", none}}}, {"labels", desired}}}};
}

bool says_the_same(const json& object, const json& content) {
  const json& has = json_at(object, "metadata");
  const json& desired = json_at(content, "metadata");
  const json& labels = json_at(json_at(object, "spec"), "labels");
  return json_at(has, "ownerReferences") == json_at(desired, "ownerReferences") &&
         json_at(json_at(has, "labels"), kNodeNameLabel) ==
             json_at(json_at(desired, "labels"), kNodeNameLabel) &&
         // An API server may omit an empty object.
         (labels.is_null() ? json::object() : labels) == json_at(json_at(content, "spec"), "labels");
}

NodeFeature::NodeFeature(HostFs& host, kube::ApiTransport& transport, kube::ApiClient& client,
                         kube::Timers& timers, kube::Random random, const AgentSettings& settings,
                         std::function<void()> changed)
    : host_(host),
      client_(client),
      timers_(timers),
      random_(std::move(random)),
      settings_(settings),
      changed_(std::move(changed)),
      object_{.kind = kube::kNodeFeatures,
              .space = settings_.space,
              .name = "ferry-features-for-" + settings_.node},
      watch_(transport, timers, random_, kube::only(object_),
             {.changed =
                  [this] {
                    written_.reset();
                    heard_since_write_ = true;
                    changed_();
                  },
              .trouble = complain,
              .well = changed_}),
      timer_(timers) {
  if (settings_.feature_owner.empty()) return;
  owner_ = std::make_unique<kube::ObjectWatch>(
      transport, timers, random_, kube::only(kube::config_map_ref(settings_.space, settings_.feature_owner)),
      kube::ObjectWatch::Listener{.changed = changed_, .trouble = complain, .well = changed_});
}

NodeFeature::~NodeFeature() {
  if (writing_) client_.cancel(*writing_);
}

Result<> NodeFeature::begin() {
  if (auto begun = watch_.begin(); !begun) return begun;
  return owner_ ? owner_->begin() : Result<>();
}

void NodeFeature::keep(const Labels& labels, const json& node) {
  if (writing_ || !watch_.listed()) return;
  const json* const owner = owner_ ? config_map() : &node;
  if (owner == nullptr) return;
  json content = node_feature(settings_.node, labels, owner_ ? kube::kConfigMaps : kube::kNodes, *owner);
  const auto& objects = watch_.objects();
  const json* now = objects.empty() ? nullptr : &objects.begin()->second;
  if (written_) now = &*written_;
  if (now != nullptr && says_the_same(*now, content)) return;
  if (timers_.now() < not_before_) return timer_.set(not_before_, changed_);
  if (!owner_) {
    if (auto marked = host_.write_file(kNodeFeatureMark, object_.space + "/" + object_.name + "\n"); !marked)
      return failed(marked.error());
  }
  write(std::move(content));
}

/// Null: the ConfigMap is missing, or not listed yet. If it is missing, the labels are no longer desired.
const json* NodeFeature::config_map() {
  if (!owner_->listed()) return nullptr;
  if (!owner_->objects().empty()) return &owner_->objects().begin()->second;
  if (!std::exchange(owner_missed_, true))
    spdlog::warn("labels for Node Feature Discovery: there is no ConfigMap {}/{} to own them",
                 settings_.space, settings_.feature_owner);
  return nullptr;
}

void NodeFeature::write(json content) {
  constexpr std::chrono::minutes kInARow{10};
  // Other programs may revert the object: the same content is not written again at once.
  const auto now = timers_.now();
  const bool again = content == last_ && now - last_at_ < kInARow;
  if (!again) repeats_.reset();
  not_before_ = again ? now + repeats_.next(random_) : now;
  last_ = content;
  last_at_ = now;
  heard_since_write_ = false;
  // The object's name makes it the agent's own: the write overrides other field managers.
  writing_ = client_.apply(object_, std::move(content), [this](Result<json> written) {
    writing_.reset();
    if (!written) return failed(written.error());
    backoff_.reset();
    // The watch may have reported a later change before this answer came, such as a deletion.
    if (!heard_since_write_) written_ = std::move(*written);
    changed_();
  });
}

void NodeFeature::failed(const Error& error) {
  complain(error);
  not_before_ = timers_.now() + backoff_.next(random_);
  timer_.set(not_before_, changed_);
}

FormerNodeFeature::FormerNodeFeature(HostFs& host, kube::ApiClient& client, kube::Timers& timers,
                                     kube::Random random)
    : host_(host), client_(client), timers_(timers), random_(std::move(random)), timer_(timers) {}

FormerNodeFeature::~FormerNodeFeature() {
  if (call_) client_.cancel(*call_);
}

void FormerNodeFeature::remove() {
  const std::string mark = host_.read_file(kNodeFeatureMark).value_or("");
  const auto slash = mark.find('/');
  if (slash == std::string::npos) return;
  const kube::ObjectRef object{.kind = kube::kNodeFeatures,
                               .space = mark.substr(0, slash),
                               .name = mark.substr(slash + 1, mark.find('\n') - slash - 1)};
  call_ = client_.remove(object, "", [this](Result<> removed) {
    call_.reset();
    if (removed) removed = host_.remove_file(kNodeFeatureMark);
    if (removed) return;
    spdlog::warn("labels of a former agent for Node Feature Discovery stay: {}", removed.error().text());
    if (kube::may_mend(removed.error()))
      timer_.set(timers_.now() + backoff_.next(random_), [this] { remove(); });
  });
}

}  // namespace ferry::agent
