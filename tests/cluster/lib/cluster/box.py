# SPDX-License-Identifier: Apache-2.0
"""Namespaces of their own for a cluster, so that nothing of it reaches the machine or outlives the test.

Its processes end with the first of them; its network is a loopback device alone; what a node's programs write is on
file systems that nobody else sees. Only control groups are the machine's: below one folder that is removed at the end.
"""

import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import BinaryIO

CONTROL_GROUPS = pathlib.Path("/sys/fs/cgroup")
# In each namespace its own: two clusters at once do not meet.
NODE_ADDRESS = "10.200.0.1"
# The address of the Service `kubernetes`. The API server listens on it itself: no proxy of Services runs here.
SERVICE_ADDRESS = "10.96.0.1"


def run_inside(script: pathlib.Path, arguments: list[str], said: BinaryIO | None = None) -> int:
    """Runs the script as the first process of a new box, with --inside and the name of its control group before its
    arguments; returns its exit status. `said`: where its output goes, in place of ours."""
    group = f"ferry-cluster-{os.getpid()}-{threading.get_native_id()}"
    # setpriv: the box goes when we do, even when we are killed.
    command = ["setpriv", "--pdeathsig", "SIGKILL", "--", "unshare", "--mount", "--propagation", "private", "--net",
               "--ipc", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, str(script),
               "--inside", group]
    try:
        return subprocess.run([*command, *arguments], check=False, stdout=said,
                              stderr=subprocess.STDOUT if said else None).returncode
    finally:
        _remove_control_groups(group)


def furnish(group: str) -> None:
    """Inside: mounts what a node has, and makes its network and control groups."""
    _mount("--make-rshared", "/")  # between the box's own processes: the kubelet's mounts come to its containers
    for folder in ("/run", "/var/log"):
        _mount("-t", "tmpfs", "tmpfs", folder)
    _furnish_dev()
    for folder in ("/var/lib", "/etc", "/opt"):
        _overlay(pathlib.Path(folder))
    pathlib.Path("/lib/modules").mkdir(exist_ok=True)  # each node has it; a machine without modules of its own may not
    kubelet = pathlib.Path("/var/lib/kubelet")
    kubelet.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "tmpfs", str(kubelet))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (NODE_ADDRESS, SERVICE_ADDRESS):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    _make_control_groups(group)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _overlay(folder: pathlib.Path) -> None:
    """Files of the folder stay visible; files that are made in it belong to the box alone."""
    own = pathlib.Path("/run/own") / folder.name
    for name in ("upper", "work"):
        (own / name).mkdir(parents=True)
    _mount("-t", "overlay", "-o", f"lowerdir={folder},upperdir={own}/upper,workdir={own}/work", "overlay", str(folder))


def _furnish_dev() -> None:
    """A /dev with the machine's usual nodes, to which a test may add some."""
    new = pathlib.Path("/run/dev")
    new.mkdir()
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(new))
    for name in ("null", "zero", "full", "random", "urandom", "tty", "kmsg"):
        (new / name).touch()
        _mount("--bind", f"/dev/{name}", str(new / name))
    for name in ("fuse", "net/tun"):
        if pathlib.Path("/dev", name).exists():
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).touch()
            _mount("--bind", f"/dev/{name}", str(new / name))
    for name in ("pts", "shm"):
        (new / name).mkdir()
    _mount("-t", "devpts", "-o", "newinstance,ptmxmode=666", "devpts", str(new / "pts"))
    _mount("-t", "tmpfs", "tmpfs", str(new / "shm"))
    (new / "ptmx").symlink_to("pts/ptmx")
    for name, target in {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        (new / name).symlink_to(f"/proc/self/{target}")
    _mount("--rbind", str(new), "/dev")


def _control_group_folders(group: str) -> list[pathlib.Path]:
    if (CONTROL_GROUPS / "cgroup.controllers").exists():
        return [CONTROL_GROUPS / group]
    return [folder / group for folder in CONTROL_GROUPS.iterdir() if folder.is_dir() and not folder.is_symlink()]


def _make_control_groups(group: str) -> None:
    for folder in _control_group_folders(group):
        folder.mkdir()
        controllers = folder / "cgroup.controllers"
        if controllers.exists():
            enabled = " ".join(f"+{name}" for name in controllers.read_text().split())
            (folder / "cgroup.subtree_control").write_text(enabled)


def _remove_control_groups(group: str) -> None:
    deadline = time.monotonic() + 10
    left = [folder for folder in _control_group_folders(group) if folder.exists()]
    while left:
        for top in left:
            for folder, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    pass  # its last process is on its way out
        left = [folder for folder in left if folder.exists()]
        if left and time.monotonic() > deadline:
            print(f"run: these control groups are left: {', '.join(map(str, left))}", file=sys.stderr)
            return
        time.sleep(0.05 if left else 0)
