# SPDX-License-Identifier: Apache-2.0
"""The parts a virtual node is made of, kept in the cache.

A part's key covers its recipe, the files of this tree that the recipe reads, the versions that the recipe takes from
Debian's archive, and the keys of the parts it needs. So a change of any of them makes a new part, and an unchanged part is
never made twice. The packages of this machine are in no key.

Only prepare asks the archive. It ends with a file in the cache that lists the parts it made, under a key of this tree's
recipes and files alone. run takes the parts from that list and computes no key of a part.
"""

import dataclasses
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter

NODE = pathlib.Path(__file__).resolve().parents[2]
RECIPES = NODE / "lib/parts"
ARCHIVE = NODE / "lib/archive"
NEWER = "-newer"  # ends the names of the parts that the newer kernel has of its own


class PartError(Exception):
    """A part that cannot be made; the message says which, why and what to do."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The ingredients of a part that this tree names."""

    name: str
    cold_s: float  # what it takes on two quiet cores
    needs: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()  # names in the output of "archive versions"
    files: tuple[pathlib.Path, ...] = ()
    env: dict[str, str] = dataclasses.field(default_factory=dict)  # paths for the recipe; {NAME} is the folder of that part
    usual: bool = True  # prepare makes it without being asked, and every mirror has its packages

    @property
    def script(self) -> pathlib.Path:
        return RECIPES / self.name.removesuffix(NEWER)

    def digest(self) -> "hashlib._Hash":
        digest = hashlib.sha256(self.script.read_bytes())
        for file in self.files:
            digest.update(f"\0{file.relative_to(NODE)}\0".encode() + file.read_bytes())
        return digest


@dataclasses.dataclass(frozen=True)
class Part:
    recipe: Recipe
    env: dict[str, str]  # for the recipe, besides OUT
    path: pathlib.Path

    @property
    def name(self) -> str:
        return self.recipe.name

    def made(self) -> bool:
        return self.path.is_dir()


@dataclasses.dataclass(frozen=True)
class Cost:
    wall_s: float
    cpu_s: float


def recipes() -> list[Recipe]:
    """In the order of their needs."""
    packages, kmod, config = NODE / "lib/packages", NODE / "kmod", NODE / "guest/kernel.config"
    node_init, guest_init = NODE / "lib/init/initramfs", NODE / "guest/init"
    out = [
        Recipe("guest-kernel", 240, versions=("KPKG",), files=(config,), env={"CONFIG": str(config)}),
        Recipe("root", 35, versions=("ROOT",), files=(packages,), env={"PACKAGES": str(packages)}),
        Recipe("busybox", 2, versions=("BUSYBOX",)),
        Recipe("guest", 1, needs=("busybox", "guest-kernel"), files=(guest_init,),
               env={"BUSYBOX": "{busybox}/busybox", "KERNEL": "{guest-kernel}/kernel", "INIT": str(guest_init)}),
    ]
    for suffix, prefix in (("", ""), (NEWER, "NEWER_")):
        kernel = (f"{prefix}KVER", f"{prefix}KPKG")
        out += [
            Recipe(f"kernel{suffix}", 15, versions=kernel, usual=not suffix),
            Recipe(f"modules{suffix}", 15, versions=(*kernel, f"{prefix}KBUILD"), files=files_below(kmod), env={"SOURCES": str(kmod)},
                   usual=not suffix),
            Recipe(f"initramfs{suffix}", 1, needs=("busybox", f"kernel{suffix}"), files=(node_init,),
                   env={"BUSYBOX": "{busybox}/busybox", "BOOT": f"{{kernel{suffix}}}/boot", "INIT": str(node_init)}, usual=not suffix),
        ]
    return out


def files_below(folder: pathlib.Path) -> tuple[pathlib.Path, ...]:
    return tuple(sorted(path for path in folder.rglob("*") if path.is_file()))


def cache_folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "ferry" / "node"


def _list_file() -> pathlib.Path:
    """The list of the parts that were made last for this tree."""
    digest = hashlib.sha256()
    for recipe in recipes():
        digest.update(recipe.digest().digest())
    return cache_folder() / f"made-{digest.hexdigest()[:16]}"


def ready() -> dict[str, pathlib.Path]:
    """The folder of each part, as prepare made them last for this tree."""
    hint = f"hint: run {os.environ.get('FERRY_COMMAND') or NODE / 'prepare'}"
    try:
        lines = _list_file().read_text().splitlines()
    except FileNotFoundError:
        raise PartError(f"the parts of the node are not made yet; {hint}") from None
    folders = {name: cache_folder() / folder for name, folder in map(str.split, lines)}
    missing = [name for name, folder in folders.items() if not folder.is_dir()]
    if missing:
        raise PartError(f"these parts of the node are not made yet: {', '.join(missing)}; {hint}")
    return folders


def hand_over(parts: list[Part]) -> None:
    """Makes these the parts that ready() finds."""
    file = _list_file()
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    scratch.write_text("".join(f"{part.name} {part.path.name}\n" for part in parts))
    scratch.rename(file)


def fetch_lists() -> str:
    """Brings the lists of Debian's archive up to date; the reason where the mirror cannot be reached, else nothing."""
    done = subprocess.run([ARCHIVE, "update"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("E: ")]
    return "" if done.returncode == 0 else (lines or done.stderr.splitlines() or ["no reason given"])[0]


def planned() -> list[Part]:
    """All parts with their keys, by the lists of the archive as they are."""
    lines = (line.partition("#")[0] for line in (NODE / "lib/packages").read_text().splitlines())
    packages = [word for line in lines for word in line.split()]
    done = subprocess.run([ARCHIVE, "versions", *packages], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PartError(f"the lists of Debian's archive cannot be read: {done.stderr.strip()}")
    versions = dict(line.split("=", 1) for line in done.stdout.splitlines())
    keys: dict[str, str] = {}
    folders: dict[str, str] = {}
    parts = []
    for recipe in recipes():
        if not (versions.keys() >= set(recipe.versions) and keys.keys() >= set(recipe.needs)):
            continue  # the mirror has no backports
        digest = recipe.digest()
        chosen = {name.removeprefix("NEWER_"): versions[name] for name in recipe.versions}
        for word in (*(f"{name}={value}" for name, value in chosen.items()), *(keys[need] for need in recipe.needs)):
            digest.update(f"\0{word}".encode())
        keys[recipe.name] = digest.hexdigest()[:16]
        path = cache_folder() / f"{recipe.name}-{keys[recipe.name]}"
        folders[recipe.name] = str(path)
        paths = {name: value.format(**folders) for name, value in recipe.env.items()}
        parts.append(Part(recipe, {"ARCHIVE": str(ARCHIVE)} | chosen | paths, path))
    return parts


def missing_seconds() -> float:
    """About how long it takes on two quiet cores to make what the cache lacks, as far as that is known without network."""
    try:
        ready()
        return 0
    except PartError:
        pass
    try:
        parts = planned()
    except PartError:
        return sum(recipe.cold_s for recipe in recipes() if recipe.usual)
    return sum(part.recipe.cold_s for part in parts if part.recipe.usual and not part.made())


def with_needs(parts: list[Part], names: Iterable[str]) -> list[Part]:
    by_name = {part.name: part for part in parts}
    chosen: dict[str, Part] = {}

    def take(name: str) -> None:
        if name not in by_name:
            raise PartError(f"part {name}: the mirror has no backports of Debian 12")
        for need in by_name[name].recipe.needs:
            take(need)
        chosen[name] = by_name[name]

    for name in names:
        take(name)
    return list(chosen.values())


class _locked:
    """Lets in one program at a time, by a file in the cache."""

    def __init__(self, name: str) -> None:
        cache_folder().mkdir(parents=True, exist_ok=True)
        self._file = open(cache_folder() / f".{name}.lock", "w", encoding="utf-8")

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def make(part: Part) -> Cost | None:
    """Makes the part; what it cost, or None where the cache had it. Two runs at once make it once."""
    cache = cache_folder()
    with _locked(part.name):
        if part.made():
            return None
        start = time.monotonic()
        scratch = cache / f".{part.path.name}.new"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        log = cache / f"{part.name}.log"
        with open(log, "w", encoding="utf-8") as out:
            # A descriptor inherited by the recipe would keep the lock after us.
            recipe = subprocess.Popen([part.recipe.script], env=os.environ | part.env | {"OUT": str(scratch)},
                                      stdin=subprocess.DEVNULL, stdout=out, stderr=out, close_fds=True)
            _, status, usage = os.wait4(recipe.pid, 0)
            recipe.returncode = os.waitstatus_to_exitcode(status)
        if recipe.returncode != 0:
            shutil.rmtree(scratch, ignore_errors=True)
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise PartError(f"part {part.name}: its recipe ended with {recipe.returncode}; the end of {log}:\n{tail}")
        scratch.rename(part.path)
        return Cost(time.monotonic() - start, usage.ru_utime + usage.ru_stime)


def make_all(parts: list[Part], report: Callable[[Part, Cost | None], None],
             under_way: Callable[[dict[str, float]], None] = lambda _: None, jobs: int = 2) -> None:
    """Makes parts in the order of their needs, independent ones side by side; raises the first failure at the end.

    under_way is called twice a second with the parts that are being made and the seconds since each began.
    """
    chosen = {part.name: part for part in parts}
    order = TopologicalSorter({part.name: [need for need in part.recipe.needs if need in chosen] for part in parts})
    order.prepare()
    failure: PartError | None = None
    begun: dict[str, float] = {}
    lock = threading.Lock()

    def work(part: Part) -> Cost | None:
        with lock:
            begun[part.name] = time.monotonic()
        try:
            return make(part)
        finally:
            with lock:
                del begun[part.name]

    with ThreadPoolExecutor(jobs) as pool:
        running: dict[Future[Cost | None], str] = {}
        while order.is_active():
            for name in order.get_ready():
                running[pool.submit(work, chosen[name])] = name
            if not running:
                break  # what is left needs a part that failed
            for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                name = running.pop(future)
                try:
                    report(chosen[name], future.result())
                    order.done(name)
                except PartError as error:
                    failure = failure or error
            with lock:
                now = time.monotonic()
                seconds = {name: now - since for name, since in begun.items()}
            under_way(seconds)
    if failure:
        raise failure


def outdated() -> list[pathlib.Path]:
    """The parts in the cache that this tree does not use (another clone may), and the remains of killed runs."""
    current = {*ready().values(), _list_file()}
    known = tuple(f"{recipe.name}-" for recipe in RECIPES.iterdir()) + ("made-",)
    found = {path for path in cache_folder().iterdir() if path.name.lstrip(".").startswith(known)}
    return sorted(found - current)
