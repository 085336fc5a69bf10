// SPDX-License-Identifier: Apache-2.0
// The desired mode of each GPU of a node: plain values; policy_yaml.h reads the file.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/words.h"
#include "common/result.h"
#include "common/text/words.h"
#include "mdev/vgpu.h"
#include "policy/gpu_selection.h"
#include "vfio/pci/inventory.h"
#include "vfio/quiesce/release.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::policy {

using api::Allocation;
using api::Mode;

/// The devices of a GPU that ResourceClaims can have.
struct AllowedDevices {
  bool whole = true;                       ///< the whole GPU
  std::vector<std::string> types = {"*"};  ///< names of vGPU types, or globs on them; empty: no vGPUs
  /// vGPUs of several sizes may be on the GPU at a time. False: all its vGPUs have one size.
  bool mixed_sizes = false;

  /// True if an entry of `types` matches one of the type's names, as fits_glob() does.
  bool allows(const mdev::VgpuType& type) const;
  bool operator==(const AllowedDevices&) const = default;
};

struct PolicyItem {
  vgpu::ProfileItem gpus;       ///< the GPUs and, with Mode::vgpu, their vGPUs
  Mode mode = Mode::host;       ///< of Allocation::device_plugin alone
  GpuSelection selection = {};  ///< limits these GPUs further
  Allocation allocation = Allocation::device_plugin;
  AllowedDevices allow = {};  ///< of Allocation::dra alone

  bool matches(const mdev::VgpuGpu& gpu, const ModelNames& models) const;
};

/// Treatment of mediated devices that Ferry has not made, and of whole virtual functions that it has not
/// bound, where they would have to be removed.
enum class Foreign {
  keep,  ///< their GPU is refused
  take,  ///< they are removed unless in use
};
inline constexpr Words<Foreign, 2> kForeignWords = {{{"keep", Foreign::keep}, {"take", Foreign::take}}};

/// The accelerators whose registers hostd reads (vfio/registers).
enum class ReadRegisters {
  automatic,  ///< those on vfio-pci or without a driver, where a Kata class is confidential
  all,        ///< those on vfio-pci or without a driver
  off,
};
inline constexpr Words<ReadRegisters, 3> kReadRegisters = {
    {{"auto", ReadRegisters::automatic}, {"all", ReadRegisters::all}, {"off", ReadRegisters::off}}};

/// The sanitizing of GPUs that VMs get whole, between two users (host/sanitize).
enum class Sanitize {
  off,
  best_effort,  ///< each is reset; a GPU of which this fails or is not proven is available all the same
  required,     ///< a GPU that could not be reset, or without a proof, is kept back
};
inline constexpr Words<Sanitize, 3> kSanitize = {
    {{"off", Sanitize::off}, {"best-effort", Sanitize::best_effort}, {"required", Sanitize::required}}};
constexpr const auto& words_of(Sanitize /*sanitize*/) {
  return kSanitize;
}

/// The value where a policy has none.
inline constexpr Sanitize kSanitizeByDefault = Sanitize::best_effort;

struct Policy {
  std::string name;
  std::vector<PolicyItem> items;  ///< at least one; the last item that matches a GPU is in effect
  std::string place;              ///< "policy.yaml:3"
  /// Device users that may be quiesced for GPUs that go to a VM or are divided (release_list()).
  std::set<std::string> release = vfio::default_release();
  /// Absent: the program that applies the policy decides.
  std::optional<Foreign> foreign = std::nullopt;
  ReadRegisters registers = ReadRegisters::automatic;
  Sanitize sanitize = kSanitizeByDefault;
  /// Labels of the nodes that have this policy in a cluster unless a label of theirs decides. Empty: none.
  std::map<std::string, std::string> node_selector = {};

  /// The item in effect for a GPU; nullptr: none matches, and the GPU is left as it is.
  const PolicyItem* item_for(const mdev::VgpuGpu& gpu, const ModelNames& models = {}) const;
  /// True if an item has this mode, even if this host has no GPU for it. Items with Allocation::dra have
  /// none.
  bool asks_for(Mode mode) const;
};

/// A host's rules for `policy`: functions that its items name by address, by vendor, or by the vendor of a
/// device filter count too.
vfio::AcceleratorRules rules_for(const Policy& policy, vfio::AcceleratorRules rules);

struct PolicyFile {
  std::string file;
  std::vector<Policy> policies;            ///< in order of the file
  bool of_profiles = false;                ///< a vGPU profile file (v1), which has no key for Policy::release
  std::vector<std::string> warnings = {};  ///< faults that Reading::lenient accepted: "file:line: key: fault"
};

struct ResolvedPolicy {
  /// GPUs that no item matches are left out, and those of `for_dra`: their claims decide.
  std::map<vfio::PciAddress, Mode> modes;
  std::map<vfio::PciAddress, AllowedDevices> for_dra;  ///< the GPUs with Allocation::dra
  /// vGPUs of each GPU; GPUs in other modes than Mode::vgpu have none.
  vgpu::Profile vgpus;
  std::set<std::string> release;   ///< see Policy
  std::optional<Foreign> foreign;  ///< see Policy
};
ResolvedPolicy resolve(const Policy& policy, const mdev::VgpuInventory& inventory,
                       const ModelNames& models = {});

/// A DeviceClass by whose name pods ask for an extended resource.
struct NamedDevices {
  std::string resource;  ///< "nvidia.com/AD102GL_L40S"
  std::string device;    ///< the GPUs that it selects whole, "10de:26b9", or a vGPU type, "L40S-6Q"
};

/// The names by which pods of the cluster ask for a node's devices.
struct ResourceNames {
  std::vector<NamedDevices> classes = {};
  // The device plugin's names, "nvidia.com/NVIDIA_L40S-6Q". Needed with `classes`.
  std::function<std::string(const vfio::PciFunction& gpu)> of_gpu = {};
  std::function<std::string(const std::string& type)> of_vgpus = {};  ///< `type`: the driver's name
};

/// Errc::refused: a GPU with Allocation::dra shares its IOMMU group with a GPU without it, which a claim
/// would bind too; or a DeviceClass and the device plugin would have devices of one name on this node. The
/// message has both addresses. The scheduler counts a pod that the class serves against the plugin's devices,
/// too, which then go to no pod. `claimed`: GPUs of which a claim has a device. Without an item of the
/// policy they stay with it.
Result<> check_allocations(const ResolvedPolicy& resolved, const vfio::Inventory& inventory,
                           const mdev::VgpuInventory& vgpus, const ResourceNames& names = {},
                           const std::set<vfio::PciAddress>& claimed = {});

}  // namespace ferry::policy
