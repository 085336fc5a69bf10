// SPDX-License-Identifier: Apache-2.0
// Reads the host status of `ferry hostd`, /run/ferry/state.json, as far as the agent reports it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "policy/policy.h"

namespace ferry {

/// Relative to the host's root.
inline constexpr const char* kStateFile = "run/ferry/state.json";
/// Held while hostd keeps the node (common/presence.h).
inline constexpr const char* kHostdPresence = "run/ferry/hostd.presence";

enum class SeenPhase {
  as_wanted,
  withdrawing,  ///< waiting until the kubelet no longer lists the devices to change
  changing,
  refused,  ///< devices to change are in use; nothing was written to them
  failed,
  nothing_wanted,
};

struct SeenHolder {
  std::string text;          ///< "virtual machine guest-7 (pid 4711)"
  std::string kind = {};     ///< "virtual_machine", "process", "pod"
  std::string name = {};     ///< of a pod: "namespace/name", if the kubelet names it
  std::string pod_uid = {};  ///< of a process in a pod; empty: in none, or unknown
  /// Reported by the device plugin, which knows no pod's name; the kubelet's own entry has the name.
  bool by_the_plugin = false;
};

struct SeenVgpu {
  std::string id;    ///< UUID, or address of its virtual function
  std::string type;  ///< "L40S-12Q"; empty: unknown
  /// Its device users, allocated by the kubelet or not. Absent: unknown.
  std::optional<std::vector<SeenHolder>> holders = {};
};

struct SeenAccelerator {
  std::string address;
  std::string id = {};         ///< "10de:26b9"; empty: unknown
  std::string subsystem = {};  ///< "10de:16c1"; empty: unknown
  std::string pci_class = {};  ///< "0302"; empty: unknown
  std::string model;           ///< empty: unknown
  std::optional<std::uint32_t> iommu_group = {};
  std::string driver = {};     ///< empty: none
  Mode mode = Mode::host;      ///< present mode
  std::optional<Mode> wanted;  ///< absent: the policy does not select it
  std::string state;           ///< "as_wanted", "refused", "failed", "waiting", "left_alone"
  std::string reason;
  std::string hint;
  std::vector<SeenHolder> holders;
  bool only_in_use = false;     ///< refused for its device users alone; false also if unknown
  std::vector<SeenVgpu> vgpus;  ///< existing ones
  /// Number of further vGPUs that could be created on it now, by type; empty: none, or unknown.
  std::map<std::string, std::uint32_t> more_vgpus = {};
};

/// True if its PCI class is that of a GPU, or unknown. The rest of an unplugged GPU, such as an audio
/// function, does not count.
bool counts_as_gpu(const SeenAccelerator& accelerator);

/// Properties of the whole node.
struct SeenFeatures {
  std::string iommu;                                     ///< "on", "off", "unsafe_noiommu"
  std::optional<std::uint32_t> largest_group = {};       ///< functions in it; absent: no GPU has a group
  std::string machine = {};                              ///< empty: unknown
  std::map<std::string, std::uint32_t> vgpu_types = {};  ///< capacity of the empty node, by type
};

struct SeenHost {
  std::optional<std::uint64_t> wanted;  ///< the generation of wanted.json that this is about
  SeenPhase phase = SeenPhase::nothing_wanted;
  std::vector<SeenAccelerator> accelerators;
  std::vector<std::string> withdraw;  ///< devices that must not be advertised now
  std::string error;                  ///< general error, not of an accelerator; empty: none
  std::string hint;                   ///< how to resolve `error`
  /// Absent: hostd has not scanned the host, or is older than this field.
  std::optional<SeenFeatures> features = {};
};

/// Unknown keys are ignored, since a newer hostd may write them. Errc::malformed_host: the message has the
/// place.
Result<SeenHost> read_seen_host(std::string_view text);

}  // namespace ferry
