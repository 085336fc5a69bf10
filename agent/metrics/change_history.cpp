// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/change_history.h"

#include <algorithm>
#include <utility>

namespace ferry::agent {

std::string_view refusal_reason(const api::AcceleratorStatus& refused) {
  return refused.only_in_use ? kInUse : kAnotherReason;
}

void ChangeHistory::saw(const api::HostStatus& host, Clock::time_point now) {
  Before here{.phase = host.phase, .desired = host.desired_generation(), .refused = {}};
  for (const api::AcceleratorStatus& accelerator : host.accelerators)
    if (accelerator.state == api::GpuState::blocked)
      here.refused[accelerator.address] = refusal_reason(accelerator);
  const auto before = std::exchange(before_, here);
  if (!before) return;
  for (const auto& [address, reason] : here.refused) {
    const auto was = before->refused.find(address);
    if (was == before->refused.end() || was->second != reason) ++counts_.refusals[reason];
  }
  if (here.phase == api::NodePhase::applying) {
    if (before->phase != api::NodePhase::applying) begun_ = now;
    return;
  }
  const auto begun = std::exchange(begun_, std::nullopt);
  // A change that was too short to be seen, or needed no write, has ended too.
  if (here.phase == before->phase && here.desired == before->desired) return;
  ++counts_.ended[here.phase];
  if (!begun) return;
  const double seconds = std::chrono::duration<double>(now - *begun).count();
  const auto* const bound = std::ranges::lower_bound(kBounds, seconds);
  ++counts_.by_duration.at(static_cast<std::size_t>(bound - kBounds.begin()));
  counts_.seconds += seconds;
}

}  // namespace ferry::agent
