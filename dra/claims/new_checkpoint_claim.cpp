// SPDX-License-Identifier: Apache-2.0
#include "dra/claims/new_checkpoint_claim.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/text/text.h"
#include "dra/names.h"
#include "dra/slices/publication.h"

namespace ferry::dra {
namespace {

Result<ClaimDevice> claim_device(const NodeModel& node, const Publication& publication,
                                 const AllocatedDevice& allocated, const std::string& pool) {
  const PublishedDevice* const published = publication.device(allocated.device);
  const Gpu* const gpu = published == nullptr ? nullptr : node.find(published->gpu);
  const auto unknown = [&] {
    return fail(Errc::not_found, fmt::format("{}: this node has no such device now", allocated.device),
                "delete the pod, so that its claim is allocated again");
  };
  if (gpu == nullptr) return unknown();
  ClaimDevice out{.request = allocated.request,
                  .pool = pool,
                  .gpu = published->gpu,
                  .device = published->device,
                  .resources = allocated.resources};
  out.device.taints.clear();
  if (!out.device.consumes.empty())
    if (const CounterSet* const set = publication.counter_set(out.device.consumes.front().set))
      out.counters = *set;
  if (is_whole(out.device)) return out;
  const std::string& name = out.device.name;
  const auto number = whole_number(std::string_view(name).substr(name.rfind('-') + 1));  // slot or placement
  const auto type = std::ranges::find_if(gpu->types, [&](const VgpuType& one) {
    return number && vgpu_device_name(gpu->address, one.id, *number) == name;
  });
  if (type == gpu->types.end()) return unknown();
  out.type = type->id;
  if (gpu->mixed_sizes) out.placement = number;
  return out;
}

}  // namespace

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
    auto device = claim_device(node, publication, allocated, pool);
    if (!device) return fail(std::move(device).error());
    out.devices.push_back(std::move(*device));
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
  for (const ClaimDevice& device : claim.devices) {
    out.devices.push_back({.gpu = device.gpu, .type = device.type, .placement = device.placement});
    out.published.push_back({.request = device.request,
                             .pool = device.pool,
                             .name = device.device.name,
                             .attributes = device.device.attributes,
                             .resources = device.resources});
  }
  return out;
}

}  // namespace ferry::dra
