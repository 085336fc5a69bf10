// SPDX-License-Identifier: Apache-2.0
// The context of every verb: the host, its writer, its probes and locks, and the output.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/options/output_format.h"
#include "cli/output/text_output.h"
#include "common/exit_status.h"
#include "common/process/signals.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "hostfs/locks.h"
#include "mdev/gpu_management.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/bind/fence.h"
#include "vfio/bind/rebind_apply.h"
#include "vfio/pci/inventory.h"
#include "vfio/quiesce/release.h"
#include "vfio/use_probe.h"

namespace ferry::cli {

struct Session {
  std::unique_ptr<HostFs> host;
  std::unique_ptr<HostWriter> writer;
  /// The same as `probe` and `vgpu_probe`, without devices of ResourceClaims: hostd prepares and undoes
  /// these.
  std::unique_ptr<vfio::UseProbe> hostd_probe;
  std::unique_ptr<vfio::UseProbe> hostd_vgpu_probe;
  std::unique_ptr<vfio::UseProbe> probe;       ///< for binding and unbinding
  std::unique_ptr<vfio::UseProbe> vgpu_probe;  ///< for vGPUs: blind if the kubelet does not answer
  std::unique_ptr<vfio::UseProbe> open_probe;  ///< by /proc alone
  std::unique_ptr<vfio::DriverLock> driver_lock;
  std::unique_ptr<vfio::PersistenceSwitch> persistence;
  std::unique_ptr<mdev::GpuManagement> management;        ///< NVML below the host's root
  std::unique_ptr<vfio::ServiceManager> service_manager;  ///< nullptr: no systemd below the host's root
  vfio::AcceleratorRules rules;
  OutputFormat output = OutputFormat::table;
  ColourChoice colours = ColourChoice::terminal;
  std::FILE* out = stdout;  ///< receives data; stderr for replaced programs, which have none
  bool dry_run = false;
  bool explain = false;  ///< print the reason of each step
};

/// The output device of the session's text.
TextOutput text_output(const Session& session);

/// The session for a host that is mounted at `host_root`.
Session open_session(const std::filesystem::path& host_root);

/// The context of binding, with a command's rules (ChosenUnits::rules). `session` must outlive it.
vfio::RebindContext rebind_context(const Session& session, const vfio::AcceleratorRules& rules);

/// The rules of a vGPU command that reads no file: `rules`, and mdev::naming_vgpu_vendors().
Result<vfio::AcceleratorRules> vgpu_rules(const Session& session, const vfio::AcceleratorRules& rules);

/// The GPUs that count by these rules, and their vGPUs, as they are now.
Result<mdev::VgpuInventory> read_vgpus(const Session& session, const vfio::AcceleratorRules& rules);
/// The same by vgpu_rules() of session.rules.
Result<mdev::VgpuInventory> read_vgpus(const Session& session);

/// A verb holds this from before its first look at the host until its change ends. No other Ferry process
/// changes the host meanwhile, and a signal waits for the end.
struct HostChange {
  NodeLock lock;
  FinishOnSignal finish = {};
};

/// The first check of begin_change(), for verbs that work long before they need the lock. A dry run needs no
/// root.
Result<> require_root(const Session& session);

/// Begins a change of the host; nullptr: a dry run makes none. The caller must be root (if the host is this
/// machine), and no other Ferry process may be changing it. Call it before any thread starts, which would
/// take signals (FinishOnSignal).
Result<std::unique_ptr<HostChange>> begin_change(const Session& session);

/// Prints an error and its hint to stderr; returns its exit status.
ExitStatus complain(const Error& error);

}  // namespace ferry::cli
