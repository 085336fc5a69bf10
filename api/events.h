// SPDX-License-Identifier: Apache-2.0
// Reasons of the events that the agent records on its Node. docs/agent.md lists them for people.
#pragma once

namespace ferry::api::event {

inline constexpr const char* kApplying = "Applying";  ///< hostd changes the GPUs to the policy
inline constexpr const char* kArtifactPullFailed =
    "ArtifactPullFailed";                           ///< an artifact of a Kata class could not be fetched
inline constexpr const char* kBlocked = "Blocked";  ///< a GPU is in use or cannot change
inline constexpr const char* kConfigWarning =
    "ConfigWarning";                                        ///< a request does not count, or needs attention
inline constexpr const char* kDrainFailed = "DrainFailed";  ///< pods are no longer evicted
inline constexpr const char* kDraining = "Draining";        ///< pods are evicted from the GPUs
inline constexpr const char* kFailed = "Failed";            ///< a change did not succeed
inline constexpr const char* kHostdUnavailable = "HostdUnavailable";  ///< hostd does not answer
inline constexpr const char* kIdle = "Idle";                          ///< no GPU is changed
inline constexpr const char* kInvalidConfig = "InvalidConfig";        ///< the desired state is not possible
inline constexpr const char* kInvalidRuntimeClasses =
    "InvalidRuntimeClasses";                                ///< the class file cannot be used
inline constexpr const char* kReady = "Ready";              ///< the GPUs match the policy
inline constexpr const char* kRolloutHeld = "RolloutHeld";  ///< the change waits for a person
inline constexpr const char* kRuntimeBlocked =
    "RuntimeBlocked";  ///< a Kata runtime cannot come or go for now
inline constexpr const char* kRuntimeFailed =
    "RuntimeFailed";  ///< a Kata runtime could not be installed or removed
inline constexpr const char* kRuntimeNotListed =
    "RuntimeNotListed";  ///< the kubelet does not list a runtime that is ready
inline constexpr const char* kRuntimeReady = "RuntimeReady";  ///< pods can start with a Kata runtime
inline constexpr const char* kStandby = "Standby";            ///< another program serves the node

}  // namespace ferry::api::event
