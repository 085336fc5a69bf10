// SPDX-License-Identifier: Apache-2.0
// ResourceSlices of resource.k8s.io/v1, as far as Ferry publishes them.
// ABI: kubernetes/api, resource/v1/types.go; compatibilityGroups: KEP 5963.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "api/claim_request.h"
#include "common/result.h"

namespace ferry::dra {

using api::Attribute;
using api::Attributes;
/// Quantities by the counter's name, as whole numbers. Memory is in bytes.
using Counters = std::map<std::string, std::uint64_t>;

/// The counters that the devices of one IOMMU group share.
struct CounterSet {
  std::string name;
  Counters counters;
  bool operator==(const CounterSet&) const = default;
};

struct CounterConsumption {
  std::string set;
  Counters counters;
  /// Two devices may be allocated from one set at a time if their groups share a name, or both have none. At
  /// most two names.
  std::vector<std::string> compatibility_groups = {};
  bool operator==(const CounterConsumption&) const = default;
};

struct Taint {
  std::string key;
  std::string value;  ///< may be empty
  /// The effect NoExecute: pods that use the device are evicted. False: NoSchedule.
  bool evicts = false;
  /// The server's text: "2026-11-26T08:00:00Z". Empty: the server sets it, and waits of pods begin anew.
  std::string time_added = {};
  bool operator==(const Taint&) const = default;
  /// True if only the time may differ.
  bool is_same(const Taint& other) const {
    return key == other.key && value == other.value && evicts == other.evicts;
  }
};

struct Device {
  std::string name;  ///< a DNS label, unique in the pool
  Attributes attributes = {};
  Counters capacity = {};  ///< by name, as Counters
  std::vector<CounterConsumption> consumes = {};
  std::vector<Taint> taints = {};
  bool operator==(const Device&) const = default;
};

// Names that all devices of Ferry have.

inline constexpr const char* kFramebuffer = "framebuffer";  ///< a capacity and a counter, in bytes
inline constexpr const char* kType = "type";                ///< an attribute: kWhole or kVgpu
inline constexpr const char* kWhole = "whole";
inline constexpr const char* kVgpu = "vgpu";

/// The number 0: there is no such attribute.
Attribute attribute_of(const Device& device, const std::string& name);
/// True for an IOMMU group as a whole, false for a vGPU.
bool is_whole(const Device& device);
/// Bytes of memory; 0: unknown.
std::uint64_t framebuffer_of(const Device& device);
bool has_compatibility_groups(const Device& device);
/// The counters that a device consumes, by set, without compatibility groups.
std::map<std::string, Counters> consumed_counters(const Device& device);
/// Adds the counters that the device consumes of a set.
void add_counters(const Device& device, const std::string& set, Counters& out);

/// The node whose devices are published.
struct SliceOwner {
  std::string node;
  std::string node_uid = {};  ///< empty: unknown, and the slice then outlives its Node
  bool operator==(const SliceOwner&) const = default;
};

/// A slice has counter sets or devices, never both.
struct ResourceSlice {
  SliceOwner owner;
  std::string pool;
  std::uint64_t generation = 0;
  std::size_t index = 0;  ///< its place in the pool, which is in its name; schedulers read slices by name
  std::size_t count = 0;  ///< slices of this generation; a pool with fewer is not allocated from
  std::vector<CounterSet> counter_sets = {};
  std::vector<Device> devices = {};
  bool operator==(const ResourceSlice&) const = default;
};

/// "type": {"string": "vgpu"}
nlohmann::json attributes_json(const Attributes& attributes);

/// The object for the API server. The same slice always gives the same JSON. Texts must be UTF-8.
nlohmann::json slice_json(const ResourceSlice& slice);

/// Reads a slice of Ferry's driver from the API server. Unknown fields, and attributes that are neither whole
/// numbers nor texts, are passed over. Errc::malformed_host: not such an object, or a field has a wrong type.
Result<ResourceSlice> read_slice(const nlohmann::json& object);

/// The optional fields that the API server stores. A server whose feature gate is off drops the field. All
/// are false until a probe has found them: counters that the server drops would keep no two devices apart.
struct ServerFeatures {
  bool counters = false;  ///< sharedCounters, and consumesCounters that name a set of another slice
  bool taints = false;    ///< taints
  bool compatibility_groups =
      false;  ///< compatibilityGroups; with the gate off, schedulers skip such devices
  bool operator==(const ServerFeatures&) const = default;
};

/// A slice that uses all optional fields. The caller creates it as a trial
/// (`?dryRun=All&fieldValidation=Ignore`) when it starts, and again when the server's version changes. An
/// update is no trial: a server whose feature gate was switched off keeps the field of an object that has it.
ResourceSlice probe_slice(const SliceOwner& owner);
/// The features by the object that the server answers to that trial. Errc::malformed_host: as read_slice().
Result<ServerFeatures> features_of_probe(const nlohmann::json& answer);

}  // namespace ferry::dra
