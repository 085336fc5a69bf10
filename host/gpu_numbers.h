// SPDX-License-Identifier: Apache-2.0
// The GPUs that a policy names by number (`devices: [0, 2]`). A number counts the GPUs once for a policy's
// content. After that it means the GPU's address, over restarts and boots: a GPU that is unplugged must not
// give its number, and with it its mode, to another one. The record is hostd's own:
//
//   {"version": 1, "policy": "version: v2\npolicies: ...", "gpus": {"0": "0000:17:00.0"}}
//
// A number without a GPU at that time stays without one, and so does a record without any GPU.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "mdev/vgpu.h"
#include "policy/policy.h"
#include "vfio/pci/pci_address.h"

namespace ferry::host {

inline constexpr const char* kGpuNumbersFile = "var/lib/ferry-hostd/gpus/numbers.json";

using GpuNumbers = std::map<std::int64_t, vfio::PciAddress>;

struct NumberedPolicy {
  policy::Policy policy;  ///< with an item for each GPU of `numbers` in place of the numbers
  std::string content;    ///< of the policy with its numbers, as a file without its name
  GpuNumbers numbers;     ///< empty: the policy has no numbers, or no GPU has one of them
  bool recorded = false;  ///< `numbers` are those of the record
  /// Numbers whose GPU is gone: Errc::refused. Absent: all are there.
  std::optional<Error> gone = {};
  /// Sentences about numbers that had no GPU when they were counted, and that a GPU has at present.
  std::vector<std::string> uncounted = {};
};

/// Resolves the numbers of `policy` by the record, if that has the same content; the name is no part of it.
/// Otherwise the GPUs of `vgpus` are counted. Errors: the policy has numbers, and the record cannot be read.
Result<NumberedPolicy> resolve_numbers(const HostFs& host, policy::Policy policy,
                                       const mdev::VgpuInventory& vgpus);

/// Records the numbers, if they are not recorded, and removes the record of another content.
Result<> record_numbers(HostFs& host, const NumberedPolicy& numbered);

}  // namespace ferry::host
