// SPDX-License-Identifier: Apache-2.0
// The files by which the agent and hostd meet, heard of when somebody writes them.
#pragma once

#include "common/event_loop.h"
#include "common/folder_watch.h"
#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// The folders of wanted.json and state.json. One thread, the loop's.
class HostWatch {
 public:
  /// `changed` runs when one of the files may be another. The loop and the host must outlive this.
  HostWatch(EventLoop& loop, HostFs& host, EventLoop::Job changed);

  /// Errors: a folder can be neither made nor watched. Later on that is logged and tried again.
  Result<> begin();

 private:
  HostFs& host_;
  FolderWatch folders_;
};

}  // namespace ferry
