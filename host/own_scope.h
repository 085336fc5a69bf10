// SPDX-License-Identifier: Apache-2.0
// What a container forbids by its control group alone: opening device nodes that nobody has given it, whoever
// asks. Who shall hold such nodes while it moves their devices leaves that group, for one of systemd's.
#pragma once

#include <functional>

#include "common/host_fs.h"

namespace ferry {

/// Does `work` in a child, which is in a scope of the host's systemd ("ferry-hostd-PID.scope"), without
/// device rules and limits; returns what it returned. This process stays behind, so that the container's
/// control group is not empty and its end is the child's: SIGTERM and SIGINT are passed on, and the child
/// gets SIGTERM when this one dies. In the child it returns too.
///
/// Where systemd does not do it, `work` is done all the same, and a warning says what will be refused.
/// One thread, as for fork(2). A child that a signal ended: 128 and its number. -1: no child could be made.
int in_own_scope(const HostFs& host, const std::function<int()>& work);

}  // namespace ferry
