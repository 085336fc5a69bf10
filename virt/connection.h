// SPDX-License-Identifier: Apache-2.0
// libvirt's handles, owned by type, and its errors as Error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <libvirt/libvirt.h>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "virt/domain.h"

namespace ferry::virt {

struct CloseConnection {
  void operator()(virConnect* connection) const { ::virConnectClose(connection); }
};
using Connection = std::unique_ptr<virConnect, CloseConnection>;

struct FreeDomain {
  void operator()(virDomain* domain) const { ::virDomainFree(domain); }
};
using DomainHandle = std::unique_ptr<virDomain, FreeDomain>;

/// Connects to `uri`, for reading only; empty: the host's own daemon, whose socket is looked for below the
/// host's root. Errc::unreachable names the URI and a remedy.
Result<Connection> connect(const HostFs& host, std::string uri);

/// libvirt's last error in this thread.
Error libvirt_error(Errc code, const std::string& what);

/// A string that libvirt allocated; empty for nullptr.
std::string taken(char* text);

/// All running domains in order of name, without domains that end meanwhile. `pid` comes from the pid files
/// of the host's own daemon (run/libvirt/qemu).
Result<std::vector<Domain>> list_running_domains(const HostFs& host, const Connection& connection);

}  // namespace ferry::virt
