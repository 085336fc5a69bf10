# SPDX-License-Identifier: Apache-2.0
"""The place where mutants are built and tested: a copy of the tree in the cache, with a build folder of its own.

The build has the flags of the release preset, so that the compiler cache serves it with objects of the ordinary build.
CMake's file API says which test executable has which source, and which libraries each executable links. Therefore no
mutant names a path or an executable.
"""
import collections.abc
import contextlib
import ctypes
import dataclasses
import fcntl
import filecmp
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "ferry"
TREE = CACHE / "mutants" / "tree"
BUILD = TREE / "build"
TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)


def tree_files(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns], cwd=ROOT,
                            capture_output=True, check=True).stdout.decode().split("\0")
    return sorted({name for name in listed if name and (ROOT / name).is_file()})


def product_sources() -> dict[str, str]:
    """Each source file of the product with its text."""
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in tree_files("*.cpp", "*.h")
            if not name.startswith("tests/")}


def written_tests() -> dict[str, str]:
    """Each test as SUITE.NAME, with the source file that has it."""
    return {f"{suite}.{name}": file for file in tree_files("tests/*.cpp")
            for suite, name in TEST.findall((ROOT / file).read_text(encoding="utf-8"))}


def matching_tests(pattern: str, written: dict[str, str]) -> list[str]:
    """The written tests that a pattern of the form [INSTANCE/]SUITE.NAME[/PARAMETER] names."""
    suite, _, name = pattern.partition(".")
    return fnmatch.filter(written, suite.split("/")[-1] + "." + name.split("/")[0])


@dataclasses.dataclass(frozen=True)
class Target:
    """A target of CMake's: its own source files, the program it makes, and all targets that it needs."""
    name: str
    sources: frozenset[str]
    program: pathlib.Path
    needs: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Tested:
    """The end of a test program. `failed` has the names of its failed tests."""
    status: int
    failed: list[str]
    output: str
    seconds: float

    def outcome(self) -> str:
        if self.failed:
            return "caught by " + self.failed[0]
        return "caught: the test hangs" if self.status == 124 else f"caught: the test ends with {self.status}"


class Workbench:
    """Holds a lock while it is open: all runs share the copy of the tree."""

    def __enter__(self) -> "Workbench":
        adopt_orphans()
        TREE.mkdir(parents=True, exist_ok=True)
        self._lock = open(TREE.parent / "lock", "w", encoding="utf-8")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        copy_tree()
        (BUILD / ".cmake/api/v1/query").mkdir(parents=True, exist_ok=True)
        (BUILD / ".cmake/api/v1/query/codemodel-v2").touch()
        made, presets = BUILD / "build.ninja", TREE / "CMakePresets.json"
        fresh = [] if made.exists() and made.stat().st_mtime > presets.stat().st_mtime else ["--fresh"]
        configured = run(["cmake", *fresh, "--preset", "release", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"])
        if configured.returncode:
            sys.exit(configured.stdout + configured.stderr)
        self.targets = read_targets()
        return self

    def __exit__(self, *_: object) -> None:
        copy_tree()
        self._lock.close()

    def build(self, target: Target, seconds: float = 3600, mutated: bool = False) -> str:
        """Builds it; the errors, or nothing. A mutant may leave a variable unused, so that warnings are no errors in it."""
        prefix = {"CCACHE_PREFIX": str(HERE / "without-werror")} if mutated else {}
        command = ["cmake", "--build", str(BUILD), "--parallel", str(os.cpu_count()), "--target", target.name]
        built = run(command, seconds, **prefix)
        if built.returncode == 0:
            return ""
        lines = built.stdout.splitlines() + built.stderr.splitlines()
        return "; ".join([line for line in lines if re.search(r"\berror: |undefined reference", line)][:2] or lines[-2:])

    def baseline(self, target: Target, tests: list[str]) -> Tested:
        """Builds and tests it without a mutant. Ends this program where that fails: no mutant would say anything."""
        if errors := self.build(target):
            sys.exit(f"{target.name} does not compile without a mutant: {errors}")
        tested = self.test(target, tests, 1800, "--gtest_brief=1")
        if tested.status:
            # On a busy machine a test may miss a deadline: the failed ones have a second try.
            print(f"{target.name} without a mutant: a second try, after {' '.join(tested.failed) or tested.status}")
            again = self.test(target, tested.failed or tests, 1800, "--gtest_brief=1")
            if again.status:
                sys.exit(f"{again.output[-4000:]}\n{target.name} fails without a mutant")
        return dataclasses.replace(tested, status=0)

    def test(self, target: Target, tests: list[str], seconds: float, how: str = "--gtest_fail_fast") -> Tested:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="m", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as scratch:
            ended = run([str(target.program), how, "--gtest_filter=" + ":".join(tests)], seconds, FERRY_TEST_SCRATCH=scratch)
            end_orphans()
        failed = re.findall(r"^\[  FAILED  \] ([^\s,]+)", ended.stdout, re.MULTILINE)
        return Tested(ended.returncode, list(dict.fromkeys(failed)), ended.stdout + ended.stderr, time.monotonic() - begin)

    @contextlib.contextmanager
    def mutated(self, file: str, text: str) -> collections.abc.Iterator[None]:
        """A source file has another text meanwhile."""
        (TREE / file).write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            restore(file)


def patience(seconds: float) -> float:
    """How long tests may take that take so long without a mutant. Then they hang, and the mutant is caught."""
    return max(30, 4 * seconds)


def adopt_orphans() -> None:
    """A process that outlives a killed test becomes a child of this one: a writer that hangs is in a session of its own."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def end_orphans() -> None:
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := children.read_text(encoding="ascii").split():
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)
            os.waitpid(int(pid), 0)


def run(command: list[str], seconds: float = 600, **variables: str) -> subprocess.CompletedProcess[str]:
    ccache = {"CCACHE_DIR": str(CACHE / "ccache"), "CCACHE_BASEDIR": str(TREE), "CCACHE_NOHASHDIR": "1",
              "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime"}
    try:
        return subprocess.run(command, cwd=TREE, env=os.environ | ccache | variables, timeout=max(seconds, 0.1),
                              capture_output=True, text=True, errors="replace", check=False)
    except subprocess.TimeoutExpired:
        end_orphans()
        return subprocess.CompletedProcess(command, 124, "", f"still running after {seconds:.0f} s")


def copy_tree() -> None:
    """Makes the copy equal to this tree and touches only the files that differ: the rest needs no build."""
    names = set(tree_files())
    for folder, folders, files in os.walk(TREE):
        if pathlib.Path(folder) == TREE:
            folders[:] = [name for name in folders if name != BUILD.name]
        for path in [pathlib.Path(folder) / name for name in files]:
            if str(path.relative_to(TREE)) not in names:
                path.unlink()
    for name in names:
        restore(name)


def restore(name: str) -> None:
    target = TREE / name
    if target.is_file() and filecmp.cmp(ROOT / name, target, shallow=False):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / name, target)  # gets the present time, so that it is built again


def read_targets() -> dict[str, Target]:
    """Reads the answer of CMake's file API, cmake-file-api(7)."""
    reply = BUILD / ".cmake/api/v1/reply"
    read = lambda name: json.loads((reply / name).read_text(encoding="utf-8"))
    index = read(max(path.name for path in reply.glob("index-*.json")))
    listed = read(index["reply"]["codemodel-v2"]["jsonFile"])["configurations"][0]["targets"]
    known = {entry["id"]: read(entry["jsonFile"]) for entry in listed}

    def needs(key: str, seen: set[str]) -> set[str]:
        for entry in known[key].get("dependencies", []):
            if entry["id"] not in seen:
                seen.add(entry["id"])
                needs(entry["id"], seen)
        return seen

    return {target["name"]: Target(target["name"], frozenset(source["path"] for source in target.get("sources", [])),
                                   BUILD / target.get("artifacts", [{"path": ""}])[0]["path"],
                                   frozenset(known[other]["name"] for other in needs(key, set())))
            for key, target in known.items()}
