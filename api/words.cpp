// SPDX-License-Identifier: Apache-2.0
#include "api/words.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ferry::api {
namespace {

template <typename Value, std::size_t N>
using Words = std::array<std::pair<std::string_view, Value>, N>;

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

template <typename Value, std::size_t N>
std::string_view word_for(const Words<Value, N>& words, Value value) {
  return std::ranges::find(words, value, &std::pair<std::string_view, Value>::second)->first;
}

template <typename Value, std::size_t N>
std::optional<Value> value_for(const Words<Value, N>& words, std::string_view word) {
  const auto* const found = std::ranges::find(words, word, &std::pair<std::string_view, Value>::first);
  return found == words.end() ? std::nullopt : std::optional(found->second);
}

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
