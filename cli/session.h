// SPDX-License-Identifier: Apache-2.0
// What every verb works with: the host, how to write to it, whom to ask, how to print.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "cli/output_format.h"
#include "common/exit_status.h"
#include "common/finish_on_signal.h"
#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/node_lock.h"
#include "common/result.h"
#include "mdev/gpu_management.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/fence.h"
#include "vfio/inventory.h"
#include "vfio/move_apply.h"
#include "vfio/release.h"
#include "vfio/use_probe.h"

namespace ferry {

struct Session {
  std::unique_ptr<HostFs> host;
  std::unique_ptr<HostWriter> writer;
  std::unique_ptr<UseProbe> probe;       ///< for moves
  std::unique_ptr<UseProbe> vgpu_probe;  ///< for vGPUs: blind where the kubelet does not answer
  std::unique_ptr<UseProbe> open_probe;  ///< by /proc alone
  std::unique_ptr<DriverLock> driver_lock;
  std::unique_ptr<PersistenceSwitch> persistence;  ///< nullptr: no nvidia-smi below the host's root
  std::unique_ptr<GpuManagement> management;       ///< NVML below the host's root
  std::unique_ptr<Releaser> releaser;              ///< nullptr: no systemd below the host's root
  AcceleratorRules rules;
  OutputFormat output = OutputFormat::table;
  std::FILE* out = stdout;  ///< where data goes; stderr for replaced programs that have none
  bool dry_run = false;
  bool explain = false;  ///< print the reason of each step
};

/// The real thing, for a host mounted at `host_root`.
Session open_session(const std::filesystem::path& host_root);

/// What moving needs, with the rules of a command (ChosenUnits::rules). `session` must outlive it.
MoveContext move_context(const Session& session, const AcceleratorRules& rules);

/// The host's GPUs and the vGPUs on them, as they are now.
Result<VgpuInventory> read_vgpus(const Session& session);

/// Held by a verb from before the look that it goes by until its change is over: the host is its own, and it
/// is not ended in the middle.
class HostChange {
 public:
  explicit HostChange(NodeLock taken) : lock_(std::move(taken)) {}

 private:
  NodeLock lock_;
  FinishOnSignal finish_;
};

/// The first half of begin_change(), for verbs that take their time before they need the lock.
Result<> require_root(const Session& session);

/// For verbs that change the host: we must be root (where the host is this one), and nobody else may be
/// changing it. Called before anything that starts threads, which would take signals (FinishOnSignal).
Result<std::unique_ptr<HostChange>> begin_change(const Session& session);

/// Prints an error and its hint to stderr; gives its exit status.
ExitStatus complain(const Error& error);

}  // namespace ferry
