# SPDX-License-Identifier: Apache-2.0
"""A host with GPUs as far as a device plugin sees one: sysfs as files, nodes that stand in for /dev/vfio's.

The plugin has all of it below a root of its own; the kubelet, the container runtime and so the pods have the nodes in
/dev/vfio, and the plugin's root shows the same. The node of group N is a device of its own number, so that a pod can
say which one it got.
"""

import os
import pathlib
import stat
import subprocess

MEMORY_MAJOR = 1  # its nodes (null, zero, ...) can be opened by anybody and do no harm
NODE_OF_ALL = os.makedev(MEMORY_MAJOR, 3)


def number_of(group: int) -> int:
    """Of the stand-in for the group's node."""
    return os.makedev(MEMORY_MAJOR, 100 + group)


class Host:
    """Made inside a box (box.py), once."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self._nodes = pathlib.Path("/dev/vfio")
        self._nodes.mkdir()
        os.mknod(self._nodes / "vfio", 0o666 | stat.S_IFCHR, NODE_OF_ALL)
        for folder in ("sys/bus/pci/devices", "sys/bus/pci/drivers/vfio-pci", "sys/kernel/iommu_groups", "run",
                       "sys/module/vfio_pci/drivers"):
            (root / folder).mkdir(parents=True)
        (root / "sys/module/vfio_pci/drivers/pci:vfio-pci").symlink_to("../../../bus/pci/drivers/vfio-pci")
        for folder in ("dev/vfio", "var/lib/kubelet"):
            (root / folder).mkdir(parents=True)
            subprocess.run(["mount", "--bind", f"/{folder}", str(root / folder)], check=True)

    def add(self, address: str, ids: str, class_code: str, group: int) -> None:
        """A function on vfio-pci, in a group whose node is there."""
        vendor, device = ids.split(":")
        function = self.root / "sys/devices/pci0000:00" / address
        function.mkdir(parents=True)
        for name, text in {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{class_code}",
                           "subsystem_vendor": f"0x{vendor}", "subsystem_device": "0x1234", "numa_node": "0",
                           "driver_override": "vfio-pci"}.items():
            (function / name).write_text(text + "\n")
        header = bytes.fromhex(vendor)[::-1] + bytes.fromhex(device)[::-1]
        (function / "config").write_bytes(header.ljust(256, b"\0"))
        (function / "driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
        (function / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{group}")
        (self.root / "sys/bus/pci/devices" / address).symlink_to(f"../../../devices/pci0000:00/{address}")
        members = self.root / f"sys/kernel/iommu_groups/{group}/devices"
        members.mkdir(parents=True, exist_ok=True)
        (members / address).symlink_to(f"../../../../devices/pci0000:00/{address}")
        self.add_node(group)

    def add_node(self, group: int) -> None:
        """Where it is not there."""
        if not (self._nodes / str(group)).exists():
            os.mknod(self._nodes / str(group), 0o600 | stat.S_IFCHR, number_of(group))

    def remove_node(self, group: int) -> None:
        (self._nodes / str(group)).unlink()
