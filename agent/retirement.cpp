// SPDX-License-Identifier: Apache-2.0
#include "agent/retirement.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

namespace ferry {
namespace {

using nlohmann::json;

/// Helm sets this annotation on an object that it installs; a rendered manifest lacks it.
constexpr const char* kHelmsRelease = "meta.helm.sh/release-name";

}  // namespace

Retirement::Retirement(ApiTransport& transport, ApiClient& client, Timers& timers, Random random,
                       ObjectRef daemon_set, std::chrono::seconds patience,
                       std::function<void(Result<>)> ended)
    : client_(client),
      timers_(timers),
      random_(std::move(random)),
      daemon_set_(std::move(daemon_set)),
      patience_(patience),
      ended_(std::move(ended)),
      watch_(transport, timers, random_, only(daemon_set_),
             {.changed = [this] { look(); },
              .trouble = [](const Error& error) { spdlog::warn("{}", error.message); },
              .well = [] {}}) {}

Retirement::~Retirement() {
  timers_.cancel(again_);
  timers_.cancel(deadline_);
  if (call_) client_.cancel(*call_);
}

Result<> Retirement::begin() {
  // An impossible name is an error here: no watch would ever show such an object.
  if (auto named = path_of(daemon_set_); !named) return fail(std::move(named).error());
  if (auto begun = watch_.begin(); !begun) return begun;
  deadline_ = timers_.at(timers_.now() + patience_, [this] { give_up(); });
  return {};
}

void Retirement::look() {
  if (watch_.objects().empty()) return end({});
  const json& metadata = watch_.objects().begin()->second.at("metadata");
  if (!metadata.value("annotations", json::object()).contains(kHelmsRelease)) {
    spdlog::warn("{} is not Helm's, and stays", daemon_set_.text());
    return end({});
  }
  std::string uid = metadata.value("uid", "");
  if (call_ || uid == removed_) return;
  removed_ = std::move(uid);
  spdlog::info("{} goes, behind its pods", daemon_set_.text());
  remove();
}

void Retirement::remove() {
  call_ = client_.remove(
      daemon_set_, removed_,
      [this](Result<> done) {
        call_.reset();
        if (!done) {
          if (done.error().code != ApiErrc::forbidden && !may_mend(done.error())) return end(std::move(done));
          refusal_ = std::move(done).error();
          again_ = timers_.at(timers_.now() + backoff_.next(random_), [this] { remove(); });
          return;
        }
        refusal_.reset();
        look();  // it may have been created again meanwhile
      },
      ApiClient::Dependents::first);
}

void Retirement::give_up() {
  if (refusal_) return end(fail(std::move(*refusal_)));
  end(fail(Errc::stuck,
           fmt::format("{} is still there after {} s: {}", daemon_set_.text(), patience_.count(),
                       watch_.listed() ? "a pod of it has not ended" : "the API server does not show it"),
           fmt::format("`kubectl get pods -n {} -o wide` shows where; the pod of a node that is gone goes "
                       "with its Node object",
                       daemon_set_.space)));
}

void Retirement::end(Result<> how) {
  if (const auto told = std::exchange(ended_, {})) told(std::move(how));
}

}  // namespace ferry
