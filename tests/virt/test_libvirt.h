// SPDX-License-Identifier: Apache-2.0
// libvirt without a daemon: its own test driver, whose running domains come from a file.
#pragma once

#include <string>

#include "tests/support/scratch_directory.h"

namespace ferry::test {

/// A host with two running domains, and a third that only existed: "gpu-vm" has 0000:65:00.1 and a mediated
/// device, and a pid file; "plain" has nothing.
struct LibvirtHost : ScratchDirectory {
  LibvirtHost() {
    file("node.xml", R"(<node>
<domain type='test'>
  <name>plain</name><uuid>11111111-7c39-5f9e-8a55-0d4a3d7b5f10</uuid>
  <memory>65536</memory><os><type arch='x86_64'>hvm</type></os>
</domain>
<domain type='test'>
  <name>gpu-vm</name><uuid>6c9a1f0e-7c39-5f9e-8a55-0d4a3d7b5f10</uuid>
  <memory>65536</memory><os><type arch='x86_64'>hvm</type></os>
  <devices>
    <hostdev mode='subsystem' type='pci' managed='no'>
      <source><address domain='0x0000' bus='0x65' slot='0x00' function='0x1'/></source>
    </hostdev>
    <hostdev mode='subsystem' type='mdev' model='vfio-pci'>
      <source><address uuid='5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10'/></source>
    </hostdev>
  </devices>
</domain>
<domain type='test' xmlns:test='http://libvirt.org/schemas/domain/test/1.0'>
  <name>ended</name><uuid>22222222-7c39-5f9e-8a55-0d4a3d7b5f10</uuid>
  <memory>65536</memory><os><type arch='x86_64'>hvm</type></os>
  <test:runstate>5</test:runstate>
</domain>
</node>)");
    file("run/libvirt/qemu/gpu-vm.pid", "412");
    file("run/libvirt/qemu/plain.pid", "not a pid\n");
  }
  std::string uri() const { return "test://" + (path() / "node.xml").string(); }
};

}  // namespace ferry::test
