// SPDX-License-Identifier: Apache-2.0
// PID namespaces of process numbers. ABI: namespaces(7), links proc/PID/ns/pid, "pid:[4026531836]".
#pragma once

#include <string>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// The host's PID namespace. ABI: include/linux/proc_ns.h, PROC_PID_INIT_INO.
inline constexpr const char* kHostsPidNamespace = "pid:[4026531836]";

/// The PID namespace of this process and its children. "self" in the host's /proc is this process, whatever
/// namespace that /proc belongs to.
inline Result<std::string> own_pid_namespace(const HostFs& host) {
  return host.link_target("proc/self/ns/pid");
}

/// The PID namespace that the host's /proc shows. Errors: permission_denied without CAP_SYS_PTRACE.
inline Result<std::string> pid_namespace_of_proc(const HostFs& host) {
  return host.link_target("proc/1/ns/pid");
}

}  // namespace ferry
