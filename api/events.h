// SPDX-License-Identifier: Apache-2.0
// Reasons of the events that the agent records on its Node. The page docs/agent.md says when each is
// recorded.
#pragma once

namespace ferry::api::event {

inline constexpr const char* kApplying = "Applying";
inline constexpr const char* kArtifactPullFailed = "ArtifactPullFailed";
inline constexpr const char* kBlocked = "Blocked";
inline constexpr const char* kConfigWarning = "ConfigWarning";
inline constexpr const char* kDrainFailed = "DrainFailed";
inline constexpr const char* kDraining = "Draining";
inline constexpr const char* kFailed = "Failed";
inline constexpr const char* kHostdUnavailable = "HostdUnavailable";
inline constexpr const char* kIdle = "Idle";
inline constexpr const char* kInvalidConfig = "InvalidConfig";
inline constexpr const char* kInvalidRuntimeClasses = "InvalidRuntimeClasses";
inline constexpr const char* kNotSanitized = "NotSanitized";
inline constexpr const char* kReady = "Ready";
inline constexpr const char* kResetInUse = "ResetInUse";
inline constexpr const char* kRolloutHeld = "RolloutHeld";
inline constexpr const char* kRuntimeBlocked = "RuntimeBlocked";
inline constexpr const char* kRuntimeFailed = "RuntimeFailed";
inline constexpr const char* kRuntimeNotListed = "RuntimeNotListed";
inline constexpr const char* kRuntimeReady = "RuntimeReady";
inline constexpr const char* kStandby = "Standby";

}  // namespace ferry::api::event
