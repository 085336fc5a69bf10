// SPDX-License-Identifier: Apache-2.0
#include "api/words.h"

#include "common/text/words.h"

namespace ferry::api {
namespace {

constexpr Words<Mode, 3> kModes = {
    {{"host", Mode::host}, {"passthrough", Mode::passthrough}, {"vgpu", Mode::vgpu}}};

constexpr Words<NodePhase, 5> kPhases = {{{"idle", NodePhase::idle},
                                          {"ready", NodePhase::ready},
                                          {"applying", NodePhase::applying},
                                          {"blocked", NodePhase::blocked},
                                          {"failed", NodePhase::failed}}};

constexpr Words<GpuState, 5> kGpuStates = {{{"ready", GpuState::ready},
                                            {"blocked", GpuState::blocked},
                                            {"failed", GpuState::failed},
                                            {"pending", GpuState::pending},
                                            {"unmanaged", GpuState::unmanaged}}};

constexpr Words<Allocation, 2> kAllocations = {
    {{"device-plugin", Allocation::device_plugin}, {"dra", Allocation::dra}}};

}  // namespace

std::string_view text(Mode mode) {
  return word_for(kModes, mode);
}
std::optional<Mode> parse_mode(std::string_view word) {
  return value_for(kModes, word);
}
std::string_view text(NodePhase phase) {
  return word_for(kPhases, phase);
}
std::optional<NodePhase> parse_node_phase(std::string_view word) {
  return value_for(kPhases, word);
}
std::string_view text(GpuState state) {
  return word_for(kGpuStates, state);
}
std::optional<GpuState> parse_gpu_state(std::string_view word) {
  return value_for(kGpuStates, word);
}
std::string_view text(Allocation allocation) {
  return word_for(kAllocations, allocation);
}
std::optional<Allocation> parse_allocation(std::string_view word) {
  return value_for(kAllocations, word);
}

}  // namespace ferry::api
