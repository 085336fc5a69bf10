// SPDX-License-Identifier: Apache-2.0
// The part of the Kubernetes scheduler that allocates devices, as far as it concerns one node's pool. It
// finds faults in published slices without a cluster.
//
// Modelled are: the newest generation counts, and only if it is complete; a pool with a name twice, or with a
// counter that does not exist, is invalid; the first device that fits is taken, in order of slices and
// devices; counters in use are those of allocated devices that are listed now, and a negative counter of any
// set of the pool refuses each device that consumes counters; taints; compatibility groups,
// with the snapshot in an allocation; alternatives of a request in their order; backtracking over several
// requests. ABI: kubernetes/dynamic-resource-allocation, structured/internal/incubating; KEP 5963.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dra/slices/resource_slice.h"

namespace ferry::test {

/// A request of a claim.
struct DeviceRequest {
  using Selector = std::function<bool(const dra::Device&)>;
  std::string name;
  /// One: `exactly`. Several: `firstAvailable`, which are named "0", "1" ... in a result.
  std::vector<Selector> alternatives;
  bool tolerates_taints = false;
};

// Selectors, as a claim or a device class has them in CEL.

DeviceRequest::Selector whole_gpu();
DeviceRequest::Selector vgpu_of_type(std::string short_name);
DeviceRequest::Selector vgpu_with_memory(std::uint64_t least);
DeviceRequest::Selector device_named(std::string name);

/// Feature gates of the scheduler.
struct SchedulerGates {
  bool partitionable = true;         ///< off: devices that consume counters are never allocated
  bool taints = true;                ///< off: taints are ignored
  bool compatibility_groups = true;  ///< off: devices with groups are never allocated
};

/// A device that a claim has got.
struct AllocationResult {
  std::string request;  ///< "card", "card/1"
  std::string device;
  std::map<std::string, std::vector<std::string>> compatibility_groups = {};  ///< by counter set
};

class SchedulerModel {
 public:
  using Gates = SchedulerGates;
  using Result = AllocationResult;

  SchedulerModel() = default;
  explicit SchedulerModel(Gates gates) : gates_(gates) {}

  /// The slices in the API server are these now, of any generation and in any order.
  void see(std::span<const dra::ResourceSlice> slices);

  /// Allocates all requests of a claim, or none. False: problem() says why.
  bool allocate(const std::string& claim, const std::vector<DeviceRequest>& requests);
  void deallocate(const std::string& claim) { claims_.erase(claim); }

  /// nullptr: the claim is not allocated.
  const std::vector<Result>* find(const std::string& claim) const;
  const std::map<std::string, std::vector<Result>>& claims() const { return claims_; }
  const std::string& problem() const { return problem_; }

 private:
  bool pick(const std::vector<DeviceRequest>& requests, std::vector<Result>& chosen) const;
  bool is_available(const dra::Device& device, const DeviceRequest& request,
                    const std::vector<Result>& chosen) const;
  bool has_counters(const dra::Device& device, const std::vector<Result>& chosen) const;
  /// Subtracts the counters of allocated devices that are listed.
  void count_counters();
  bool is_compatible(const dra::CounterConsumption& consumption, const std::vector<Result>& chosen) const;
  /// Calls `visit` with the results of all claims, and with those chosen for the present one.
  void each_result(const std::vector<Result>& chosen, const std::function<void(const Result&)>& visit) const;

  Gates gates_ = {};
  std::vector<dra::Device> devices_;  // empty while the pool is incomplete or invalid
  std::map<std::string, std::size_t> by_name_;
  std::map<std::string, dra::Counters> counter_sets_;
  std::map<std::string, std::map<std::string, std::int64_t>> left_;  // of each counter set, before this claim
  bool overdrawn_ = false;                                           // a counter in it is negative
  std::map<std::string, std::vector<Result>> claims_;
  std::string pool_problem_ = "the pool has no slices";
  std::string problem_;
};

}  // namespace ferry::test
