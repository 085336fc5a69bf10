// SPDX-License-Identifier: Apache-2.0
// Makes a container runtime read its files: by a restart or reload of a systemd unit, or by the
// administrator's command.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "kata-manager/runtime_change.h"

namespace ferry {

/// Restarts `unit`. Its KillMode decides whether that ends pods, since their shims are processes of the
/// service. The host's systemctl shows that mode, since systemd may not have read the present file. Without
/// systemctl the unit's files count.
std::unique_ptr<RuntimeControl> restart_of_unit(const HostFs& host, HostWriter& writer, std::string unit);

/// Makes `unit` read its configuration anew, which ends no pod.
std::unique_ptr<RuntimeControl> reload_of_unit(const HostFs& host, std::string unit);

/// Runs a program of the host with its arguments. Only the administrator knows its effect on pods.
std::unique_ptr<RuntimeControl> run_of_command(HostWriter& writer, std::vector<std::string> words);

/// Does nothing: another program watches the files and has them read.
std::unique_ptr<RuntimeControl> left_to(std::string program);

}  // namespace ferry
