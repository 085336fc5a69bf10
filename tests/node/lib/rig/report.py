# SPDX-License-Identifier: Apache-2.0
"""The result of a run, for programs (result.json) and for people."""

import dataclasses
import json
import pathlib
import re

from .boot import BootResult
from .scenario import Scenario


def write(file: pathlib.Path, scenario: Scenario, seed: int, subsystems: dict[str, str], boots: list[BootResult],
          seconds: float, why: str) -> None:
    """Writes result.json; why says why the scenario could not be run, and is empty where it could."""
    found = {"scenario": scenario.name, "title": scenario.title, "ok": not why and all(boot.ok for boot in boots),
             "could_not_run": why, "seconds": seconds, "seed": seed, "subsystems": subsystems,
             "boots": [dataclasses.asdict(boot) | {"ok": boot.ok} for boot in boots]}
    scratch = file.with_suffix(".json.new")
    scratch.write_text(json.dumps(_rounded(found), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    scratch.rename(file)


def table(boot: BootResult) -> str:
    """A few lines about one boot: what held, and all about what did not."""
    to_job = "" if boot.seconds_to_job is None else f", job after {boot.seconds_to_job:.1f} s"
    lines = [f"boot {boot.name}: {boot.ended} ({boot.seconds:.1f} s{to_job})"]
    for step in (*boot.outside, *boot.steps):
        lines.append(f"  {_mark(step.ok)} {step.name} ({step.seconds:.1f} s)")
        if step.why:
            lines.append(f"       {step.why}")
    for expectation in boot.expectations:
        lines.append(f"  {_mark(expectation.ok)} {expectation.text}")
        if not expectation.ok:
            lines.append(f"       {expectation.evidence}")
    return "\n".join(lines)


def last_words(console: list[str], state: pathlib.Path) -> str:
    """The end of the node's console, and of those of its guests: all that is left of a run on a machine that goes."""
    lines = [f"the console ends with:{_end_of(console, 80)}"]  # domain.sh's guest_look writes some 60
    for file in sorted(state.glob("*.console")):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            text = f"({error.strerror})"
        lines.append(f"{file.name} ends with:{_end_of(text.splitlines(), 5)}")
    return "\n".join(lines)


def _end_of(lines: list[str], count: int) -> str:
    shown = (re.sub(r"[^\t\x20-\x7e]", "?", line) for line in lines[-count:])  # what would move a cursor is no text
    return "".join(f"\n  | {line}" for line in shown)


def _mark(ok: bool) -> str:
    return "ok  " if ok else "FAIL"


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
