// SPDX-License-Identifier: Apache-2.0
// Words for the state of GPUs and nodes. Files, labels, metrics and tables have the same ones.
#pragma once

#include <optional>
#include <string_view>
#include <type_traits>

#include "common/text/words.h"

namespace ferry::api {

/// The word for a value of an enumeration with words_of().
template <typename Enum>
  requires std::is_enum_v<Enum>
constexpr std::string_view text(Enum value) {
  return word_for(words_of(value), value);
}

/// The use that a GPU is made ready for.
enum class Mode {
  host,         ///< on its own driver, without vGPUs
  passthrough,  ///< whole, on a vfio driver
  vgpu,         ///< on its own driver, divided
};
inline constexpr Words<Mode, 3> kModes = {
    {{"host", Mode::host}, {"passthrough", Mode::passthrough}, {"vgpu", Mode::vgpu}}};
constexpr const auto& words_of(Mode /*mode*/) {
  return kModes;
}
/// Absent for another word; so parse_allocation().
constexpr std::optional<Mode> parse_mode(std::string_view word) {
  return value_for(words_of(Mode()), word);
}

enum class NodePhase {
  idle,  ///< there is no desired.json, and nothing is changed
  ready,
  applying,  ///< hostd waits until the kubelet no longer lists the devices, or writes to the host
  blocked,   ///< a device is in use or cannot be bound whole; the rest is as desired
  failed,    ///< a change was attempted and did not succeed, or the desired state cannot be read
};
inline constexpr Words<NodePhase, 5> kNodePhases = {{{"idle", NodePhase::idle},
                                                     {"ready", NodePhase::ready},
                                                     {"applying", NodePhase::applying},
                                                     {"blocked", NodePhase::blocked},
                                                     {"failed", NodePhase::failed}}};
constexpr const auto& words_of(NodePhase /*phase*/) {
  return kNodePhases;
}

/// The state of one accelerator in relation to its desired mode.
enum class GpuState {
  ready,
  blocked,
  failed,
  pending,    ///< about to be changed
  unmanaged,  ///< the policy does not cover it
};
inline constexpr Words<GpuState, 5> kGpuStates = {{{"ready", GpuState::ready},
                                                   {"blocked", GpuState::blocked},
                                                   {"failed", GpuState::failed},
                                                   {"pending", GpuState::pending},
                                                   {"unmanaged", GpuState::unmanaged}}};
constexpr const auto& words_of(GpuState /*state*/) {
  return kGpuStates;
}

/// The state of a GPU that VMs get whole, between two of its users.
enum class SanitizeState {
  in_use,      ///< a pod, claim or VM has it, or has had it, and its end is not seen yet
  sanitizing,  ///< its last use is over, and its reset and the proof are not
  available,
  failed,  ///< it could not be sanitized, and the policy asks for it
};
inline constexpr Words<SanitizeState, 4> kSanitizeStates = {{{"in_use", SanitizeState::in_use},
                                                             {"sanitizing", SanitizeState::sanitizing},
                                                             {"available", SanitizeState::available},
                                                             {"failed", SanitizeState::failed}}};
constexpr const auto& words_of(SanitizeState /*state*/) {
  return kSanitizeStates;
}

/// The end of a sanitizing.
enum class SanitizeResult {
  none,      ///< there was none yet
  proven,    ///< it was reset, and a register says that its memory was cleared since
  unproven,  ///< it was reset, and no register says so
  failed,    ///< it was not reset, or its registers say that something is wrong
  accepted,  ///< it failed, and an administrator has released the GPU all the same
};
inline constexpr Words<SanitizeResult, 5> kSanitizeResults = {{{"none", SanitizeResult::none},
                                                               {"proven", SanitizeResult::proven},
                                                               {"unproven", SanitizeResult::unproven},
                                                               {"failed", SanitizeResult::failed},
                                                               {"accepted", SanitizeResult::accepted}}};
constexpr const auto& words_of(SanitizeResult /*result*/) {
  return kSanitizeResults;
}

/// The program that gives the devices of a GPU to pods and VMs.
enum class Allocation {
  device_plugin,  ///< `ferry plugin`, by resources of the node
  dra,            ///< `ferry dra`, by ResourceClaims
};
inline constexpr Words<Allocation, 2> kAllocations = {
    {{"device-plugin", Allocation::device_plugin}, {"dra", Allocation::dra}}};
constexpr const auto& words_of(Allocation /*allocation*/) {
  return kAllocations;
}
constexpr std::optional<Allocation> parse_allocation(std::string_view word) {
  return value_for(words_of(Allocation()), word);
}

}  // namespace ferry::api
