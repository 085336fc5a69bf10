// SPDX-License-Identifier: Apache-2.0
// The resources advertised to the kubelet, for Ferry's other processes: one JSON file with one writer.
//
//   {"version": 2, "generation": 7, "pid": 4711, "state_generation": 17, "resources": [
//     {"name": "nvidia.com/GH100_H100_SXM5_80GB", "env": "PCI_RESOURCE_NVIDIA_COM_GH100_H100_SXM5_80GB",
//      "registered": true, "devices": [
//       {"id": "0000:17:00.0", "healthy": false, "reason": "...", "numa_node": 0, "iommu_group": 42,
//        "allocated": false, "awaits_release": false, "held_with_group": false, "pod": null}]}],
//    "not_advertised": [{"id": "0000:65:00.0", "reason": "..."}],
//    "fatal_errors": [{"function": "0000:17:00.0", "since": 2, "binding": 31207}],
//    "standby": "NVIDIA's sandbox-device-plugin serves this node" | null}
//
// A resource of places has, besides `devices`, the key `places`:
//   [{"id": "place-0000:17:00.1", "healthy": true, "reason": ""}]
// A place has no IOMMU group, and its allocation gives a pod no device.
//
// Keys:
// - `pod`: "namespace/name" of the pod that has the device, null if unknown (`ferry plugin --name-pods`).
// - `awaits_release`: the device is Unhealthy only until a pod or a VM releases it or its group.
// - `held_with_group`: the device is Unhealthy only because a pod has another device of its IOMMU group.
// - `reason`: "" when healthy. `numa_node`: null when unknown.
// - `state_generation`: the generation of the status.json whose withdrawals this list has followed; 0 without
//   that file, and until the allocations are known. A withdrawn device that is listed here belongs to a pod.
// - `registered`: the kubelet reads the resource's list. After the writer's end the last value stands;
//   run/ferry/plugin/plugin.lock shows if a plugin serves.
// - `fatal_errors`, if there are any: the kernel's count before the function was first seen, and the binding
//   in which the errors occurred (fatal_errors.h).
// - `standby`: why nothing is advertised to the kubelet; null: the plugin serves.
//
// `devices` also has allocated devices that are not advertised, as Unhealthy: a process that has just started
// does not advertise withdrawn devices. The file outlives its writer. The next process takes over its
// allocations, since the kubelet lists a pod only a little after its Allocate. From the first release on,
// keys are only ever added.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kubevirt-plugin/allocation/allocation_core.h"
#include "kubevirt-plugin/allocation/snapshot.h"
#include "kubevirt-plugin/discovery/scanner.h"

namespace ferry::plugin {

/// The file's content. `registered`: the resources whose lists the kubelet reads now. `standby`: the
/// reason for standby; empty: the plugin serves.
std::string advertised_json(const Snapshot& snapshot, const std::set<std::string>& registered,
                            std::span<const NotAdvertised> not_advertised, std::uint64_t state_generation,
                            std::span<const FatalErrorsOf> fatal_errors = {},
                            const std::string& standby = {});

/// The allocated devices in such a file of an earlier process, each by itself. Unreadable parts are skipped.
std::vector<Holding> allocated_by(std::string_view advertised_file);

/// The functions with fatal errors in such a file, for the next scanner. Unreadable parts are skipped.
std::vector<FatalErrorsOf> fatal_errors_of(std::string_view advertised_file);

/// Devices in such a file that are not allocated and cannot be, each with the reason. Devices that only await
/// a release are left out. Unreadable parts are skipped.
std::vector<NotAdvertised> unfit_by(std::string_view advertised_file);

/// The resources for Kata in such a file of an earlier process. Empty: none, or the file cannot be read.
std::set<std::string> kata_resources_of(std::string_view advertised_file);

}  // namespace ferry::plugin
