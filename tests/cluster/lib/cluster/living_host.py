# SPDX-License-Identifier: Apache-2.0
"""A host whose GPUs can be bound and divided: the fake kernel of the unit tests, served as a file system
(kernel_standin/main.cpp), with this box's processes, nodes and kubelet.

It has a 4090 and its audio in group 11, a T4 in group 12. The nodes of groups are stand-ins.
"""

import contextlib
import fcntl
import os
import pathlib
import platform
import stat
import subprocess
from collections.abc import Iterator

from .gpus import NODE_OF_ALL
from .programs import Program, wait_until

CARD, AUDIO, TESLA = "0000:01:00.0", "0000:01:00.1", "0000:02:00.0"
FUNCTIONS = (CARD, AUDIO, TESLA)


def _show(what: pathlib.Path, place: pathlib.Path) -> None:
    """At another place too, with all that is mounted below."""
    if what.is_symlink():
        place.symlink_to(what.readlink())
        return
    if what.is_dir():
        place.mkdir()
    else:
        place.touch()
    subprocess.run(["mount", "--rbind", str(what), str(place)], check=True)


class LivingHost:
    """Made inside a box (box.py), once."""

    def __init__(self, root: pathlib.Path, logs: pathlib.Path, standin: str) -> None:
        self.root = root
        nodes = pathlib.Path("/dev/vfio")
        nodes.mkdir()
        os.mknod(nodes / "vfio", 0o666 | stat.S_IFCHR, NODE_OF_ALL)
        modules = root / "lib/modules" / platform.release()
        for folder in (root / "sys", root / "run", root / "etc", modules):
            folder.mkdir(parents=True)
        (root / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
        (modules / "modules.alias").write_text("alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n")
        for folder in ("dev", "proc", "var/lib/kubelet"):
            (root / folder).mkdir(parents=True)
            subprocess.run(["mount", "--rbind", f"/{folder}", str(root / folder)], check=True)
        # The box's processes are all that this host has; /proc shall not say that it shows those of a container alone.
        names = root / "proc/1/ns"
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(names)], check=True)
        (names / "pid").symlink_to("pid:[4026531836]")
        self._gate = root / "gate"
        self._gate.touch()
        self.kernel = Program(logs, standin, str(root / "sys"), str(nodes), str(self._gate))

    def start(self) -> None:
        self.kernel.start()
        self.kernel.wait_until("sysfs is there", lambda: (self.root / "sys/bus/pci/devices").exists(), 30)

    def become_the_boxes(self) -> None:
        """Its devices and drivers are those of the box's /sys, beside what that has of others; its modules likewise."""
        union = pathlib.Path("/run/sys")
        union.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(union)], check=True)
        sys, ours = pathlib.Path("/sys"), self.root / "sys"
        for folder in sys.iterdir():
            if not (ours / folder.name).is_dir():
                _show(folder, union / folder.name)
                continue
            (union / folder.name).mkdir()
            for name in {entry.name for entry in (*folder.iterdir(), *(ours / folder.name).iterdir())}:
                entry = ours / folder.name / name
                _show(entry if entry.exists() else folder / name, union / folder.name / name)
        for place, folder in ((sys, union), (pathlib.Path("/lib/modules"), self.root / "lib/modules")):
            subprocess.run(["mount", "--rbind", str(folder), str(place)], check=True)

    @contextlib.contextmanager
    def slow_driver(self) -> Iterator[None]:
        """A write to sysfs meanwhile returns only at the end of it."""
        with open(self._gate, "rb") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield

    def driver_of(self, function: str) -> str:
        try:
            return (self.root / "sys/bus/pci/devices" / function / "driver").readlink().name
        except FileNotFoundError:
            return ""

    def drivers(self) -> tuple[str, ...]:
        return tuple(map(self.driver_of, FUNCTIONS))

    def vgpus(self) -> list[str]:
        """Their UUIDs."""
        try:
            return sorted(os.listdir(self.root / "sys/bus/mdev/devices"))
        except FileNotFoundError:
            return []

    def status_files(self) -> dict[str, str]:
        folder = self.root / "run/nvidia/validations"
        return {file.name: file.read_text() for file in folder.iterdir()} if folder.is_dir() else {}

    def wait_for_drivers(self, *expected: str) -> None:
        wait_until(f"the drivers are {expected}", lambda: self.drivers() == expected, 60)
