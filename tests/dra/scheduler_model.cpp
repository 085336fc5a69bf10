// SPDX-License-Identifier: Apache-2.0
#include "tests/dra/scheduler_model.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace ferry::test {
namespace {

/// Empty: the pool of these slices is complete and valid.
std::string fault_of_pool(std::span<const dra::ResourceSlice* const> newest) {
  if (newest.empty()) return "the pool has no slices";
  std::map<std::string, dra::Counters> sets;
  std::set<std::string> names;
  for (const dra::ResourceSlice* slice : newest) {
    if (newest.size() != slice->count)
      return fmt::format("the pool is incomplete: {} of {} slices", newest.size(), slice->count);
    for (const dra::CounterSet& set : slice->counter_sets)
      if (!sets.emplace(set.name, set.counters).second)
        return "invalid resource pools were encountered: counter set twice: " + set.name;
    for (const dra::Device& device : slice->devices)
      if (!names.insert(device.name).second)
        return "invalid resource pools were encountered: device twice: " + device.name;
  }
  for (const dra::ResourceSlice* slice : newest)
    for (const dra::Device& device : slice->devices)
      for (const dra::CounterConsumption& consumption : device.consumes)
        for (const auto& [counter, value] : consumption.counters)
          if (!sets.contains(consumption.set) || !sets[consumption.set].contains(counter))
            return fmt::format(
                "invalid resource pools were encountered: {} consumes {} of {}, which do not exist",
                device.name, counter, consumption.set);
  return {};
}

std::int64_t consumed(const dra::Device& device, const std::string& set, const std::string& counter) {
  std::int64_t out = 0;
  for (const dra::CounterConsumption& consumption : device.consumes) {
    if (consumption.set != set) continue;
    const auto found = consumption.counters.find(counter);
    if (found != consumption.counters.end()) out += static_cast<std::int64_t>(found->second);
  }
  return out;
}

}  // namespace

DeviceRequest::Selector whole_gpu() {
  return [](const dra::Device& device) { return dra::is_whole(device); };
}

DeviceRequest::Selector vgpu_of_type(std::string short_name) {
  return [name = std::move(short_name)](const dra::Device& device) {
    return dra::attribute_of(device, "vgpuType") == dra::Attribute(name);
  };
}

DeviceRequest::Selector vgpu_with_memory(std::uint64_t least) {
  return [least](const dra::Device& device) {
    return !dra::is_whole(device) && dra::framebuffer_of(device) >= least;
  };
}

DeviceRequest::Selector device_named(std::string name) {
  return [expected = std::move(name)](const dra::Device& device) { return device.name == expected; };
}

void SchedulerModel::see(std::span<const dra::ResourceSlice> slices) {
  devices_.clear();
  by_name_.clear();
  counter_sets_.clear();
  std::uint64_t generation = 0;
  for (const dra::ResourceSlice& slice : slices) generation = std::max(generation, slice.generation);
  std::vector<const dra::ResourceSlice*> newest;
  for (const dra::ResourceSlice& slice : slices)
    if (slice.generation == generation) newest.push_back(&slice);
  std::ranges::stable_sort(newest, {}, &dra::ResourceSlice::index);
  pool_problem_ = fault_of_pool(newest);
  if (!pool_problem_.empty()) return;
  for (const dra::ResourceSlice* slice : newest) {
    for (const dra::CounterSet& set : slice->counter_sets) counter_sets_[set.name] = set.counters;
    for (const dra::Device& device : slice->devices) {
      by_name_[device.name] = devices_.size();
      devices_.push_back(device);
    }
  }
}

bool SchedulerModel::allocate(const std::string& claim, const std::vector<DeviceRequest>& requests) {
  problem_ = pool_problem_;
  if (!problem_.empty()) return false;
  count_counters();
  std::vector<Result> chosen;
  if (!pick(requests, chosen)) {
    problem_ = "cannot allocate all claims";
    return false;
  }
  claims_[claim] = std::move(chosen);
  return true;
}

const std::vector<SchedulerModel::Result>* SchedulerModel::find(const std::string& claim) const {
  const auto found = claims_.find(claim);
  return found == claims_.end() ? nullptr : &found->second;
}

bool SchedulerModel::pick(const std::vector<DeviceRequest>& requests, std::vector<Result>& chosen) const {
  if (chosen.size() == requests.size()) return true;
  const DeviceRequest& request = requests[chosen.size()];
  for (std::size_t i = 0; i < request.alternatives.size(); ++i) {
    const std::string name =
        request.alternatives.size() == 1 ? request.name : fmt::format("{}/{}", request.name, i);
    for (const dra::Device& device : devices_) {
      if (!request.alternatives[i](device) || !is_available(device, request, chosen)) continue;
      Result result{.request = name, .device = device.name};
      for (const dra::CounterConsumption& consumption : device.consumes)
        if (!consumption.compatibility_groups.empty())
          result.compatibility_groups[consumption.set] = consumption.compatibility_groups;
      chosen.push_back(std::move(result));
      if (pick(requests, chosen)) return true;
      chosen.pop_back();
    }
  }
  return false;
}

bool SchedulerModel::is_available(const dra::Device& device, const DeviceRequest& request,
                                  const std::vector<Result>& chosen) const {
  if (gates_.taints && !device.taints.empty() && !request.tolerates_taints) return false;
  if (!gates_.partitionable && !device.consumes.empty()) return false;
  bool allocated = false;
  each_result(chosen, [&](const Result& result) { allocated |= result.device == device.name; });
  if (allocated || !has_counters(device, chosen)) return false;
  return std::ranges::all_of(device.consumes, [&](const dra::CounterConsumption& consumption) {
    return is_compatible(consumption, chosen);
  });
}

bool SchedulerModel::has_counters(const dra::Device& device, const std::vector<Result>& chosen) const {
  if (device.consumes.empty()) return true;
  if (overdrawn_) return false;
  for (const dra::CounterConsumption& consumption : device.consumes)
    for (const auto& [counter, value] : consumption.counters) {
      std::int64_t left = left_.at(consumption.set).at(counter) - static_cast<std::int64_t>(value);
      for (const Result& result : chosen)
        left -= consumed(devices_[by_name_.at(result.device)], consumption.set, counter);
      if (left < 0) return false;
    }
  return true;
}

void SchedulerModel::count_counters() {
  left_.clear();
  for (const auto& [set, counters] : counter_sets_)
    for (const auto& [counter, value] : counters) left_[set][counter] = static_cast<std::int64_t>(value);
  each_result({}, [&](const Result& result) {
    const auto listed = by_name_.find(result.device);
    if (listed == by_name_.end()) return;
    for (const dra::CounterConsumption& consumption : devices_[listed->second].consumes)
      for (const auto& [counter, value] : consumption.counters)
        left_[consumption.set][counter] -= static_cast<std::int64_t>(value);
  });
  overdrawn_ = std::ranges::any_of(left_, [](const auto& set) {
    return std::ranges::any_of(set.second, [](const auto& counter) { return counter.second < 0; });
  });
}

bool SchedulerModel::is_compatible(const dra::CounterConsumption& consumption,
                                   const std::vector<Result>& chosen) const {
  const std::vector<std::string>& own = consumption.compatibility_groups;
  if (!gates_.compatibility_groups) return own.empty();
  bool compatible = true;
  each_result(chosen, [&](const Result& result) {
    const auto listed = by_name_.find(result.device);
    if (listed == by_name_.end()) return;
    const bool shares_set = dra::consumed_counters(devices_[listed->second]).contains(consumption.set);
    if (!shares_set) return;
    const auto found = result.compatibility_groups.find(consumption.set);
    const std::vector<std::string> none;
    const std::vector<std::string>& others =
        found == result.compatibility_groups.end() ? none : found->second;
    const bool both_empty = own.empty() && others.empty();
    const bool shared = std::ranges::any_of(
        own, [&](const std::string& group) { return std::ranges::find(others, group) != others.end(); });
    compatible = compatible && (both_empty || shared);
  });
  return compatible;
}

void SchedulerModel::each_result(const std::vector<Result>& chosen,
                                 const std::function<void(const Result&)>& visit) const {
  for (const auto& [claim, results] : claims_) std::ranges::for_each(results, visit);
  std::ranges::for_each(chosen, visit);
}

}  // namespace ferry::test
