// SPDX-License-Identifier: Apache-2.0
// The host status, run/ferry/state.json, for the device plugin, the agent and people. hostd alone writes it,
// atomically and only after a change.
//
//   {"version": 1, "generation": 17, "pid": 4711, "boot_id": "...",
//    "wanted": {"generation": 12, "policy": "NAME", "asked_by": "..."} | null,
//    "phase": "nothing_wanted | as_wanted | withdrawing | changing | refused | failed",
//    "accelerators": [
//      {"address": "0000:17:00.0", "id": "10de:2330", "subsystem": "10de:16c1" | null, "class": "0302",
//       "model": "...", "iommu_group": 42 | null,
//       "driver": "vfio-pci" | null, "mode": "host | passthrough | vgpu", "wanted": as mode | null,
//       "state": "as_wanted | refused | failed | waiting | left_alone", "reason": "...", "hint": "...",
//       "holders": [{"kind": "virtual_machine", "name": "...", "pid": 412 | null,
//                    "pod_uid": "..." | null, "by_the_plugin": true | false}], "only_in_use": true | false,
//       "vgpus": [{"id": "...", "type": "...", "holders": [as above] | null}],
//        "more_vgpus": {"L40S-12Q": 4}}],
//    "withdraw": [{"id": "0000:17:00.0", "reason": "..."}],
//    "error": {"message": "...", "hint": "..."} | null,
//    "features": {"iommu": "on | off | unsafe_noiommu", "largest_group": 2 | null, "machine": "..." | null,
//                 "vgpu_types": {"L40S-12Q": 8}} | null,
//    "stand_back": "NVIDIA's sandbox-device-plugin serves this node" | null}
//
// `wanted.generation` is null if wanted.json has none, and `stand_back` if the device plugin may serve. New
// versions of Ferry only add keys.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "host/node_state.h"

namespace ferry {

/// The file's content. Bytes that are not UTF-8 are replaced; a process may have such a name.
std::string state_file_text(const NodeState& state);

/// Unknown keys are ignored. Errc::malformed_host: not such a file, another version, or a key that is missing
/// or has a wrong value.
Result<NodeState> read_state_file(std::string_view text);

}  // namespace ferry
