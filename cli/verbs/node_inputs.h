// SPDX-License-Identifier: Apache-2.0
// The inputs of the verbs for vGPUs and for a whole node: a file's profiles or policies, the host to compare
// them with, and a snapshot of the node.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cli/output/explanation.h"
#include "cli/session.h"
#include "cli/verbs/verbs.h"
#include "common/result.h"
#include "host/node_apply.h"
#include "host/node_description.h"
#include "mdev/vgpu.h"
#include "policy/policy.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::cli {

// The GPUs that --device of the vGPU verbs names.

/// Errc::usage: a text is no PCI address.
Result<std::set<vfio::PciAddress>> parse_gpus(const std::vector<std::string>& addresses);

/// Checks that each is a GPU of this host. Errc::not_found names the first that is not.
Result<> check_gpus(const std::set<vfio::PciAddress>& gpus, const mdev::VgpuInventory& inventory);

/// The profiles of `options.file`. Their warnings go to stderr.
Result<vgpu::ProfileFile> read_profiles_for(const ProfileOptions& options);

/// The host; `uses` finds its device users. Errors: the host has no identity to make UUIDs from.
Result<vgpu::VgpuHost> vgpu_host(const Session& session, vfio::UseProbe& uses);

Result<policy::Policy> chosen_policy(const ProfileOptions& options);
/// All policies of the file. Their warnings go to stderr.
Result<policy::PolicyFile> policies_of(const ProfileOptions& options);

/// Warns of numbers that hostd has resolved to other GPUs: they are counted anew here. True: hostd's record
/// of this policy's content, or one that cannot be read, is there.
bool warn_of_numbers(const Session& session, const policy::Policy& policy);

/// The items of `policy` that match no GPU. Warns of them on stderr, with a GPU that counts only where it is
/// named as the hint. `rules`: those for the policy.
std::vector<std::string> idle_items(const policy::Policy& policy, const vfio::Inventory& inventory,
                                    const vfio::AcceleratorRules& rules, const mdev::VgpuInventory& vgpus,
                                    const policy::ModelNames& models);

/// The names of this host's models, as `status` shows them. `session` must outlive them.
policy::ModelNames model_names(const Session& session);

/// Verbs that change the node themselves need these: devices of ResourceClaims count as in use. hostd has
/// other probes.
host::NodeProbes node_probes(const Session& session);

/// `uses` finds the device users. Errors: the host has no identity to make UUIDs from, or it is not known
/// which GPUs have ResourceClaims.
Result<host::NodeContext> node_context(const Session& session, const host::NodeProbes& uses);

/// The same for hostd's rounds and claims. If the claims are not known, NodeContext::dra is empty: hostd
/// finds the same error itself.
Result<host::NodeContext> hostd_context(const Session& session, const host::NodeProbes& uses);
/// hostd's probes, for which devices of ResourceClaims are not in use.
host::NodeProbes hostd_probes(const Session& session);

// The snapshot of the node, for the verbs that show it.

/// session.rules, and the accelerators that the node's policy names. `fault` gets why the policy cannot be
/// read; it names none then.
vfio::AcceleratorRules policy_rules(const Session& session, std::string* fault = nullptr);
/// The rules by which hostd counts accelerators: policy_rules(), and those that have claims.
vfio::AcceleratorRules node_rules(const Session& session, std::string* fault = nullptr);

/// Reads the facts of a row of `status` about each accelerator, with its driver_override. `details`: also
/// driver_override of companion functions, and each accelerator's own facts; reading these wakes one that
/// sleeps. Facts that cannot be read beside the scan become notes. Errors: the host itself cannot be scanned.
Result<host::NodeSnapshot> snapshot_node(const Session& session, const vfio::AcceleratorRules& rules,
                                         bool details = false);

/// Reads driver_override of `functions`, which `inventory` has, and waits only shortly for a driver that
/// hangs. Without its answer the function stays as the scan filled it.
void read_overrides_shortly(const Session& session, const std::vector<vfio::PciAddress>& functions,
                            vfio::Inventory& inventory);

/// Reads the input of an explanation.
Result<ExplainInputs> read_explain_inputs(const Session& session);

}  // namespace ferry::cli
