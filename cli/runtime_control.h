// SPDX-License-Identifier: Apache-2.0
// How a container runtime is made to read its files: a systemd unit is restarted or reloaded, or a command of
// the administrator's is run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "kata-manager/runtime_change.h"

namespace ferry {

/// Restarts `unit`. Whether that ends the pods, its KillMode tells: their shims are processes of the service.
/// The host's systemctl is asked for it, since systemd may not have read what a file says by now; where there
/// is none the files count.
std::unique_ptr<RuntimeControl> restart_of_unit(const HostFs& host, HostWriter& writer, std::string unit);

/// Has `unit` read its configuration anew. Nothing ends by that.
std::unique_ptr<RuntimeControl> reload_of_unit(const HostFs& host, std::string unit);

/// Runs a program of the host, with its arguments. What it does to pods is the administrator's to know.
std::unique_ptr<RuntimeControl> run_of_command(HostWriter& writer, std::vector<std::string> words);

/// Does nothing: another program watches the files, and has them read by itself.
std::unique_ptr<RuntimeControl> left_to(std::string program);

}  // namespace ferry
