// SPDX-License-Identifier: Apache-2.0
// Applies a change to a container runtime's configuration: writes the files, checks them with the runtime's
// own program, makes the daemon read them, verifies its answer, and rolls back on a failure.
//
// A daemon that does not come back takes every pod of the node out of service. So the daemon's files are
// always either the earlier or the verified ones. A killed run leaves an undo journal of unverified changes
// (runtime_record.h), which the next run continues.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/runtimes/config_files.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {

/// Makes a runtime read its files.
class RuntimeControl : Pinned {
 public:
  virtual ~RuntimeControl() = default;

  /// "restart containerd.service"
  virtual std::string text() const = 0;
  /// Why act() would end running pods; absent: it would not.
  virtual std::optional<std::string> harm() const = 0;
  /// Returns after success or failure.
  virtual Result<> act() = 0;
};

struct RuntimeChange {
  std::vector<FileChange> files;             ///< empty: written already
  std::span<const RuntimeHandler> handlers;  ///< the runtime must know these
  std::vector<std::string> leaving;          ///< the runtime must no longer know these
  std::vector<std::string> gone = {};        ///< classes whose files go; no pod may use them
  /// Runtimes that the daemon will know; absent: not predicted.
  std::optional<std::vector<std::string>> staying = {};
};

struct ChangeContext {
  HostFs* host = nullptr;
  ContainerRuntime* runtime = nullptr;
  RuntimeControl* control = nullptr;  ///< nullptr: no restart now
  /// A difference between the program's reading of the present files and the prediction; absent: none.
  /// Empty: the program cannot be asked.
  std::function<Result<std::optional<std::string>>()> contradiction = {};
  /// Fails if the runtime would serve no CRI after its next start; `restarts`: the change is that start. Only
  /// may_apply_change() calls it. Empty: not checked.
  std::function<Result<>(bool restarts)> restart_check = {};
  /// Why the daemon does not run, in its own words; absent: unknown. Called after a failed restart.
  std::function<std::optional<std::string>()> own_words = {};
  /// Restart even if files changed since the daemon's start and its program could not be asked.
  bool accept_edited_files = false;
  /// Called with each action, before it begins.
  std::function<void(const std::string&)> log = {};
  std::chrono::milliseconds patience{60'000};  ///< for the runtime to answer and know the handlers
  /// So long it must answer rightly without a break: a server that cannot listen ends it after its first
  /// answer. A runtime that says so long that it has no CRI is not waited for. At most `patience`.
  std::chrono::milliseconds steady{3'000};
};

struct RuntimeOutcome {
  bool written = false;  ///< files were written
  bool acted = false;    ///< the runtime was made to read the files
  /// Absent: the runtime answered, and knows the handlers. Else why that is not known: it does not run, or
  /// was not made to read the files.
  std::optional<std::string> unverified;
};

/// Fails with the errors of apply_change() if that would be refused now. Writes nothing.
Result<> may_apply_change(const ChangeContext& context, const RuntimeChange& change);

/// A runtime with a leaving class's configuration, which the files will no longer have, leaves too, even if
/// the present files lost it already. If the daemon does not come back, earlier changes that it never
/// showed to have read (RuntimeOutcome::unverified) are rolled back as well. If a killed run may be why the
/// daemon is down, pods are not asked for: the daemon must come back first.
///
/// Errors: Errc::refused, without a write: a pod has, or may have, a leaving runtime or class
/// (kata_users.h), the restart would end pods, or another program changes a file. Errc::failed, after a
/// rollback: the runtime's program reads the files otherwise than predicted, or the daemon did not come
/// back; the message says whether it runs now. Errc::unsupported: the daemon runs, and cannot be made to
/// read the files. Other errors: a write of a file or of the journal failed; files are rolled back.
Result<RuntimeOutcome> apply_change(const ChangeContext& context, const RuntimeChange& change);

}  // namespace ferry::kata
