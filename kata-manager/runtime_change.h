// SPDX-License-Identifier: Apache-2.0
// A change of a container runtime's configuration, carried out: written, held against the runtime's own
// program, read by the running one, proven by asking it, and put back when it is not so.
//
// A daemon that does not come back takes every pod of the node out of service. So whatever happens on the
// way, its files are those from before or those that were proven, and a run that was killed leaves a record
// of what is not proven yet (runtime_record.h), which the next run takes up.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/container_runtime.h"
#include "kata-manager/file_change.h"
#include "kata-manager/runtime_handler.h"

namespace ferry {

/// How a runtime is made to read its files.
class RuntimeControl {
 public:
  RuntimeControl() = default;
  RuntimeControl(const RuntimeControl&) = delete;
  RuntimeControl& operator=(const RuntimeControl&) = delete;
  RuntimeControl(RuntimeControl&&) = delete;
  RuntimeControl& operator=(RuntimeControl&&) = delete;
  virtual ~RuntimeControl() = default;

  /// "restart containerd.service"
  virtual std::string text() const = 0;
  /// Why that would end the pods that run; absent: it would not.
  virtual std::optional<std::string> harm() const = 0;
  /// Returns when it is done, or has failed.
  virtual Result<> act() = 0;
};

struct RuntimeChange {
  std::vector<FileChange> files;             ///< none: it is written already
  std::span<const RuntimeHandler> handlers;  ///< what the runtime shall know
  std::vector<std::string> leaving;          ///< what it shall not know any more
  std::vector<std::string> gone = {};        ///< classes whose files go: nobody may have them
  /// Runtimes that it will know; absent: that is not predicted.
  std::optional<std::vector<std::string>> staying = {};
};

struct ChangeContext {
  HostFs* host = nullptr;
  ContainerRuntime* runtime = nullptr;
  RuntimeControl* control = nullptr;  ///< nullptr: nobody makes it read them, now
  /// Whether the runtime's own program reads the files as they are now as it was predicted; nothing: it does.
  /// Empty: it cannot be asked.
  std::function<Result<std::optional<std::string>>()> contradiction = {};
  /// Fails where the runtime would serve no CRI after a restart. may_carry_out() alone asks it. Empty: it is
  /// not asked.
  std::function<Result<>()> restart_check = {};
  /// Why it does not come back, in its own words; nothing: not known. Asked after a restart that failed.
  std::function<std::optional<std::string>()> own_words = {};
  /// Restart it although its files have changed since its start, and it could not be asked.
  bool accept_edited_files = false;
  /// Told what is being done, before it is.
  std::function<void(const std::string&)> told = {};
  std::chrono::milliseconds patience{60'000};  ///< for the runtime to answer and know them
};

struct RuntimeOutcome {
  bool written = false;  ///< files were
  bool acted = false;    ///< the runtime was made to read them
  /// Absent: it was asked, and knows them. Else why that is not known: it does not run, or nobody made it
  /// read them.
  std::optional<std::string> unproven;
};

/// Whether carry_out() would be refused now, by the same errors. Nothing is written.
Result<> may_carry_out(const ChangeContext& context, const RuntimeChange& change);

/// What the runtime knows with the configuration of a class that goes, and will know no more, leaves too,
/// whatever its files say: they may have lost it since it has read them. What was written before, and
/// the runtime does not show to have read (RuntimeOutcome::unproven), is put back too where it does not come
/// back with it. Where a run
/// that was killed may be why it does not run, nobody is asked for: it is to come back.
///
/// Errors: Errc::refused, nothing was written: somebody has, or may have, a runtime or a class that goes
/// (kata_users.h), the restart would end pods, or a file is being changed by somebody else. Errc::failed, the
/// runtime's program reads the files otherwise than predicted, or the runtime did not come back with them:
/// what was there before is back, and the message says whether it runs with it. Errc::unsupported, it runs,
/// and nothing is known that makes it read them. Others: a file or the record could not be written; what was
/// written is put back.
Result<RuntimeOutcome> carry_out(const ChangeContext& context, const RuntimeChange& change);

}  // namespace ferry
