# SPDX-License-Identifier: Apache-2.0
"""The devices of a node: the arguments of QEMU, and how the node finds them again at the kernel's addresses."""

import dataclasses
import json
import pathlib
import random
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .scenario import Table

# The kernel module of a driver where it is not named like the driver. nvidia and xe are the test module's own.
DRIVER_MODULES = {"bochs-drm": "bochs", "nvidia": "ferry_testgpu", "virtio-pci": "virtio_pci", "xe": "ferry_testgpu",
                  "xhci_hcd": "xhci_pci"}

# Emulated devices that a scenario may use, and whether QEMU lets them be plugged while the machine runs.
MODELS = {
    "VGA": False, "ati-vga": True, "bochs-display": True, "cirrus-vga": False, "e1000e": True, "edu": True, "gpu-model": True,
    "ich9-intel-hda": True, "nvme": True, "pci-testdev": True, "qemu-xhci": True, "secondary-vga": True,
    "virtio-gpu-pci": True, "virtio-net-pci": True, "virtio-rng-pci": True,
}

# A program of the tests, to which a newer QEMU connects (tests/vfio/gpu_model.cpp). `options.ids`: what it shows.
GPU_MODEL = "gpu-model"

# How vGPUs come to exist on a device, by the test module: on itself, on its virtual functions, as these, as these whole.
VGPU_FRAMEWORKS = ["mdev", "mdev-on-vfs", "vendor-vfio", "whole-vfs"]

FIRST_PORT_SLOT = 0x10
LAST_PORT_SLOT = 0x1E


@dataclasses.dataclass(frozen=True)
class Device:
    """A PCI function of the node, under the name that jobs use."""

    name: str
    model: str  # QEMU's
    options: dict[str, str | int | bool]  # QEMU properties
    disk_mib: int  # of the disk behind it, empty at the first boot; 0: it has none
    function_of: str  # the device whose slot it shares as the next function; empty: a slot of its own
    behind: str  # the PCI bridge, shared by all that name it; empty: a root port of its own
    id: str  # "VVVV:DDDD" that the node sees; empty: what the emulated device says
    pci_class: str  # "CCSSPP"
    subsystem: str  # "VVVV:DDDD"; "VVVV:random": drawn for each run
    driver: str  # bound when the job starts; empty: none
    vgpu: str  # how the test module makes vGPUs on it; empty: it makes none
    plugged: bool  # at boot


def parse_device(name: str, row: "Table") -> Device:
    def text(key: str, pattern: str, example: str) -> str:
        value: str = row.take(key, str, "")
        if value and not re.fullmatch(pattern, value):
            raise row.error(key, f'"{value}" does not look like {example} (lower case hexadecimal)')
        return value

    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise row.error("", 'a device is named in small letters, digits and "-"')
    options = row.take("options", dict, {})
    for key, value in options.items():
        if not isinstance(value, (str, int)):
            raise row.error(f"options.{key}", "must be text, a whole number, true or false")
    device = Device(
        name=name, model=row.take_choice("model", list(MODELS)), options=options, disk_mib=row.take("disk_mib", int, 0),
        function_of=row.take("function_of", str, ""), behind=row.take("behind", str, ""),
        id=text("id", r"[0-9a-f]{4}:[0-9a-f]{4}", "10de:2684"), pci_class=text("class", r"[0-9a-f]{6}", "030000"),
        subsystem=text("subsystem", r"[0-9a-f]{4}:([0-9a-f]{4}|random)", "10de:1a2b or 10de:random"),
        driver=row.take("driver", str, ""), vgpu=row.take_choice("vgpu", VGPU_FRAMEWORKS, ""),
        plugged=row.take("plugged", bool, True))
    given = [bool(device.id), bool(device.pci_class), bool(device.subsystem)]
    if any(given) and not all(given):
        raise row.error("", 'give "id", "class" and "subsystem" together, or none of them')
    if device.function_of and device.behind:
        raise row.error("", 'give "function_of" or "behind", not both')
    if device.behind and not re.fullmatch(r"[a-z][a-z0-9-]*", device.behind):
        raise row.error("behind", 'a bridge is named in small letters, digits and "-"')
    if not device.plugged and (device.behind or not MODELS[device.model]):
        what = "a device behind a bridge" if device.behind else f"a {device.model}"
        raise row.error("plugged", f"{what} cannot be plugged later")
    if not 0 <= device.disk_mib <= 1024:
        raise row.error("disk_mib", f"must be 0 to 1024, not {device.disk_mib}")
    if (device.model == GPU_MODEL) != (set(device.options) == {"ids"}):
        raise row.error("options", f'a {GPU_MODEL} has "ids" and nothing else there, as {{ids = "10de:2330"}}; other models have no "ids"')
    if device.vgpu and not device.id:
        raise row.error("vgpu", 'the test module needs "id", "class" and "subsystem" of a vGPU parent')
    return device


def check_topology(file: pathlib.Path, devices: dict[str, Device]) -> None:
    from .scenario import ScenarioError, suggestion

    for device in devices.values():
        place = f"{file}: devices.{device.name}"
        if device.function_of:
            first = devices.get(device.function_of)
            if first is None:
                known = [name for name in devices if name != device.name]
                raise ScenarioError(f'{place}.function_of: there is no device "{device.function_of}"'
                                    f"{suggestion(device.function_of, known)}")
            if first.function_of or first.behind:
                raise ScenarioError(f"{place}.function_of: {first.name} has no root port of its own")
            if first.plugged != device.plugged:
                raise ScenarioError(f"{place}.plugged: must be that of {first.name}, whose slot it shares")
        if device.behind in devices:
            raise ScenarioError(f"{place}.behind: {device.behind} is a device; give the bridge another name")
    ports = {port_of(device, devices) for device in devices.values()}
    if len(ports) > 8 * (LAST_PORT_SLOT - FIRST_PORT_SLOT + 1):
        raise ScenarioError(f"{file}: devices: {len(ports)} root ports are more than the machine has")


def port_of(device: Device, devices: dict[str, Device]) -> str:
    """The name of what sits on the root port that this device hangs on."""
    return device.behind or device.function_of or device.name


class Topology:
    """Where each device sits, and its arguments for QEMU and the node."""

    def __init__(self, devices: dict[str, Device], seed: int) -> None:
        self._devices = devices
        ports = list(dict.fromkeys(port_of(device, devices) for device in devices.values()))
        self._ports = {name: f"{FIRST_PORT_SLOT + n // 8:x}.{n % 8}" for n, name in enumerate(ports)}
        self._place: dict[str, str] = {}
        used: dict[str, int] = {}
        for device in devices.values():
            port = port_of(device, devices)
            if device.behind:
                used[port] = used.get(port, 0) + 1
                self._place[device.name] = f"{used[port]:x}.0"
            elif device.function_of:
                used[port] = used.get(port, 0) + 1
                self._place[device.name] = f"0.{used[port]}"
            else:
                self._place[device.name] = "0.0"
        self.subsystems = _draw_subsystems(devices, seed)
        self.sockets = pathlib.Path()  # the folder with the sockets of models()

    def hops(self, name: str) -> str:
        """Slot.function on bus 0, then on the bus below that, and so on: the way the node follows to the address."""
        device = self._devices[name]
        bridge = "0.0/" if device.behind else ""
        return f"{self._ports[port_of(device, self._devices)]}/{bridge}{self._place[name]}"

    def members(self, name: str) -> list[str]:
        """The device and the other functions of its slot, the first function last: the order in which to plug."""
        others = [device.name for device in self._devices.values() if device.function_of == name]
        return [*others, name]

    def models(self) -> dict[str, str]:
        """The IDs of each GPU whose registers a program models."""
        return {device.name: str(device.options["ids"]) for device in self._devices.values() if device.model == GPU_MODEL}

    def properties(self, name: str) -> dict[str, Any]:
        """The arguments of -device or device_add."""
        device = self._devices[name]
        bus = device.behind or f"port-{port_of(device, self._devices)}"
        first = any(other.function_of == name for other in self._devices.values())
        if device.model == GPU_MODEL:
            return {"driver": "vfio-user-pci", "id": name, "bus": bus, "addr": self._place[name],
                    **({"multifunction": True} if first else {}),
                    "socket": {"type": "unix", "path": str(self.sockets / name)}}
        return {"driver": device.model, "id": name, "bus": bus, "addr": self._place[name],
                **({"multifunction": True} if first else {}),
                **({"drive": f"disk-{name}"} if device.disk_mib and "subsys" not in device.options else {}),
                **device.options}

    def make_disks(self, folder: pathlib.Path) -> None:
        """The empty files behind the devices' disks: sparse, one a device, named like it."""
        for device in self._devices.values():
            if device.disk_mib:
                with open(folder / device.name, "wb") as disk:
                    disk.truncate(device.disk_mib << 20)

    def qemu_arguments(self, disks: pathlib.Path) -> list[str]:
        arguments = []
        for device in self._devices.values():
            if device.disk_mib:
                arguments += ["-drive", f"if=none,id=disk-{device.name},format=raw,file={disks / device.name}"]
        # An NVMe controller with virtual functions is part of a subsystem, which is no PCI device.
        for subsystem in dict.fromkeys(device.options.get("subsys") for device in self._devices.values()):
            if subsystem:
                arguments += ["-device", f"nvme-subsys,id={subsystem}"]
        for number, (name, address) in enumerate(self._ports.items(), 1):
            arguments += ["-device", f"pcie-root-port,id=port-{name},bus=pcie.0,addr={address},chassis={number},"
                                     f"slot={number},multifunction=on"]
        for bridge in dict.fromkeys(device.behind for device in self._devices.values() if device.behind):
            arguments += ["-device", f"pcie-pci-bridge,id={bridge},bus=port-{bridge},addr=0.0"]
        for device in self._devices.values():
            if device.plugged:
                properties = self.properties(device.name)
                arguments += ["-device", json.dumps(properties) if "socket" in properties else _as_option(properties)]
                if device.disk_mib and "subsys" in device.options:  # the disk is the subsystem's then
                    arguments += ["-device", f"nvme-ns,bus={device.name},drive=disk-{device.name}"]
        return arguments

    def table(self) -> str:
        """The devices as the node reads them, one a line: name, hops, driver, IDs, vGPU, plugged; "-" for nothing."""
        rows = []
        for device in self._devices.values():
            ids = "-"
            if device.id:
                ids = f"{device.id}:{self.subsystems[device.name]}:{device.pci_class}"
            module = DRIVER_MODULES.get(device.driver, device.driver)
            rows.append(" ".join([device.name, self.hops(device.name), device.driver or "-", module or "-", ids,
                                  device.vgpu or "-", "plugged" if device.plugged else "-"]))
        return "".join(f"{row}\n" for row in rows)


def _draw_subsystems(devices: dict[str, Device], seed: int) -> dict[str, str]:
    drawn: dict[str, str] = {}
    for device in devices.values():
        if not device.subsystem:
            continue
        vendor, number = device.subsystem.split(":")
        if number == "random":
            source = random.Random(f"{seed} {device.name}")
            number = f"{source.randrange(1, 0xFFFF):04x}"
            while f"{vendor}:{number}" in drawn.values():
                number = f"{source.randrange(1, 0xFFFF):04x}"
        drawn[device.name] = f"{vendor}:{number}"
    return drawn


def _as_option(properties: dict[str, str | int | bool]) -> str:
    def value(item: str | int | bool) -> str:
        return ("on" if item else "off") if isinstance(item, bool) else str(item).replace(",", ",,")

    return ",".join([str(properties["driver"]), *(f"{key}={value(item)}" for key, item in properties.items()
                                                  if key != "driver")])
