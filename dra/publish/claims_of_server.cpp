// SPDX-License-Identifier: Apache-2.0
#include "dra/publish/claims_of_server.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "kube/api_error.h"
#include "kube/api_path.h"
#include "kube/field_filter.h"

namespace ferry::dra {
namespace {

constexpr const char* kAgain = "the kubelet asks again, until the API server answers";

/// A read that has no answer yet.
struct Reading {
  ClaimReader::Done done;
  kube::ApiClient::Call call = 0;
  kube::Timers::Timer end = {};  ///< of the time for the answer
};

}  // namespace

void KubeClaimReader::read(const ClaimKey& key, Done done) {
  // All but large fields that are not read. A tenant writes most of them.
  const kube::FieldChoice fields{
      .mode = kube::FieldChoice::Mode::all_but,
      .fields = {
          {"metadata", {{"managedFields"}, {"labels"}, {"finalizers"}, {"ownerReferences"}}},
          {"spec",
           {{"devices",
             {{"constraints"},
              {"config"},
              {"requests",
               {{"firstAvailable"}, {"exactly", {{"selectors"}, {"tolerations"}, {"capacity"}}}}}}}}},
          {"status",
           {{"reservedFor"},
            {"devices"},
            {"allocation", {{"nodeSelector"}, {"devices", {{"config", {{"opaque", {{"parameters"}}}}}}}}}}}}};
  ask({.kind = kube::kResourceClaims, .space = key.space, .name = key.name}, fields, std::move(done));
}

void KubeClaimReader::read_class(const std::string& name, Done done) {
  ask({.kind = kube::kDeviceClasses, .name = name},
      {.mode = kube::FieldChoice::Mode::all_but,
       .fields = {{"metadata"}, {"spec", {{"selectors"}, {"config"}}}}},
      std::move(done));
}

void KubeClaimReader::ask(const kube::ObjectRef& object, const kube::FieldChoice& fields, Done done) {
  const auto reading = std::make_shared<Reading>();
  reading->done = std::move(done);
  reading->call = client_.get(
      object,
      [&timers = timers_, reading](Result<nlohmann::json> read) {
        timers.cancel(reading->end);
        if (read) return reading->done(std::move(read));
        Error error = std::move(read).error();
        if (error.code == kube::ApiErrc::not_found) error.code = make_error_code(Errc::not_found);
        if (kube::may_mend(error)) {
          error.code = make_error_code(Errc::unreachable);
          if (error.hint.empty()) error.hint = kAgain;
        }
        reading->done(fail(std::move(error)));
      },
      fields);
  reading->end = timers_.at(timers_.now() + kLongest, [&client = client_, reading, name = object.text()] {
    client.cancel(reading->call);
    reading->done(fail(
        Errc::unreachable,
        fmt::format("get {}: the API server has not answered for {} s", name, kLongest.count()), kAgain));
  });
}

void KubeClaimEvents::failed(const ClaimKey& claim, api::ClaimAction action, const Error& error) {
  give(claim, action == api::ClaimAction::prepare ? kPrepareFailed : kUnprepareFailed, error.text());
}

void KubeClaimEvents::warned(const ClaimKey& claim, const std::string& sentence) {
  give(claim, kWarning, sentence);
}

void KubeClaimEvents::lost(const ClaimKey& claim, const std::string& sentence) {
  give(claim, kLost, sentence);
  recorder_.record(kube::EventRecorder::Type::warning, kLost, sentence);
}

void KubeClaimEvents::give(const ClaimKey& claim, std::string_view reason, const std::string& message) {
  const auto now = timers_.now();
  std::erase_if(given_, [&](const auto& entry) { return now - entry.second.at >= kOnce; });
  const auto [given, is_first] =
      given_.try_emplace(fmt::format("{}/{}", claim.uid, reason), Given{.message = message, .at = now});
  if (!is_first && given->second.message == message) return;
  given->second = {.message = message, .at = now};
  spdlog::warn("{}: {}", reason, message);
  recorder_.record(
      {.object = {.kind = kube::kResourceClaims, .space = claim.space, .name = claim.name}, .uid = claim.uid},
      kube::EventRecorder::Type::warning, reason, message);
}

LostClaims::LostClaims(kube::Timers& timers, Settings settings)
    : timers_(timers), settings_(std::move(settings)) {}

void LostClaims::look(std::set<std::string> in_server) {
  in_server_ = std::move(in_server);
  std::map<std::string, Clock::time_point> lost;
  for (const CheckpointClaim& claim : settings_.checkpoint().claims) {
    if (in_server_.contains(claim.uid)) continue;
    const auto known = undone_at_.find(claim.uid);
    lost.emplace(claim.uid, known == undone_at_.end() ? timers_.now() + kPatience : known->second);
  }
  undone_at_ = std::move(lost);
  timer_.cancel();
  if (undone_at_.empty()) return;
  const auto first = std::ranges::min_element(undone_at_, {}, [](const auto& entry) { return entry.second; });
  timer_.set(first->second, [this] { undo_due(); });
}

void LostClaims::undo_due() {
  std::set<std::string> kept = in_server_;
  for (auto& [uid, at] : undone_at_) {
    if (at > timers_.now())
      kept.insert(uid);
    else
      at = timers_.now() + kPatience;  // a claim that still exists, or cannot be undone yet, is tried again
  }
  settings_.unprepare_all_but(kept);
  look(std::set<std::string>(in_server_));
}

}  // namespace ferry::dra
