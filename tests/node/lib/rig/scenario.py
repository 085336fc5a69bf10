# SPDX-License-Identifier: Apache-2.0
"""A scenario file as plain values. README.md describes the format; whatever it does not describe is refused."""

import dataclasses
import difflib
import pathlib
import re
import tomllib
from typing import Any

from .devices import MODELS, Device, check_topology, parse_device


class ScenarioError(Exception):
    """A mistake in a scenario file; the message names file, key, reason and remedy."""


@dataclasses.dataclass(frozen=True)
class Step:
    """Something done to the node from outside once a line is seen on its console."""

    after: re.Pattern[str]
    action: str  # "unplug", "plug" or "power cut"
    device: str  # empty for a power cut
    within_s: float  # for the line to come, counted from the step before, and again for the device to be gone
    wait: bool  # whether an unplug waits until the device is really gone

    @property
    def name(self) -> str:
        return f"{self.action} {self.device}".strip()


@dataclasses.dataclass(frozen=True)
class StateCheck:
    """A requirement on a file in the state folder after a boot. Exactly one of the three is set."""

    file: str
    has: re.Pattern[str] | None
    lacks: re.Pattern[str] | None
    absent: bool


@dataclasses.dataclass(frozen=True)
class Expect:
    job_exit: int | None  # None: the boot must end before the job does
    console_has: tuple[re.Pattern[str], ...]
    console_lacks: tuple[re.Pattern[str], ...]
    state: tuple[StateCheck, ...]
    steps: tuple[str, ...]  # named steps of the job that must have been reached and be ok


@dataclasses.dataclass(frozen=True)
class Boot:
    name: str
    job: str  # shell text
    iommu: str  # "on", "off" (there, but the kernel's command line says not to use it) or "absent"
    kernel_args: tuple[str, ...]
    timeout_s: float
    steps: tuple[Step, ...]
    expect: Expect


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    memory_mib: int
    kubernetes: bool  # whether it has the folder of $FERRY_KUBERNETES
    packages: bool  # whether it has the Debian packages beside the executables
    alone: bool  # whether it measures time, so that no other may run beside it
    modules: tuple[str, ...]  # kernel modules loaded before the job besides those that the devices' drivers need
    devices: dict[str, Device]
    boots: tuple[Boot, ...]


class Table:
    """A TOML table that knows its file and place and notices keys that nobody took."""

    def __init__(self, file: pathlib.Path, place: str, values: Any) -> None:
        self.file, self.place, self._values = file, place, values
        self._known: list[str] = []
        if not isinstance(values, dict):
            raise self.error("", "must be a table")

    def error(self, key: str, why: str) -> ScenarioError:
        place = ".".join(part for part in (self.place, key) if part)
        return ScenarioError(f"{self.file}: {place}: {why}" if place else f"{self.file}: {why}")

    def take(self, key: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        self._known.append(key)
        if key not in self._values:
            if default is ...:
                raise self.error(key, "is missing")
            return default
        value = self._values[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list",
                     dict: "a table"}
            raise self.error(key, f"must be {' or '.join(names[one] for one in kinds)}, not {value!r}")
        return value

    def take_texts(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list, [])
        for value in values:
            if not isinstance(value, str):
                raise self.error(key, f"must be a list of texts; {value!r} is none")
        return tuple(values)

    def take_choice(self, key: str, choices: list[str], default: Any = ...) -> str:
        value: str = self.take(key, str, default)
        if value not in choices and (value or default is ...):
            raise self.error(key, f'"{value}" is not one of {", ".join(choices)}{suggestion(value, choices)}')
        return value

    def take_seconds(self, key: str, default: float) -> float:
        value = self.take(key, (int, float), default)
        if value <= 0:
            raise self.error(key, f"must be more than 0 seconds, not {value}")
        return float(value)

    def take_pattern(self, key: str, default: Any = ...) -> re.Pattern[str] | None:
        text = self.take(key, str, default)
        return None if text is None else self._pattern(key, text)

    def take_patterns(self, key: str) -> tuple[re.Pattern[str], ...]:
        return tuple(self._pattern(key, text) for text in self.take_texts(key))

    def take_tables(self, key: str) -> list["Table"]:
        rows = self.take(key, list, [])
        return [Table(self.file, f"{self.place}.{key}[{n}]".lstrip("."), row) for n, row in enumerate(rows)]

    def done(self) -> None:
        for key in self._values:
            if key not in self._known:
                raise self.error(key, f"there is no such key here{suggestion(key, self._known)}")

    def _pattern(self, key: str, text: str) -> re.Pattern[str]:
        try:
            return re.compile(text)
        except re.error as error:
            raise self.error(key, f'"{text}" is not a regular expression: {error}') from None


def suggestion(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, 1)
    return f'; did you mean "{close[0]}"?' if close else f"; known: {', '.join(known)}"


def _load(file: pathlib.Path) -> Table:
    try:
        return Table(file, "", tomllib.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ScenarioError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{file}: is not UTF-8 text: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{file}: is not TOML: {error}") from None


def _devices(table: Table, found: dict[str, Device]) -> None:
    for name, values in table.take("devices", dict, {}).items():
        row = Table(table.file, f"devices.{name}", values)
        if name in found:
            raise row.error("", "this device is already described in an included file")
        found[name] = parse_device(name, row)
        row.done()


def _step(row: Table, devices: dict[str, Device], timeout_s: float) -> Step:
    after = row.take_pattern("after")
    words = row.take("do", str).split()
    within_s = row.take_seconds("within_s", timeout_s)
    wait = row.take("wait", bool, True)
    row.done()
    match words:
        case ["power", "cut"]:
            return Step(after, "power cut", "", within_s, wait)
        case ["plug" | "unplug" as action, device]:
            if device not in devices:
                raise row.error("do", f'there is no device "{device}"{suggestion(device, list(devices))}')
            if devices[device].behind or devices[device].function_of:
                raise row.error("do", f"{device} has no port of its own; only such a device can be plugged")
            slot = [one.model for one in devices.values() if device in (one.name, one.function_of)]
            fixed = [model for model in slot if not MODELS[model]]
            if fixed:
                raise row.error("do", f"QEMU cannot {action} a {fixed[0]}; it can a secondary-vga and a bochs-display")
            return Step(after, action, device, within_s, wait)
    raise row.error("do", f'"{" ".join(words)}" is not "plug DEVICE", "unplug DEVICE" or "power cut"')


def _state_check(row: Table) -> StateCheck:
    file = row.take("file", str)
    has, lacks = row.take_pattern("has", None), row.take_pattern("lacks", None)
    check = StateCheck(file, has, lacks, row.take("absent", bool, False))
    row.done()
    if file.startswith("/") or ".." in pathlib.PurePath(file).parts:
        raise row.error("file", f'"{file}" must be below the state folder')
    if (check.has is not None) + (check.lacks is not None) + check.absent != 1:
        raise row.error("", 'give exactly one of "has", "lacks" and "absent"')
    return check


def _expect(row: Table, cut: bool) -> Expect:
    job_exit = None if cut else row.take("job_exit", int, 0)
    expect = Expect(job_exit, row.take_patterns("console_has"), row.take_patterns("console_lacks"),
                    tuple(_state_check(check) for check in row.take_tables("state")), row.take_texts("steps"))
    row.done()
    return expect


def _boot(row: Table, number: int, folder: pathlib.Path, devices: dict[str, Device]) -> Boot:
    name = row.take("name", str, f"boot-{number}")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise row.error("name", f'"{name}" may hold letters, digits, ".", "_" and "-" only')
    job = row.take("job", str, None)
    job_file = row.take("job_file", str, None)
    if (job is None) == (job_file is None):
        raise row.error("", 'give either "job" (shell text) or "job_file" (a file beside the scenario)')
    if job is None:
        try:
            job = (folder / job_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise row.error("job_file", f"cannot read {folder / job_file}: {error}") from None
    iommu = row.take_choice("iommu", ["on", "off", "absent"], "on")
    kernel_args = row.take_texts("kernel_args")
    if row.take("systemd", bool, False):
        kernel_args += ("node.systemd",)
    timeout_s = row.take_seconds("timeout_s", 300)
    steps = tuple(_step(step, devices, timeout_s) for step in row.take_tables("steps"))
    cuts = [n for n, step in enumerate(steps) if step.action == "power cut"]
    if cuts and cuts != [len(steps) - 1]:
        raise row.error("steps", "a power cut must be the last step of its boot")
    expect = _expect(Table(row.file, f"{row.place}.expect", row.take("expect", dict, {})), bool(cuts))
    row.done()
    return Boot(name, job, iommu, kernel_args, timeout_s, steps, expect)


def load(file: pathlib.Path) -> Scenario:
    """Reads and checks a scenario file with all that it includes; raises ScenarioError on the first mistake."""
    table = _load(file)
    title = table.take("title", str)
    devices: dict[str, Device] = {}
    modules: list[str] = []
    for included in table.take_texts("include"):
        part = _load(file.parent / included)
        _devices(part, devices)
        modules += part.take_texts("modules")
        part.done()
    _devices(table, devices)
    modules += table.take_texts("modules")
    check_topology(file, devices)
    memory_mib = table.take("memory_mib", int, 3072)
    if not 512 <= memory_mib <= 65536:
        raise table.error("memory_mib", f"must be 512 to 65536, not {memory_mib}")
    kubernetes = table.take("kubernetes", bool, False)
    packages = table.take("packages", bool, False)
    alone = table.take("alone", bool, False)
    boots = [_boot(row, number, file.parent, devices) for number, row in enumerate(table.take_tables("boots"), 1)]
    if not boots:
        raise table.error("boots", "a scenario needs at least one [[boots]]")
    names = [boot.name for boot in boots]
    for name in names:
        if names.count(name) > 1:
            raise table.error("boots", f'two boots are named "{name}"')
    table.done()
    return Scenario(file.stem, title, memory_mib, kubernetes, packages, alone, tuple(dict.fromkeys(modules)), devices, tuple(boots))
