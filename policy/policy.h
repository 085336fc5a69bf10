// SPDX-License-Identifier: Apache-2.0
// What each GPU of a node shall be: plain values; the file is read by policy_yaml.h.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "mdev/vgpu.h"
#include "policy/gpu_selection.h"
#include "vfio/inventory.h"
#include "vfio/release.h"
#include "vgpu-dm/profile.h"

namespace ferry {

enum class Mode {
  host,         ///< on its own driver, without vGPUs
  passthrough,  ///< whole, on a vfio driver
  vgpu,         ///< on its own driver, divided
};
std::string_view text(Mode mode);
/// "host", "passthrough", "vgpu"; absent for another word.
std::optional<Mode> parse_mode(std::string_view word);

struct PolicyItem {
  ProfileItem gpus;  ///< which, and with Mode::vgpu what they carry
  Mode mode = Mode::host;
  GpuSelection selection = {};  ///< which of those

  bool matches(const VgpuGpu& gpu, const ModelNames& models) const;
};

/// What becomes of mediated devices that Ferry has not made and that would have to go.
enum class Foreign {
  keep,  ///< their GPU is refused
  take,  ///< those that nobody uses go
};
std::string_view text(Foreign foreign);
/// "keep", "take"; absent for another word.
std::optional<Foreign> parse_foreign(std::string_view word);

struct Policy {
  std::string name;
  std::vector<PolicyItem> items;  ///< at least one. Where several match a GPU, the last one holds
  std::string place;              ///< "policy.yaml:3"
  /// What may be asked to let go of GPUs that are given away or divided (release_list()).
  std::set<std::string> release = default_release();
  /// Absent: as whoever applies it does.
  std::optional<Foreign> foreign = std::nullopt;

  /// The item that holds for a GPU; nullptr: none matches, and the GPU is left as it is.
  const PolicyItem* item_for(const VgpuGpu& gpu, const ModelNames& models = {}) const;
  /// True if an item has this mode, even if this host has no GPU for it.
  bool asks_for(Mode mode) const;
};

/// The rules of a host that `policy` is for: functions count that its items name by address or by vendor.
AcceleratorRules rules_for(const Policy& policy, AcceleratorRules rules);

struct PolicyFile {
  std::string file;
  std::vector<Policy> policies;            ///< in order of the file
  bool of_profiles = false;                ///< a vGPU profile file (v1): it has no word for Policy::release
  std::vector<std::string> warnings = {};  ///< what Reading::lenient has let pass: "file:line: key: what"
};

/// A policy in terms of one host.
struct WantedState {
  std::map<PciAddress, Mode> modes;  ///< GPUs that no item matches are not in it
  /// What the GPUs shall carry: nothing those that are given away or left to the host.
  Profile vgpus;
  std::set<std::string> release;   ///< as in Policy
  std::optional<Foreign> foreign;  ///< as in Policy
};
WantedState wanted_state(const Policy& policy, const VgpuInventory& inventory, const ModelNames& models = {});

}  // namespace ferry
