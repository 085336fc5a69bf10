// SPDX-License-Identifier: Apache-2.0
#include "virt/libvirt_domains.h"

#include <algorithm>
#include <charconv>
#include <span>

#include <libvirt/virterror.h>

#include "virt/domain_xml.h"

namespace ferry::virt {
namespace {

std::optional<int> pid_of(const HostFs& host, const std::string& domain) {
  const auto text = host.read_attribute("run/libvirt/qemu/" + domain + ".pid");
  if (!text) return {};
  int pid = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), pid);
  if (failure != std::errc() || end != text->data() + text->size()) return {};
  return pid;
}

bool has_ended() {
  return ::virGetLastErrorCode() == VIR_ERR_NO_DOMAIN;
}

}  // namespace

Result<std::vector<Domain>> list_running_domains(const HostFs& host, const Connection& connection) {
  virDomainPtr* list = nullptr;
  const int count = ::virConnectListAllDomains(connection.get(), &list, VIR_CONNECT_LIST_DOMAINS_ACTIVE);
  if (count < 0) return fail(libvirt_error(Errc::unreachable, "list libvirt's running domains"));
  const std::unique_ptr<virDomainPtr, void (*)(void*)> owned(list, std::free);
  std::vector<DomainHandle> handles;
  for (virDomainPtr handle : std::span(list, static_cast<std::size_t>(count))) handles.emplace_back(handle);

  std::vector<Domain> domains;
  for (const DomainHandle& handle : handles) {
    const std::string name = ::virDomainGetName(handle.get());
    const std::string xml = taken(::virDomainGetXMLDesc(handle.get(), 0));
    if (xml.empty() && has_ended()) continue;
    if (xml.empty()) return fail(libvirt_error(Errc::unreachable, "domain " + name));
    auto domain = read_domain_xml(xml);
    if (!domain) return fail(std::move(domain).error().during("domain " + name));
    domain->pid = pid_of(host, name);
    domains.push_back(std::move(*domain));
  }
  std::ranges::sort(domains, {}, &Domain::name);
  return domains;
}

bool offers_kvm(const Connection& connection) {
  return !taken(::virConnectGetDomainCapabilities(connection.get(), nullptr, "x86_64", "q35", "kvm", 0))
              .empty();
}

}  // namespace ferry::virt
