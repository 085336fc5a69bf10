// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "api/claim_request.h"
#include "common/result.h"
#include "dra/claim.h"
#include "dra/claims/claim_driver.h"
#include "kube/event_recorder.h"
#include "kube/timers.h"

namespace ferry::dra {

/// Records events of ResourceClaims, which `kubectl describe resourceclaim` shows, and logs their messages,
/// each of which names its claim.
class KubeClaimEvents final : public ClaimEvents {
 public:
  // Reasons of the events.

  static constexpr std::string_view kPrepareFailed = "GpuPrepareFailed";
  static constexpr std::string_view kUnprepareFailed = "GpuUnprepareFailed";
  static constexpr std::string_view kWarning = "GpuClaimWarning";

  /// An equal message about the same claim within this time is not given again.
  static constexpr kube::Timers::Clock::duration kOnce = std::chrono::minutes(10);

  /// Both must outlive this. The recorder's events have kController as their reportingComponent.
  KubeClaimEvents(kube::EventRecorder& recorder, kube::Timers& timers)
      : recorder_(recorder), timers_(timers) {}

  static constexpr const char* kController = "gpu-ferry.io/dra";

  void failed(const ClaimKey& claim, api::ClaimAction action, const Error& error) override;
  void warned(const ClaimKey& claim, const std::string& sentence) override;

 private:
  struct Given {
    std::string message;
    kube::Timers::Clock::time_point at;
  };

  void give(const ClaimKey& claim, std::string_view reason, const std::string& message);

  kube::EventRecorder& recorder_;
  kube::Timers& timers_;
  std::map<std::string, Given> given_;  ///< by the claim's UID and the reason
};

}  // namespace ferry::dra
