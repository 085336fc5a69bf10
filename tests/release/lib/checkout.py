# SPDX-License-Identifier: Apache-2.0
"""Checkouts of this tree for tests of the release, at commits of their own, and the release before this one."""

import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
COMMITTED = 1700000000
VERSION = re.findall(r"^project\(ferry VERSION (\S+)", (REPOSITORY / "CMakeLists.txt").read_text(), re.MULTILINE)[0]


def done(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)


def said(*words: object, **more: Any) -> str:
    ended = done(*words, **more)
    if ended.returncode != 0:
        raise AssertionError(f"{words}: status {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def commit(folder: pathlib.Path) -> None:
    when = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "test"), ("EMAIL", "test@localhost"), ("DATE", f"{COMMITTED} +0000"))}
    said("git", "-C", folder, "add", "--all")
    said("git", "-C", folder, "commit", "--quiet", "--message", "test", env={**os.environ, **when})


def clone(folder: pathlib.Path) -> pathlib.Path:
    """A checkout of the tree as it is now, at a commit of its own."""
    folder.mkdir(parents=True)
    for name in said("git", "-C", REPOSITORY, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (REPOSITORY / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name, follow_symlinks=False)
    said("git", "init", "--quiet", folder)
    commit(folder)
    return folder


def release_before(scratch: pathlib.Path, programs: pathlib.Path, registry: str) -> str:
    """Puts the release before this one into the registry, and returns its version. It is image and chart of the folder
    $FERRY_RELEASE_BEFORE; without that, these programs under a lower version."""
    files = scratch / "before"
    if os.environ.get("FERRY_RELEASE_BEFORE"):
        shutil.copytree(os.environ["FERRY_RELEASE_BEFORE"], files)
    else:
        files.mkdir()
        lower = "0.0.1"
        tree = clone(scratch / "lower")
        for name in ("CMakeLists.txt", "charts/ferry/Chart.yaml"):
            text = (tree / name).read_text()
            (tree / name).write_text(text.replace(VERSION, lower))
        said(tree / "images/build", "--bin", programs, "--compress", files / f"ferry-image_{lower}_amd64.tar")
        said(tree / "scripts/lib/chart-package", "--repository", f"{registry}/ferry", files)
    said(REPOSITORY / "scripts/lib/oci-release", files, registry, env={**os.environ, "SOURCE_DATE_EPOCH": str(COMMITTED)})
    (chart,) = files.glob("ferry-[0-9]*.tgz")
    return chart.stem.removeprefix("ferry-")
