// SPDX-License-Identifier: Apache-2.0
// A container's control group forbids device nodes that the container was not given. hostd must open such
// nodes while it moves their devices, so it leaves that group for a scope of the host's systemd.
#pragma once

#include <functional>

#include "common/host_fs.h"

namespace ferry {

/// Calls `work` in a child process and returns its result. The child runs in a scope of the host's systemd
/// ("ferry-hostd-PID.scope") without device rules and limits. The parent keeps the container's control group
/// alive until the child ends. It passes SIGTERM and SIGINT on, and the child gets SIGTERM when the parent
/// dies. In the child this function returns too. If systemd refuses, `work` is called all the same, and a
/// warning says which actions will fail. Call it with one thread, since it uses fork(2). A child that a
/// signal ended gives 128 plus its number. -1: there is no child.
int in_own_scope(const HostFs& host, const std::function<int()>& work);

}  // namespace ferry
