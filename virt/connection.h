// SPDX-License-Identifier: Apache-2.0
// The running domains, asked of libvirt itself. Only ferry-virt loads libvirt.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <libvirt/libvirt.h>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "virt/domain.h"

namespace ferry::virt {

using Connection = std::unique_ptr<virConnect, int (*)(virConnect*)>;

/// Connects to `uri`, for reading only; empty: the host's own daemon, whose socket is looked for below the
/// host's root. Errc::unreachable names the URI and a remedy.
Result<Connection> connect(const HostFs& host, std::string uri);

/// All running domains in order of name, without domains that end meanwhile. `pid` comes from the pid files
/// of the host's own daemon (run/libvirt/qemu).
Result<std::vector<Domain>> list_running_domains(const HostFs& host, const Connection& connection);

}  // namespace ferry::virt
