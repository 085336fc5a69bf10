// SPDX-License-Identifier: Apache-2.0
// Watches the files by which the agent, hostd and the device plugin communicate.
#pragma once

#include "common/event_loop.h"
#include "common/folder_watch.h"
#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// Watches the folders of wanted.json, state.json and offered.json. For the loop's thread only.
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

}  // namespace ferry
