// SPDX-License-Identifier: Apache-2.0
// The description of a node: one value for everything that is known of a node, so that all tables, documents
// and metrics agree. Pure functions; other files read the host.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/advertised_resources.h"
#include "api/host_status.h"
#include "hostfs/stuck_writes.h"
#include "mdev/vgpu.h"
#include "policy/gpu_selection.h"
#include "policy/policy.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/bind/undo_journal.h"
#include "vfio/judgement/judge.h"
#include "vfio/pci/device_facts.h"
#include "vfio/pci/inventory.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// The input of describe_node().
struct NodeSnapshot {
  vfio::Inventory inventory;  ///< with the facts of read_unit_facts()
  mdev::VgpuInventory vgpus;
  vfio::UseReport use;
  vfio::UndoJournal journal;
  std::vector<StuckWrite> stuck;
  std::map<vfio::PciAddress, std::string> unsanitized = {};  ///< unsanitized_gpus()
  std::map<vfio::PciAddress, std::string> open_modes = {};   ///< vfio::open_modes()
  /// Functions on vfio of which the kernel has counted a fatal error at some time (had_fatal_errors()).
  std::set<vfio::PciAddress> had_fatal_errors = {};
  std::optional<api::HostStatus> status;                ///< absent: hostd has written none
  bool hostd_runs = true;                               ///< false: `status` is not kept up to date
  std::optional<std::chrono::seconds> status_age = {};  ///< since hostd wrote `status`; absent: not known
  std::optional<api::AdvertisedResources> advertised;   ///< the plugin's lists; absent: it has written none
  std::map<vfio::PciAddress, vfio::DeviceFacts> facts = {};  ///< of those that were read
  std::vector<std::string> notes;  ///< further things that could not be read, for people
};

/// The grade of a condition, which decides its colour.
enum class Health {
  good,
  attention,  ///< works, with a remark for people
  bad,        ///< needs an action before it works as desired
};
std::string_view text(Health health);

/// The one word for the condition of an accelerator.
struct Condition {
  std::string word;  ///< "free", "in use", "use unknown", "not viable"
  Health health = Health::good;
  std::string reason = {};  ///< if not good: a sentence without its full stop
  /// The action to take. May be empty of a bad condition; `ferry explain` then says more.
  std::string hint = {};
};

/// Another function of an accelerator's IOMMU group.
struct MemberDescription {
  vfio::PciFunction function;
  std::string what;          ///< "audio", "bridge", "network": of its class
  bool accelerator = false;  ///< has a row of its own
  bool blocks = false;       ///< its driver keeps the kernel from giving the group to a VM
};

struct VgpuDescription {
  mdev::VgpuDevice device;
  std::vector<vfio::DeviceUser> users;
  std::vector<api::AdvertisedDevice> advertised_as;
};

struct AcceleratorDescription {
  vfio::PciFunction function;
  std::string model;
  policy::Mode mode = policy::Mode::host;
  Condition condition;
  std::vector<MemberDescription> members;  ///< of its group, without itself, in order of address
  std::vector<vfio::DeviceUser> users;     ///< of the group and of its vGPUs, each once
  std::vector<VgpuDescription> vgpus;
  const mdev::Framework* framework = &mdev::no_framework();  ///< VgpuGpu::framework
  bool host_driver = false;                                  ///< VgpuGpu::host_driver
  std::string obstacle = {};                                 ///< VgpuGpu::obstacle
  std::string vgpu_problem = {};                     ///< why its vGPUs cannot be read; empty: they were
  std::vector<api::AdvertisedDevice> advertised_as;  ///< of the function itself
  std::string not_advertised = {};  ///< reason why the plugin does not list it; empty: it does, or has none
  std::optional<api::AcceleratorStatus> status;  ///< the host status of it
  std::optional<vfio::PriorState> prior;         ///< its state before Ferry bound it
  /// True if the kernel would let a VM have the group now; otherwise `group_blockers` are in the way.
  bool group_viable = false;
  std::vector<vfio::PciAddress> group_blockers;
  /// judge_node(), as if all accelerators of its group were asked for and had lost their vGPUs; the gravest
  /// first.
  std::vector<vfio::Finding> findings;
  /// True if `vfio bind` would bind the accelerator if it were unused. That command also needs the whole
  /// card, and binds no other accelerator unless asked to.
  bool bindable = false;
  std::vector<std::string> bindable_reasons;  ///< why not
  std::string bindable_hint = {};
  /// Why no VM can be given it whole, even with all accelerators of its group; empty: a VM can.
  std::vector<std::string> not_viable;
  std::optional<vfio::DeviceFacts> facts;

  const vfio::PciAddress& address() const { return function.address; }
};

/// A function that counts as an accelerator only where a command or a policy names it, or a virtual function
/// of such a one that a vfio driver has.
struct NamedDescription {
  vfio::PciFunction function;
  std::string model;                                 ///< empty: no name is known
  std::vector<api::AdvertisedDevice> advertised_as;  ///< of the function itself
  std::string not_advertised = {};                   ///< AcceleratorDescription::not_advertised
  /// The judgement of its own unit, as if it were named and had lost its vGPUs; the gravest first.
  std::vector<vfio::Finding> findings = {};

  /// The gravest reason why no VM can have it; of a function that the host uses, why it does not work.
  /// nullptr: none.
  const vfio::Finding* trouble() const;
};

struct NodeDescription {
  std::vector<AcceleratorDescription> accelerators;  ///< in order of address
  std::vector<NamedDescription> by_name;             ///< in order of address
  std::string whose;                                 ///< AcceleratorRules::whose
  std::optional<Error> no_iommu;                     ///< reason why no VM can get a device of this host
  bool iommu = false;
  std::optional<api::DesiredMark> desired;
  std::optional<api::NodePhase> phase;                  ///< absent: hostd has written none
  std::optional<api::StatusError> error;                ///< hostd's, of no accelerator alone
  bool hostd_runs = true;                               ///< NodeSnapshot::hostd_runs
  std::optional<std::chrono::seconds> status_age = {};  ///< NodeSnapshot::status_age
  std::vector<std::string> unknown;                     ///< sources of device users that could not be asked
  std::vector<std::string> notes;

  const AcceleratorDescription* find(const vfio::PciAddress& address) const;
  /// nullptr: `by_name` has no such function.
  const NamedDescription* find_by_name(const vfio::PciAddress& address) const;
};

/// The functions whose users are looked up: all that could change drivers with any accelerator, also with one
/// that counts only by name.
std::vector<vfio::PciAddress> asked_of(const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules);

/// The advertised devices that are `device`, an address or a UUID, or are of its group.
std::vector<api::AdvertisedDevice> advertised_as(const NodeSnapshot& snapshot, const std::string& device,
                                                 std::optional<std::uint32_t> group);

/// The judgement of each accelerator's unit, and of each function of NodeDescription::by_name alone. A fact
/// that the snapshot does not have is hostd's, while its status is about the same driver.
vfio::GpuFindings judge_node(const NodeSnapshot& snapshot, const vfio::AcceleratorRules& rules,
                             const vfio::Asked& asked);

NodeDescription describe_node(const NodeSnapshot& snapshot, const vfio::AcceleratorRules& rules,
                              const policy::ModelNames& models);

}  // namespace ferry::host
