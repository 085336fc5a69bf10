// SPDX-License-Identifier: Apache-2.0
// What `ferry hostd` says of its host, /run/ferry/state.json, as far as the cluster is told of it.
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
  withdrawing,  ///< waiting until the kubelet is offered nothing of what moves
  changing,
  refused,  ///< somebody uses what should change; nothing of that was written
  failed,
  nothing_wanted,
};

struct SeenHolder {
  std::string text;          ///< "virtual machine guest-7 (pid 4711)"
  std::string kind = {};     ///< "virtual_machine", "process", "pod"
  std::string name = {};     ///< of a pod "namespace/name", where the kubelet says which one it is
  std::string pod_uid = {};  ///< of a process in a pod; empty: it is in none, or nobody has said
  /// Of a pod: the device plugin says so, which knows no names; the kubelet names it in another holder.
  bool by_the_plugin = false;
};

struct SeenVgpu {
  std::string id;    ///< a UUID, or its virtual function's address
  std::string type;  ///< "L40S-12Q"; empty: nobody has said
  /// Who has it, whether the kubelet knows of it or not. Absent: nobody has looked, or has said.
  std::optional<std::vector<SeenHolder>> holders = {};
};

struct SeenAccelerator {
  std::string address;
  std::string id = {};         ///< "10de:26b9"; empty: nobody has said
  std::string subsystem = {};  ///< "10de:16c1"; empty likewise
  std::string pci_class = {};  ///< "0302"; empty likewise
  std::string model;           ///< empty: nobody knows one
  std::optional<std::uint32_t> iommu_group = {};
  std::string driver = {};     ///< empty: none
  Mode mode = Mode::host;      ///< as it is
  std::optional<Mode> wanted;  ///< absent: the policy says nothing of it
  std::string state;           ///< "as_wanted", "refused", "failed", "waiting", "left_alone"
  std::string reason;
  std::string hint;
  std::vector<SeenHolder> holders;
  bool only_in_use = false;     ///< refused for its holders alone; false also where nobody has said
  std::vector<SeenVgpu> vgpus;  ///< that it carries
  /// How many more of each type could be made on it now; empty: none is listed, or nobody has said.
  std::map<std::string, std::uint32_t> more_vgpus = {};
};

/// Whether it counts as a GPU, by its class: what one that was unplugged has left behind, a sound card say,
/// does not. True where nobody has said its class.
bool counts_as_gpu(const SeenAccelerator& accelerator);

/// What hostd says of the node as a whole.
struct SeenFeatures {
  std::string iommu;                                     ///< "on", "off", "unsafe_noiommu"
  std::optional<std::uint32_t> largest_group = {};       ///< functions in it; absent: no GPU is in a group
  std::string machine = {};                              ///< empty: nobody knows what it is called
  std::map<std::string, std::uint32_t> vgpu_types = {};  ///< how many the node carries when it is empty
};

struct SeenHost {
  std::optional<std::uint64_t> wanted;  ///< the generation of wanted.json that this is about
  SeenPhase phase = SeenPhase::nothing_wanted;
  std::vector<SeenAccelerator> accelerators;
  std::vector<std::string> withdraw;  ///< what the kubelet shall not be offered just now
  std::string error;                  ///< of the whole, not of one accelerator; empty: none
  std::string hint;                   ///< what to do about it
  /// Absent: it has not seen the host, or comes from before it told this.
  std::optional<SeenFeatures> features = {};
};

/// Keys that are not known are passed over: a newer hostd may write them. Errc::malformed_host says where.
Result<SeenHost> read_seen_host(std::string_view text);

}  // namespace ferry
