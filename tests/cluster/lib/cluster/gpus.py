# SPDX-License-Identifier: Apache-2.0
"""A host with GPUs as far as a device plugin sees one: sysfs as files, nodes that stand in for /dev/vfio's.

The plugin has all of it below a root of its own; the kubelet, the container runtime and so the pods have the nodes in
/dev/vfio, and the plugin's root shows the same. The node of group N is a device of its own number, so that a pod can
say which one it got.
"""

import os
import pathlib
import shutil
import stat
import subprocess

MEMORY_MAJOR = 1  # its nodes (null, zero, ...) can be opened by anybody and do no harm
NODE_OF_ALL = os.makedev(MEMORY_MAJOR, 3)


def number_of(group: int) -> int:
    """The device number of the stand-in for the group's device node."""
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
        for folder in ("dev/vfio", "var/lib/kubelet", "run/cdi", "var/run/cdi"):
            pathlib.Path("/", folder).mkdir(exist_ok=True)
            (root / folder).mkdir(parents=True)
            subprocess.run(["mount", "--bind", f"/{folder}", str(root / folder)], check=True)

    def add(self, address: str, ids: str, class_code: str, group: int, driver: str = "vfio-pci") -> None:
        """A function with its group, whose node is there when the driver is VFIO's."""
        vendor, device = ids.split(":")
        function = self.root / "sys/devices/pci0000:00" / address
        function.mkdir(parents=True)
        for name, text in {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{class_code}",
                           "subsystem_vendor": f"0x{vendor}", "subsystem_device": "0x1234", "numa_node": "0",
                           "driver_override": driver if driver == "vfio-pci" else "(null)"}.items():
            (function / name).write_text(text + "\n")
        header = bytes.fromhex(vendor)[::-1] + bytes.fromhex(device)[::-1]
        (function / "config").write_bytes(header.ljust(256, b"\0"))
        (self.root / "sys/bus/pci/drivers" / driver).mkdir(exist_ok=True)
        (function / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        (function / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{group}")
        (self.root / "sys/bus/pci/devices" / address).symlink_to(f"../../../devices/pci0000:00/{address}")
        members = self.root / f"sys/kernel/iommu_groups/{group}/devices"
        members.mkdir(parents=True, exist_ok=True)
        (members / address).symlink_to(f"../../../../devices/pci0000:00/{address}")
        if driver == "vfio-pci":
            self.add_node(group)

    def add_mediated_device(self, uuid: str, parent: str, kind: tuple[str, str], group: int) -> None:
        """`kind`: the type's ID and name."""
        gpu = self.root / "sys/devices/pci0000:00" / parent
        kinds = gpu / "mdev_supported_types" / kind[0]
        (kinds / "devices").mkdir(parents=True, exist_ok=True)
        for name, text in {"name": kind[1], "available_instances": "0", "device_api": "vfio-pci",
                           "description": "num_heads=4, frl_config=60, framebuffer=8192M, max_instance=6"}.items():
            (kinds / name).write_text(text + "\n")
        for folder in ("sys/class/mdev_bus", "sys/bus/mdev/devices", "sys/bus/mdev/drivers/nvidia-vgpu-vfio"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        bus = self.root / "sys/class/mdev_bus" / parent
        if not bus.is_symlink():
            bus.symlink_to(f"../../devices/pci0000:00/{parent}")
        device = gpu / uuid
        device.mkdir()
        (device / "mdev_type").symlink_to(f"../mdev_supported_types/{kind[0]}")
        (device / "driver").symlink_to("../../../../bus/mdev/drivers/nvidia-vgpu-vfio")
        (device / "iommu_group").symlink_to(f"../../../../kernel/iommu_groups/{group}")
        (kinds / "devices" / uuid).symlink_to(f"../../../{uuid}")
        (self.root / f"sys/kernel/iommu_groups/{group}/devices").mkdir(parents=True)
        (self.root / f"sys/kernel/iommu_groups/{group}/devices/{uuid}").symlink_to(
            f"../../../../devices/pci0000:00/{parent}/{uuid}")
        (self.root / "sys/bus/mdev/devices" / uuid).symlink_to(f"../../../devices/pci0000:00/{parent}/{uuid}")
        self.add_node(group)

    def remove_mediated_device(self, uuid: str) -> None:
        link = self.root / "sys/bus/mdev/devices" / uuid
        device = link.resolve()
        group = (device / "iommu_group").resolve()
        link.unlink()
        (device / "mdev_type/devices" / uuid).unlink()
        shutil.rmtree(group)
        shutil.rmtree(device)
        self.remove_node(int(group.name))

    def add_node(self, group: int) -> None:
        """Where it is not there."""
        if not (self._nodes / str(group)).exists():
            os.mknod(self._nodes / str(group), 0o600 | stat.S_IFCHR, number_of(group))

    def remove_node(self, group: int) -> None:
        (self._nodes / str(group)).unlink()
