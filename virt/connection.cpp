// SPDX-License-Identifier: Apache-2.0
#include "virt/connection.h"

#include <cstdlib>

#include <libvirt/virterror.h>

namespace ferry::virt {
namespace {

// In a container libvirt's own default would be the container's /run. The host runs a daemon for QEMU alone,
// or one for all drivers.
std::string system_uri(const HostFs& host, Access access) {
  std::string plain = "qemu:///system";
  if (host.root() == "/") return plain;
  const std::string suffix = access == Access::read_only ? "-sock-ro" : "-sock";
  const std::string modular = "run/libvirt/virtqemud" + suffix;
  const std::string socket = host.exists(modular) ? modular : "run/libvirt/libvirt" + suffix;
  return plain + "?socket=" + (host.root() / socket).string();
}

void be_silent(void* /*data*/, virErrorPtr /*error*/) {}

}  // namespace

Error libvirt_error(Errc code, const std::string& what) {
  const virError* last = ::virGetLastError();
  std::string why = last != nullptr && last->message != nullptr ? last->message : "no reason given";
  // QEMU's own output has newlines; an error is one line.
  while (why.ends_with('\n')) why.pop_back();
  for (char& c : why) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return {.code = make_error_code(code), .message = what + ": " + why, .hint = {}};
}

std::string taken(char* text) {
  const std::unique_ptr<char, void (*)(void*)> owned(text, std::free);
  return text != nullptr ? text : "";
}

Result<Connection> connect(const HostFs& host, std::string uri, Access access) {
  if (uri.empty()) uri = system_uri(host, access);
  ::virSetErrorFunc(nullptr, be_silent);  // the default handler also prints errors to stderr
  Connection connection(access == Access::read_only ? ::virConnectOpenReadOnly(uri.c_str())
                                                    : ::virConnectOpen(uri.c_str()));
  if (!connection) {
    Error error = libvirt_error(Errc::unreachable, "connect to libvirt at " + uri);
    error.hint = "start its daemon (systemctl start libvirtd, or virtqemud), or name another with --connect";
    return fail(std::move(error));
  }
  return connection;
}

}  // namespace ferry::virt
