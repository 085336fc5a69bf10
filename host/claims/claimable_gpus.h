// SPDX-License-Identifier: Apache-2.0
// The GPUs that claims can have (api/claimable_gpus.h), from a scan of the host, and their file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/claimable_gpus.h"
#include "common/result.h"
#include "host/gpu_conditions.h"
#include "hostfs/host_fs.h"
#include "mdev/gpu_management.h"
#include "policy/policy.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/pci_address.h"

namespace ferry::host {

struct ClaimableFacts {
  const ScannedNode& node;
  const policy::ModelNames& models;     ///< for ClaimableGpu::product
  const vfio::AcceleratorRules& rules;  ///< of the policy
  /// The GPUs that the policy gives to DRA (policy::ResolvedPolicy::for_dra).
  const std::map<vfio::PciAddress, policy::AllowedDevices>& for_dra;
  const std::set<vfio::PciAddress>& dra;               ///< the GPUs that DRA has (Allocations::dra)
  std::set<vfio::PciAddress> stuck = {};               ///< functions with a write that has not returned
  std::map<vfio::PciAddress, std::string> roots = {};  ///< pcie_root() of each GPU
  /// The GPUs that lack virtual functions since a claim, with the sentence (gpus_without_functions()).
  std::map<vfio::PciAddress, std::string> without_functions = {};
  std::map<vfio::PciAddress, std::vector<std::string>> lost_claims = {};  ///< ClaimableGpu::lost_claims
  std::map<vfio::PciAddress, std::uint32_t> bars = {};  ///< ClaimableGpu::bar_mib, also of virtual functions
  std::map<vfio::PciAddress, std::vector<std::string>> unplugged = {};  ///< ClaimableGpu::unplugged
  /// The GPUs of the last round. A GPU that has vGPUs, has no driver, is on a vfio driver or has just left it
  /// does not list all of its types, so they are taken from here.
  std::vector<api::ClaimableGpu> before = {};
  /// The answer of the driver's library about GPUs for mixed sizes or with GPU instances, or its error, which
  /// becomes the reason why they have no vGPUs. Absent: it was not asked.
  std::map<vfio::PciAddress, Result<mdev::ManagedGpu>> managed = {};
};

/// The GPUs of ClaimableFacts::dra that the host has, in order of address, also one that no policy names any
/// more or that cannot be read: `ferry dra` has the pods of a GPU that is missing here deleted.
///
/// A GPU whose virtual functions VMs get whole has one type, as many as it has functions.
///
/// A GPU with GPU instances (MIG) has the types that fill one of them, as many as there are instances, and is
/// for no claim whole: its instances would end. The instances come from the driver's library while the GPU
/// has no vGPUs, and later from the last round. Claims make none.
///
/// A GPU has mixed sizes if the policy says so. While it has vGPUs, it keeps the value of the last round, so
/// that a policy changes no counters under a claim. The placements of its types come from the driver's
/// library, and later from the last round. A type without placements is not published.
std::vector<api::ClaimableGpu> claimable_gpus(const ClaimableFacts& facts);

/// The GPUs whose driver may list vGPU types later: it lists none now. No event of the kernel follows.
std::set<vfio::PciAddress> gpus_without_types(const ClaimableFacts& facts);

/// The GPUs for mixed sizes of which the library has to be asked, since a type has no placements yet. Asking
/// is slow. A GPU that no driver can be asked about now is not among them, and none with vGPUs of which a
/// type has placements.
std::set<vfio::PciAddress> gpus_without_placements(const ClaimableFacts& facts);

/// The GPUs without vGPUs whose driver lists MIG-backed types, or none although the board can have GPU
/// instances, so that the library has to be asked about these. No event tells that a person has made or
/// removed one.
std::set<vfio::PciAddress> gpus_with_instances(const ClaimableFacts& facts);

/// The reason why a GPU cannot have mixed sizes, by the library's answer; empty: it can.
std::string why_no_mixed_sizes(const Result<mdev::ManagedGpu>& managed);

/// Reads ClaimableFacts::stuck, `roots` and `bars`. Error: a record of a stuck write cannot be read, and it
/// may be about any GPU.
Result<> read_claimable_facts(const HostFs& host, ClaimableFacts& facts);

/// kClaimableGpusFile, which this process alone writes.
class ClaimableGpusFile {
 public:
  /// `host` must outlive this object.
  explicit ClaimableGpusFile(HostFs& host) : host_(host) {}

  /// The GPUs of the file: at first those of an earlier hostd. A file that cannot be read has none.
  const std::vector<api::ClaimableGpu>& published();
  /// Writes the file if it changes. A node that had no GPU for claims yet has no file. After the last such
  /// GPU the file has an empty list: `ferry dra` goes on with its former list while there is no file.
  Result<> publish(std::vector<api::ClaimableGpu> gpus);

 private:
  HostFs& host_;
  std::optional<std::vector<api::ClaimableGpu>> published_;
  bool is_readable_ = true;  // false: the file's content is none
};

}  // namespace ferry::host
