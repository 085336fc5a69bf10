// SPDX-License-Identifier: Apache-2.0
#include "host/usage/claim_use_probe.h"

#include <algorithm>
#include <string>

#include "host/claims/claim_record.h"

namespace ferry::host {
namespace {

/// True if the device of a claim is this function or mediated device.
bool is_on(const ClaimedDevice& device, const std::string& name) {
  if (device.is_whole())
    return std::ranges::any_of(device.gpus,
                               [&](const ClaimedGpu& gpu) { return gpu.address.text() == name; });
  const auto& function = device.result.function;
  return name == (function ? function->text() : device.result.mdev_uuid);
}

}  // namespace

Result<vfio::UseReport> ClaimUseProbe::look(std::span<const vfio::UseQuestion> questions) {
  auto report = inner_->look(questions);
  if (!report || questions.empty() || !host_->exists(kClaimRecordFile)) return report;
  const auto record = load_claim_record(*host_);
  if (!record) {
    if (report->blind.empty()) report->blind = record.error().text();
    return report;
  }
  for (const vfio::UseQuestion& question : questions) {
    for (const Claim& claim : record->claims) {
      const auto has_it = [&](const ClaimedDevice& device) { return is_on(device, question.device); };
      if (std::ranges::any_of(claim.devices, has_it))
        report->users[question.device].push_back({.kind = vfio::DeviceUser::Kind::resource_claim,
                                                  .name = claim.space + "/" + claim.name,
                                                  .what = {}});
    }
  }
  return report;
}

}  // namespace ferry::host
