// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/support/scratch_directory.h"

namespace ferry::test {

/// On a host on which processes are to be seen: Kata's shim, the files of an artifact in /srv/gpu, and below
/// /opt/art the links of these classes to it, as hostd makes and records them.
inline void add_gpu_artifact(const ScratchDirectory& host, const std::vector<std::string>& classes) {
  host.link("proc/1/exe", "/sbin/init");
  host.file("opt/kata/bin/containerd-shim-kata-v2", "shim");
  host.file("srv/gpu/configuration.toml",
            "[hypervisor.qemu]\npath = \"/usr/bin/qemu\"\nkernel = \"/build/vmlinuz\"\n"
            "image = \"/build/image\"\nmachine_type = \"q35\"\ndefault_memory = 2048\n");
  for (const char* file : {"srv/gpu/vmlinuz", "srv/gpu/image", "usr/bin/qemu"}) host.file(file, "x");
  std::string record;
  for (const std::string& name : classes) {
    host.link("opt/art/" + name, "/srv/gpu");
    record += (record.empty() ? "{\"/opt/art/" : ", \"/opt/art/") + name + R"(": ["/srv/gpu"])";
  }
  host.file("var/lib/ferry-hostd/kata/links.json", record + "}\n");
}

}  // namespace ferry::test
