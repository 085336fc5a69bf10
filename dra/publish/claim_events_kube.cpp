// SPDX-License-Identifier: Apache-2.0
#include "dra/publish/claim_events_kube.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "kube/api_path.h"

namespace ferry::dra {

void KubeClaimEvents::failed(const ClaimKey& claim, api::ClaimAction action, const Error& error) {
  give(claim, action == api::ClaimAction::prepare ? kPrepareFailed : kUnprepareFailed, error.text());
}

void KubeClaimEvents::warned(const ClaimKey& claim, const std::string& sentence) {
  give(claim, kWarning, sentence);
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

}  // namespace ferry::dra
