# SPDX-License-Identifier: Apache-2.0
"""The parts a virtual node is made of, kept in the cache under a key of all that goes into them.

A part's key covers its recipe, the files and package versions it is made from and the keys of the parts it needs,
so a change of any of them makes a new one and an unchanged one is never made twice.
"""

import dataclasses
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter

NODE = pathlib.Path(__file__).resolve().parents[2]
RECIPES = NODE / "lib/parts"


class PartError(Exception):
    """A part that cannot be made; the message says which, why and what to do."""


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    needs: tuple[str, ...]
    env: dict[str, str]  # what the recipe is given besides OUT; paths of needed parts among them
    key: str
    path: pathlib.Path

    def made(self) -> bool:
        return self.path.is_dir()


def cache_folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "ferry" / "node"


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Name -> version of those that are installed on this machine; the others are absent."""
    command = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\n", *packages]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return dict(line.split()[1:] for line in lines if line.startswith("installed "))


def kernel_release() -> tuple[str, str]:
    """The release ("6.1.0-56-amd64") and package version of the newest generic headers installed."""
    versions = installed_versions(["linux-headers-6.1.0-*-amd64"])
    if not versions:
        raise PartError("the kernel's headers are not installed; hint: apt-get install linux-headers-amd64")
    package = max(versions, key=lambda name: int(name.split("-")[3]))
    return package.removeprefix("linux-headers-"), versions[package]


def package_names(file: pathlib.Path) -> list[str]:
    return [name for line in file.read_text().splitlines() for name in line.split("#")[0].split()]


def files_below(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


class PartTable:
    """All parts with their keys, for this tree and this machine."""

    def __init__(self, small_guest: bool | None = None) -> None:
        """Guests boot the small kernel or Debian's; by default what FERRY_GUEST_KERNEL says."""
        if small_guest is None:
            small_guest = os.environ.get("FERRY_GUEST_KERNEL") != "debian"
        self._parts: dict[str, Part] = {}
        release, package = kernel_release()
        packages = NODE / "lib/packages"
        versions = installed_versions([*package_names(packages), "linux-source-6.1", "busybox-static"])
        source = versions.pop("linux-source-6.1", "")
        busybox = {"BUSYBOX": "/bin/busybox"}
        busybox_version = versions.pop("busybox-static", "")

        self._add("kernel", env={"KVER": release, "KPKG": package})
        self._add("root", env={"PACKAGES": str(packages)}, files=[packages],
                  words=[f"{name} {version}" for name, version in sorted(versions.items())])
        self._add("modules", env={"KVER": release, "SOURCES": str(NODE / "kmod")}, files=files_below(NODE / "kmod"),
                  words=[package])
        init = NODE / "lib/init/initramfs"
        self._add("initramfs", needs=["kernel"], words=[busybox_version], files=[init],
                  env=busybox | {"BOOT": str(self["kernel"].path / "boot"), "INIT": str(init)})
        if not small_guest:
            guest_needs, guest_kernel = "kernel", "vmlinux"
        else:
            guest_needs, guest_kernel = "guest-kernel", "kernel"
            config = NODE / "guest/kernel.config"
            self._add("guest-kernel", env={"CONFIG": str(config)}, files=[config], words=[source])
        init = NODE / "guest/init"
        self._add("guest", needs=[guest_needs], words=[busybox_version], files=[init],
                  env=busybox | {"KERNEL": str(self[guest_needs].path / guest_kernel), "INIT": str(init)})

    def __getitem__(self, name: str) -> Part:
        return self._parts[name]

    def names(self) -> list[str]:
        return list(self._parts)

    def _add(self, name: str, *, env: dict[str, str], needs: Iterable[str] = (), files: Iterable[pathlib.Path] = (),
             words: Iterable[str] = ()) -> None:
        digest = hashlib.sha256((RECIPES / name).read_bytes())
        for file in files:
            digest.update(f"\0{file.relative_to(NODE)}\0".encode() + file.read_bytes())
        # A path in env may differ between two clones of the same tree, so only plain words count.
        plain = [f"{key}={value}" for key, value in env.items() if not value.startswith("/")]
        for word in (*plain, *words, *(self[need].key for need in needs)):
            digest.update(f"\0{word}".encode())
        key = digest.hexdigest()[:16]
        self._parts[name] = Part(name, tuple(needs), env, key, cache_folder() / f"{name}-{key}")

    def with_needs(self, names: Iterable[str]) -> list[Part]:
        chosen: dict[str, Part] = {}

        def take(name: str) -> None:
            for need in self[name].needs:
                take(need)
            chosen[name] = self[name]

        for name in names:
            take(name)
        return list(chosen.values())


def make(part: Part) -> float | None:
    """Makes the part; seconds it took, or None where the cache had it. Two runs at once make it once."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f".{part.name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if part.made():
            return None
        start = time.monotonic()
        scratch = cache / f".{part.path.name}.new"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        log = cache / f"{part.name}.log"
        with open(log, "w", encoding="utf-8") as out:
            # A descriptor inherited by the recipe would keep the lock after us.
            done = subprocess.run([RECIPES / part.name], env=os.environ | part.env | {"OUT": str(scratch)},
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, close_fds=True)
        if done.returncode != 0:
            shutil.rmtree(scratch, ignore_errors=True)
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise PartError(f"part {part.name}: its recipe ended with {done.returncode}; the end of {log}:\n{tail}")
        scratch.rename(part.path)
        return time.monotonic() - start


def make_all(parts: list[Part], report: Callable[[Part, float | None], None], jobs: int = 2) -> None:
    """Makes parts in the order of their needs, independent ones side by side; raises the first failure at the end."""
    chosen = {part.name: part for part in parts}
    order = TopologicalSorter({part.name: [need for need in part.needs if need in chosen] for part in parts})
    order.prepare()
    failure: PartError | None = None
    with ThreadPoolExecutor(jobs) as pool:
        running = {}
        while order.is_active():
            for name in order.get_ready():
                running[pool.submit(make, chosen[name])] = name
            if not running:
                break  # what is left needs a part that failed
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(future)
                try:
                    report(chosen[name], future.result())
                    order.done(name)
                except PartError as error:
                    failure = failure or error
    if failure:
        raise failure


def outdated() -> list[pathlib.Path]:
    """Parts in the cache that this tree no longer uses (another clone may), and what killed runs left."""
    tables = [PartTable(small_guest) for small_guest in (True, False)]
    current = {table[name].path for table in tables for name in table.names()}
    known = tuple(f"{recipe.name}-" for recipe in RECIPES.iterdir())
    folders = [path for path in cache_folder().iterdir() if path.is_dir() and path.name.lstrip(".").startswith(known)]
    return sorted(set(folders) - current)
