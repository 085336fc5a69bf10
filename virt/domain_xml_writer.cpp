// SPDX-License-Identifier: Apache-2.0
#include <libxml/entities.h>
#include <memory>

#include <fmt/format.h>

#include "virt/domain.h"

namespace ferry::virt {
namespace {

std::string escaped(const std::string& text) {
  const std::unique_ptr<xmlChar, void (*)(void*)> out(
      ::xmlEncodeSpecialChars(nullptr, reinterpret_cast<const xmlChar*>(text.c_str())), ::xmlFree);
  return reinterpret_cast<const char*>(out.get());
}

// The device has no ROM for the guest: firmware would run it, which takes long under emulation and which the
// test does not need.
std::string hostdev(const vfio::PciAddress& address) {
  return fmt::format(R"(    <hostdev mode="subsystem" type="pci" managed="no">
      <source>
        <address domain="0x{:04x}" bus="0x{:02x}" slot="0x{:02x}" function="0x{:x}"/>
      </source>
      <rom bar="off"/>
    </hostdev>
)",
                     address.domain, address.bus, address.device, address.function);
}

std::string hostdev(const std::string& uuid) {
  return fmt::format(R"(    <hostdev mode="subsystem" type="mdev" managed="no" model="vfio-pci">
      <source>
        <address uuid="{}"/>
      </source>
    </hostdev>
)",
                     uuid);
}

}  // namespace

std::string domain_xml(const SelftestDomain& domain) {
  const bool kvm = domain.accelerator == GuestAccelerator::kvm;
  std::string hostdevs;
  for (const vfio::PciAddress& address : domain.pci) hostdevs += hostdev(address);
  for (const std::string& uuid : domain.mdev) hostdevs += hostdev(uuid);
  // Without KVM some versions of libvirt default to a 32-bit CPU; `maximum` is all that TCG can do.
  return fmt::format(R"(<domain type="{type}">
  <name>{name}</name>
  <memory unit="MiB">{memory}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch="x86_64" machine="q35">hvm</type>
    <kernel>{kernel}</kernel>
    <initrd>{initrd}</initrd>
    <cmdline>{arguments}</cmdline>
  </os>
  <features>
    <acpi/>
  </features>
  <cpu mode="{cpu}"/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>destroy</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <controller type="usb" model="none"/>
    <memballoon model="none"/>
    <serial type="unix">
      <source mode="connect" path="{socket}"/>
    </serial>
{hostdevs}  </devices>
</domain>
)",
                     fmt::arg("type", kvm ? "kvm" : "qemu"), fmt::arg("name", escaped(domain.name)),
                     fmt::arg("memory", domain.memory_mib), fmt::arg("kernel", escaped(domain.kernel)),
                     fmt::arg("initrd", escaped(domain.initrd)),
                     fmt::arg("arguments", escaped(domain.kernel_arguments)),
                     fmt::arg("cpu", kvm ? "host-passthrough" : "maximum"),
                     fmt::arg("socket", escaped(domain.console_socket)), fmt::arg("hostdevs", hostdevs));
}

}  // namespace ferry::virt
