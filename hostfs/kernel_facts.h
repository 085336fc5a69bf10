// SPDX-License-Identifier: Apache-2.0
// Facts of the running kernel, and the places where its modules' configuration lies.
#pragma once

#include <array>
#include <string>
#include <sys/utsname.h>

#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry {

/// The release of the host's kernel as in `uname -r`; lib/modules has a folder of that name. A captured tree
/// has its own machine's release; a tree without one gets this machine's. Empty: neither is known. ABI:
/// proc(5), /proc/sys/kernel/osrelease.
inline std::string kernel_release(const HostFs& host) {
  if (auto release = host.read_attribute("proc/sys/kernel/osrelease"); release && !release->empty())
    return std::move(*release);
  utsname system{};
  return ::uname(&system) == 0 ? std::string(static_cast<const char*>(system.release)) : std::string();
}

/// The running boot's id, a UUID that the kernel draws at each boot. Records about sysfs are void after
/// another boot. ABI: proc(5), /proc/sys/kernel/random/boot_id.
inline Result<std::string> boot_id(const HostFs& host) {
  return host.read_attribute("proc/sys/kernel/random/boot_id");
}

// PID namespaces of process numbers. ABI: namespaces(7), links proc/PID/ns/pid, "pid:[4026531836]".

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

/// Directories of modprobe's configuration below the host's root; a file hides files of its name in later
/// ones. ABI: modprobe.d(5). Hosts with a merged /usr have the last two in one place.
inline constexpr std::array kModprobeDirectories = {
    "etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d"};

}  // namespace ferry
