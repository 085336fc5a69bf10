// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "dra/claims/claim_driver.h"
#include "dra/slices/publication.h"

namespace ferry::dra {

Result<CheckpointClaim> record_of(const AllocatedClaim& claim, NodeModel node, const Checkpoint& checkpoint,
                                  const std::string& pool) {
  std::vector<std::string> names;
  names.reserve(claim.devices.size());
  for (const AllocatedDevice& device : claim.devices) names.push_back(device.device);
  node.held = held_devices(checkpoint);
  // The publisher may not have heard of this claim yet.
  node.allocated.insert(names.begin(), names.end());
  const Publication publication = publication_of(node);
  if (auto available = check_available(node, publication, names, claim.key.uid); !available)
    return fail(std::move(available).error());
  CheckpointClaim out{
      .uid = claim.key.uid, .space = claim.key.space, .name = claim.key.name, .pod_claim = claim.pod_claim};
  for (const AllocatedDevice& allocated : claim.devices) {
    // check_available() has found each of them.
    const PublishedDevice& published = *publication.device(allocated.device);
    ClaimDevice& device = out.devices.emplace_back(ClaimDevice{.request = allocated.request,
                                                               .pool = pool,
                                                               .gpu = published.asked.gpu,
                                                               .type = published.asked.type,
                                                               .placement = published.asked.placement,
                                                               .device = published.device,
                                                               .resources = allocated.resources});
    device.device.taints.clear();
    if (device.device.consumes.empty()) continue;
    const CounterSet* const set = publication.counter_set(device.device.consumes.front().set);
    if (set != nullptr) device.counters = *set;
  }
  return out;
}

CheckpointClaim names_of(const AllocatedClaim& claim) {
  CheckpointClaim out{.uid = claim.key.uid, .space = claim.key.space, .name = claim.key.name};
  for (const AllocatedDevice& allocated : claim.devices) {
    ClaimDevice& device = out.devices.emplace_back();
    device.request = allocated.request;
    device.device.name = allocated.device;
  }
  return out;
}

api::ClaimRequest prepare_request(const CheckpointClaim& claim) {
  api::ClaimRequest out{.action = api::ClaimAction::prepare,
                        .claim = claim.uid,
                        .space = claim.space,
                        .name = claim.name,
                        .pod_claim = claim.pod_claim};
  for (const ClaimDevice& device : claim.devices)
    out.devices.push_back({.device = device.asked(),
                           .request = device.request,
                           .pool = device.pool,
                           .name = device.device.name,
                           .attributes = device.device.attributes,
                           .resources = device.resources});
  return out;
}

}  // namespace ferry::dra
