// SPDX-License-Identifier: Apache-2.0
#include "virt/connection.h"

#include <algorithm>
#include <cstdlib>
#include <span>

#include <libvirt/virterror.h>

#include "common/text/text.h"

namespace ferry::virt {
namespace {

/// libvirt's last error in this thread.
Error libvirt_error(const std::string& what) {
  const virError* last = ::virGetLastError();
  std::string why = last != nullptr && last->message != nullptr ? last->message : "no reason given";
  // QEMU's own output has newlines; an error is one line.
  while (why.ends_with('\n')) why.pop_back();
  for (char& c : why)
    if (c == '\n' || c == '\r') c = ' ';
  return {.code = make_error_code(Errc::unreachable), .message = what + ": " + why};
}

}  // namespace

Result<Connection> connect(const HostFs& host, std::string uri) {
  if (uri.empty()) {
    uri = "qemu:///system";
    // In a container libvirt's own default would be the container's /run. The host runs a daemon for QEMU
    // alone, or one for all drivers.
    if (host.root() != "/") {
      const std::string modular = "run/libvirt/virtqemud-sock-ro";
      const std::string socket = host.exists(modular) ? modular : "run/libvirt/libvirt-sock-ro";
      uri += "?socket=" + (host.root() / socket).string();
    }
  }

  // The default handler also prints errors to stderr.
  ::virSetErrorFunc(nullptr, [](void* /*data*/, virErrorPtr /*error*/) {});
  Connection connection(::virConnectOpenReadOnly(uri.c_str()), ::virConnectClose);
  if (!connection) {
    Error error = libvirt_error("connect to libvirt at " + uri);
    error.hint = "start its daemon (systemctl start libvirtd, or virtqemud), or name another with --connect";
    return fail(std::move(error));
  }
  return connection;
}

Result<std::vector<Domain>> list_running_domains(const HostFs& host, const Connection& connection) {
  virDomainPtr* list = nullptr;
  const int count = ::virConnectListAllDomains(connection.get(), &list, VIR_CONNECT_LIST_DOMAINS_ACTIVE);
  if (count < 0) return fail(libvirt_error("list libvirt's running domains"));
  const std::unique_ptr<virDomainPtr, void (*)(void*)> owned(list, std::free);
  std::vector<std::unique_ptr<virDomain, int (*)(virDomain*)>> handles;
  for (virDomain* handle : std::span(list, static_cast<std::size_t>(count)))
    handles.emplace_back(handle, ::virDomainFree);

  std::vector<Domain> domains;
  for (const auto& handle : handles) {
    const std::string name = ::virDomainGetName(handle.get());
    // libvirt allocates the text; nullptr is an error.
    const std::unique_ptr<char, void (*)(void*)> printed(::virDomainGetXMLDesc(handle.get(), 0), std::free);
    const std::string xml = printed ? printed.get() : "";
    const bool has_ended = xml.empty() && ::virGetLastErrorCode() == VIR_ERR_NO_DOMAIN;
    if (has_ended) continue;
    if (xml.empty()) return fail(libvirt_error("domain " + name));
    auto domain = read_domain_xml(xml);
    if (!domain) return fail(std::move(domain).error().during("domain " + name));
    if (const auto pid = host.read_attribute("run/libvirt/qemu/" + name + ".pid"))
      domain->pid = whole_number<int>(*pid);
    domains.push_back(std::move(*domain));
  }
  std::ranges::sort(domains, {}, &Domain::name);
  return domains;
}

}  // namespace ferry::virt
