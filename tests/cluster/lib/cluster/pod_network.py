#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A network for pods that do not use the node's: a pair of interfaces between the pod and its node (box.py), and nothing else.
The pod reaches the node by NODE_ADDRESS, and the node the pod.

As a module it installs itself; as a program it is a CNI plugin. ABI: the Container Network Interface, 0.3.1 to 1.0.0.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

PROGRAMS = pathlib.Path("/opt/cni/bin")  # where containerd looks; the box's own
# containerd has the second one called for the pod's own loopback device.
NAMES = ("box", "loopback")
VERSIONS = ["0.3.1", "0.4.0", "1.0.0"]


def install(configurations: pathlib.Path) -> None:
    """Writes the file that tells containerd of it."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        shutil.copy(__file__, PROGRAMS / name)
        (PROGRAMS / name).chmod(0o755)
    (configurations / "box.conflist").write_text(json.dumps(
        {"cniVersion": "0.4.0", "name": "box", "plugins": [{"type": "box"}]}))


def _ip(*words: str, inside: str = "") -> str:
    """`inside`: the network namespace's file."""
    enter = ["nsenter", f"--net={inside}"] if inside else []
    return subprocess.run([*enter, "ip", *words], check=True, capture_output=True, text=True).stdout


def _add(network: str, version: str) -> dict[str, Any]:
    # Names of interfaces have 15 characters at most.
    name, other = f"v{os.environ['CNI_CONTAINERID'][:12]}", f"w{os.environ['CNI_CONTAINERID'][:12]}"
    interface = os.environ["CNI_IFNAME"]
    _ip("link", "add", name, "type", "veth", "peer", "name", other)
    number = json.loads(_ip("-j", "link", "show", name))[0]["ifindex"]
    address = f"10.201.{number >> 8 & 255}.{number & 255}"
    _ip("link", "set", other, "netns", network)
    _ip("link", "set", name, "up")
    _ip("route", "add", f"{address}/32", "dev", name)
    _ip("link", "set", other, "name", interface, inside=network)
    _ip("address", "add", f"{address}/32", "dev", interface, inside=network)
    _ip("link", "set", interface, "up", inside=network)
    _ip("route", "add", "default", "dev", interface, inside=network)
    mac = json.loads(_ip("-j", "link", "show", interface, inside=network))[0]["address"]
    found = {"interface": 0, "address": f"{address}/32"} | ({} if version.startswith("1.") else {"version": "4"})
    return {"interfaces": [{"name": interface, "mac": mac, "sandbox": network}], "ips": [found], "dns": {}}


def main() -> int:
    command, config = os.environ["CNI_COMMAND"], json.load(sys.stdin)
    version, network = config["cniVersion"], os.environ.get("CNI_NETNS", "")
    answer: dict[str, Any] = {}
    if command == "VERSION":
        answer = {"supportedVersions": VERSIONS}
    elif command == "ADD" and pathlib.Path(sys.argv[0]).name == "loopback":
        _ip("link", "set", "lo", "up", inside=network)
        answer = {"interfaces": [{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": network}], "ips": [], "dns": {}}
    elif command == "ADD":
        answer = _add(network, version)
    # With its network namespace a pair goes by itself: nothing to delete.
    if answer:
        json.dump({"cniVersion": version, **answer}, sys.stdout)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        json.dump({"cniVersion": "0.4.0", "code": 100, "msg": f"{error}: {error.stderr}"}, sys.stdout)
        sys.exit(1)
