// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "dra/publish/slice_publisher.h"
#include "dra/slices/publication.h"

namespace ferry::dra {
namespace {

/// A stored slice of the pool.
struct Published {
  SliceRequest object;  ///< names it
  bool used = false;    ///< a desired slice takes its place
};

SliceRequest naming(const StoredSlice& stored) {
  return {.action = SliceRequest::Action::remove,
          .name = stored.name,
          .uid = stored.uid,
          .version = stored.version};
}

bool adds_taints(const ResourceSlice& before, const ResourceSlice& after) {
  for (const Device& device : after.devices) {
    const auto former = std::ranges::find(before.devices, device.name, &Device::name);
    const std::vector<Taint> taints = former == before.devices.end() ? std::vector<Taint>() : former->taints;
    for (const Taint& taint : device.taints)
      if (std::ranges::none_of(taints, [&](const Taint& one) { return one.is_same(taint); })) return true;
  }
  return false;
}

/// The place of the slice that becomes `desired`; absent: none has its index. After a lost answer two may
/// have it: the newest is taken, or else the one that needs no change.
std::optional<std::size_t> place_for(const ResourceSlice& desired, const std::vector<ResourceSlice>& slices,
                                     const std::vector<Published>& published) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (published[i].used || slices[i].index != desired.index) continue;
    const bool better = !best || slices[i].generation > slices[*best].generation ||
                        (slices[i].generation == slices[*best].generation && slices[*best] != desired &&
                         slices[i] == desired);
    if (better) best = i;
  }
  return best;
}

}  // namespace

SlicePlan plan_slices(std::vector<StoredSlice> stored, std::vector<ResourceSlice> desired,
                      std::uint64_t last) {
  std::vector<ResourceSlice> slices;
  std::vector<Published> published;
  std::vector<SliceRequest> removed;
  for (StoredSlice& one : stored) {
    if (one.slice && one.slice->pool == desired.front().pool) {
      published.push_back({.object = naming(one)});
      slices.push_back(std::move(*one.slice));
    } else {
      removed.push_back(naming(one));
    }
  }

  SlicePlan out{.generation = generation_for(slices, desired, last)};
  keep_taint_times(slices, desired);
  std::vector<SliceRequest> later;
  for (ResourceSlice& slice : desired) {
    slice.generation = out.generation;
    const auto place = place_for(slice, slices, published);
    if (!place) {
      later.push_back({.action = SliceRequest::Action::create, .slice = std::move(slice)});
      continue;
    }
    const ResourceSlice& former = slices[*place];
    published[*place].used = true;
    if (slice.owner.node_uid.empty()) slice.owner.node_uid = former.owner.node_uid;
    if (former == slice) continue;
    SliceRequest update = published[*place].object;
    update.action = SliceRequest::Action::update;
    const bool first = former.generation == slice.generation && adds_taints(former, slice);
    update.slice = std::move(slice);
    (first ? out.requests : later).push_back(std::move(update));
  }
  std::ranges::move(later, std::back_inserter(out.requests));
  for (Published& one : published)
    if (!one.used) out.requests.push_back(std::move(one.object));
  std::ranges::move(removed, std::back_inserter(out.requests));
  return out;
}

bool is_stored_as_sent(const ResourceSlice& stored, const ResourceSlice& sent) {
  std::vector<ResourceSlice> expected = {sent};
  keep_taint_times(std::span(&stored, 1), expected);
  expected.front().owner = stored.owner;
  return expected.front() == stored;
}

}  // namespace ferry::dra
