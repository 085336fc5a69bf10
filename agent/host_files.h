// SPDX-License-Identifier: Apache-2.0
// Reads the files of the host before a reconcile, and writes them after it.
#pragma once

#include "agent/node_report.h"
#include "agent/reconcile.h"
#include "common/event_loop.h"
#include "common/result.h"
#include "hostfs/directory_watch.h"
#include "hostfs/host_fs.h"

namespace ferry::agent {

/// Reads desired.json, status.json, kata.json and kata-classes.json. A missing file is no error. A
/// status.json that cannot be parsed is described in `unreadable`; other files count as missing then. Errors:
/// a file cannot be read. The caller sets the times.
Result<HostSide> read_host_side(const HostFs& host);

/// Writes or removes desired.json if `result` asks for it.
Result<> write_desired_file(HostFs& host, const ReconcileResult& result);

/// Writes or removes serving.json if `result` asks for it. A file that is right already stays, and so does
/// one that a person wrote. True: the file changes, or would do so.
Result<bool> write_serving(HostFs& host, const ReconcileResult& result, bool dry_run = false);

/// Writes kata-classes.json. Writing the same content again makes hostd reconcile.
Result<> write_desired_classes(HostFs& host, const kata::DesiredClasses& desired);

// Watches the files by which the agent, hostd and the device plugin communicate.

/// Watches the folders of desired.json, status.json and advertised.json. Only the loop's thread may use it.
class HostWatch {
 public:
  /// `changed` runs when a file may have changed. The loop and the host must outlive this object.
  HostWatch(EventLoop& loop, HostFs& host, EventLoop::Job changed);

  /// Errors: a folder can be neither created nor watched. A later failure is logged, and the watch is tried
  /// again.
  Result<> begin();

 private:
  HostFs& host_;
  FolderWatch folders_;
};

}  // namespace ferry::agent
