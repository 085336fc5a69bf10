# SPDX-License-Identifier: Apache-2.0
"""A boot of a scenario: runs the machine, does the steps from outside, and says what was true."""

import dataclasses
import json
import pathlib
import re
import time
from typing import Any, TextIO

from .clock import NodeClock
from .devices import Topology
from .machine import Machine, MachineError
from .scenario import Boot, Step

POWER_OFF_S = 30  # from the end of the job to the end of QEMU, in the node's seconds
LIMIT = 5  # so many times the limit of silence ends a boot that never falls silent
# QEMU says so thousands of times of a vfio-user-pci whose IOMMU maps another device's memory.
IN_NO_MEMORY = re.compile(r"^qemu-system-x86_64: iommu map to non memory area [0-9a-f]+$")
PANIC = re.compile(r"^\[ *[0-9.]+\] Kernel panic - not syncing")  # with the kernel's own stamp: a guest's may be shown


@dataclasses.dataclass
class NamedStep:
    """A step that the job named, or one from outside."""

    name: str
    ok: bool
    seconds: float
    why: str = ""
    evidence: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Expectation:
    text: str
    ok: bool
    evidence: str


@dataclasses.dataclass
class BootResult:
    name: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    node_seconds: float = 0.0  # by the node's own clock
    seconds_to_job: float | None = None  # from the start of QEMU to the job's first line; None: it never started
    cpu_seconds_to_job: float | None = None
    ended: str = ""  # "power-off", "power cut" or, where the boot could not be run to its end, why
    ran: bool = False  # whether it ended as planned, so that the expectations mean something
    job_exit: int | None = None
    steps: list[NamedStep] = dataclasses.field(default_factory=list)
    outside: list[NamedStep] = dataclasses.field(default_factory=list)
    expectations: list[Expectation] = dataclasses.field(default_factory=list)

    @property
    def ok(self) -> bool:
        steps = (*self.steps, *self.outside)
        return self.ran and all(step.ok for step in steps) and all(one.ok for one in self.expectations)


class Console:
    """The console's lines, each with the seconds since power-on, kept for the expectations and written to a log."""

    def __init__(self, log: TextIO, echo: TextIO | None) -> None:
        self.lines: list[str] = []
        self._log, self._echo, self._start = log, echo, time.monotonic()

    def add(self, line: str) -> None:
        if IN_NO_MEMORY.search(line):
            return
        # Control sequences of firmware and terminals that move the cursor are no text.
        line = re.sub(r"\x1b(\[[0-9;?=]*[A-Za-z]|c)", "", line)
        self.lines.append(line)
        stamped = f"[{time.monotonic() - self._start:8.3f}] {line}\n"
        for out in (self._log, self._echo):
            if out:
                out.write(stamped)
                out.flush()


class Runner:
    """The state of one boot between its first and last line. Its limits are in the node's seconds (NodeClock).

    The node reads these seconds as well: they stand in the file that it is given, rounded down.
    """

    def __init__(self, boot: Boot, topology: Topology, console: Console, seconds_file: pathlib.Path) -> None:
        self._boot, self._topology, self._console = boot, topology, console
        self._seconds_file = seconds_file
        self._now = 0.0  # in the node's seconds, as all that is compared with it
        self._heard = 0.0  # when the node last showed that it goes on
        self._words = 0  # lines and records until then
        self._records = 0
        self._asked = 0.0  # since when the step from outside at hand waits
        self.result = BootResult(boot.name)
        self._open: NamedStep | None = None
        self._open_since = 0.0
        self._pending = list(boot.steps)
        self._line = 0  # first console line that the next step from outside may match
        self._since = time.monotonic()
        self._leaving = ""  # the device whose removal the step at work waits for
        self._at_work: NamedStep | None = None
        self._stop = ""
        self._setup_error = ""
        self._exited_at: float | None = None
        self._write_seconds()

    def run(self, command: list[str]) -> BootResult:
        with Machine(command, self._console.add, self._record, self._event) as self._machine:
            clock = NodeClock(self._machine.pid)
            while self._machine.pump(0.2):
                self._now = clock.read()
                self._write_seconds()
                self.result.cpu_seconds = max(self.result.cpu_seconds, self._machine.cpu_seconds())
                self._work()
                self._stop = self._stop or self._hung()
                if self._stop:
                    break
            self._machine.kill()
            while self._machine.pump(0):  # what was still under way when it ended
                pass
            self._work()
            self.result.seconds, self.result.node_seconds = self._machine.seconds(), self._now
            status = self._machine.exit_status()
        self._end(status)
        return self.result

    def _write_seconds(self) -> None:
        # Always as many bytes, so that the node never reads a part of them.
        with open(self._seconds_file, "r+" if self._seconds_file.exists() else "w", encoding="utf-8") as file:
            file.write(f"{int(self._now):8d}\n")

    def _hung(self) -> str:
        """Why the node cannot be expected to go on; empty: it can."""
        words = len(self._console.lines) + self._records
        if words != self._words:
            self._heard, self._words = self._now, words
        silence = self._boot.timeout_s
        if self._exited_at is not None and self._now > self._exited_at + POWER_OFF_S:
            return f"the node did not power off within {POWER_OFF_S} s of its job's end"
        if self._now > self._heard + silence:
            return f"the node made no progress for {silence:g} s: no line on its console, no record"
        if self._now > LIMIT * silence:
            return f"it was not done within {LIMIT * silence:g} s"
        return ""

    def _record(self, record: dict[str, Any]) -> None:
        self._records += 1
        match record:
            case {"record": "job"}:
                self.result.seconds_to_job = self._machine.seconds()
                self.result.cpu_seconds_to_job = self._machine.cpu_seconds()
            case {"record": "step", "name": str(name)}:
                self._close_step(True)
                self._open, self._open_since = NamedStep(name, False, 0.0), time.monotonic()
            case {"record": "ok"}:
                self._close_step(True)
            case {"record": "evidence", "key": str(key), "value": value}:
                self._open_step().evidence[key] = value
            case {"record": "fail", "why": str(why)}:
                self._open_step().why = why
                self._close_step(False)
            case {"record": "setup", "why": str(why)}:
                self._setup_error = why
            case {"record": "exit", "status": int(status)}:
                self._close_step(status == 0)
                self.result.job_exit = status
                self._exited_at = self._now
            case _:
                raise MachineError(f"the node wrote a record that nobody knows: {json.dumps(record)}")

    def _open_step(self) -> NamedStep:
        if self._open is None:
            self._open, self._open_since = NamedStep("(outside any step)", False, 0.0), time.monotonic()
        return self._open

    def _close_step(self, ok: bool) -> None:
        if self._open:
            self._open.ok, self._open.seconds = ok, time.monotonic() - self._open_since
            self.result.steps.append(self._open)
            self._open = None

    def _work(self) -> None:
        """Goes as far with the steps from outside as the console allows."""
        while self._pending and not self._at_work and not self._stop:
            step = self._pending[0]
            found = next((n for n in range(self._line, len(self._console.lines))
                          if step.after.search(self._console.lines[n])), None)
            if found is None:
                if self._now > self._asked + step.within_s:
                    self._fail(f'no line "{step.after.pattern}" came within {step.within_s:g} s')
                return
            self._line = found + 1
            self._begin(step, self._console.lines[found])
        if self._at_work and not self._stop and self._now > self._asked + self._pending[0].within_s:
            self._fail(f"{self._leaving} was not given up within {self._pending[0].within_s:g} s")

    def _begin(self, step: Step, line: str) -> None:
        self._since, self._asked = time.monotonic(), self._now
        self._at_work = NamedStep(step.name, False, 0.0, evidence={"after": line})
        self._console.add(f"(outside: {self._at_work.name})")
        if step.action == "power cut":
            self._finish()
            self._stop = "power cut"
        elif step.action == "unplug":
            # The whole slot goes, but QEMU does not say so of every further function (an HDA controller's is held).
            self._leaving = step.device if step.wait else ""
            self._machine.command("device_del", {"id": step.device}, self._answered)
        else:
            for member in self._topology.members(step.device):
                last = member == step.device
                self._machine.command("device_add", self._topology.properties(member),
                                      self._answered if last else self._check)

    def _answered(self, answer: dict[str, Any]) -> None:
        self._check(answer)
        if self._at_work and not self._leaving:
            self._finish()

    def _check(self, answer: dict[str, Any]) -> None:
        if "error" in answer:
            self._fail(f"QEMU refused: {answer['error'].get('desc')}")

    def _event(self, event: dict[str, Any]) -> None:
        device = event.get("data", {}).get("device")
        if event["event"] == "DEVICE_DELETED" and device:
            self._console.add(f"(outside: {device} is gone)")
            if device == self._leaving:
                self._finish()

    def _finish(self) -> None:
        assert self._at_work
        self._leaving = ""
        self._at_work.ok, self._at_work.seconds = True, time.monotonic() - self._since
        self.result.outside.append(self._at_work)
        self._at_work, self._since, self._asked = None, time.monotonic(), self._now
        self._pending.pop(0)

    def _fail(self, why: str) -> None:
        step = self._at_work or NamedStep(self._pending[0].name, False, 0.0)
        step.ok, step.why, step.seconds = False, why, time.monotonic() - self._since
        self.result.outside.append(step)
        self._at_work = None
        self._stop = why

    def _end(self, status: int | None) -> None:
        result = self.result
        panic = next((line for line in self._console.lines if PANIC.search(line)), None)
        self._close_step(self._stop == "power cut")
        failed_outside = any(not step.ok for step in result.outside)
        if self._stop == "power cut":
            result.ended, result.ran = self._stop, True
        elif panic and result.job_exit is None:
            result.ended = f"the node's kernel panicked: {panic}"
        elif self._setup_error:
            result.ended = f"the node could not be set up: {self._setup_error}"
        elif self._stop:
            result.ended, result.ran = self._stop, failed_outside
        elif result.job_exit is None:
            last = next((line for line in reversed(self._console.lines) if line.strip()), "(nothing)")
            result.ended = f"QEMU ended with {status} before the job did; last line: {last}"
        else:
            result.ended, result.ran = "power-off", True
        if self._at_work and not failed_outside:
            self._fail(f"{self._leaving} was not given up before the boot ended")
            self._pending.pop(0)
        for step in self._pending:
            if not failed_outside:
                result.outside.append(NamedStep(step.name, False, 0.0, f'no line "{step.after.pattern}" came'))


def check(boot: Boot, result: BootResult, console: list[str], state: pathlib.Path) -> None:
    """Adds to the result what the boot's expectations came to."""
    expect, found = boot.expect, result.expectations

    def say(text: str, ok: bool, evidence: str) -> None:
        found.append(Expectation(text, ok, evidence))

    if expect.job_exit is not None:
        say(f"the job exits with {expect.job_exit}", result.job_exit == expect.job_exit,
            "it did not end" if result.job_exit is None else f"it exited with {result.job_exit}")
    for pattern in expect.console_has:
        line = next((line for line in console if pattern.search(line)), None)
        say(f'the console has "{pattern.pattern}"', line is not None, line or "no such line")
    for pattern in expect.console_lacks:
        line = next((line for line in console if pattern.search(line)), None)
        say(f'the console lacks "{pattern.pattern}"', line is None, line or "no such line")
    for one in expect.state:
        try:
            text = (state / one.file).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            say(f"state file {one.file} {'is absent' if one.absent else 'is there'}",
                one.absent and isinstance(error, FileNotFoundError), str(error.strerror))
            continue
        if one.absent:
            say(f"state file {one.file} is absent", False, "it is there")
            continue
        expected = one.has or one.lacks
        assert expected
        match = expected.search(text)
        say(f'state file {one.file} {"has" if one.has else "lacks"} "{expected.pattern}"',
            (match is not None) == (one.has is not None), match.group(0) if match else "no such text")
    for name in expect.steps:
        ended = next((step for step in result.steps if step.name == name), None)
        say(f'the job reaches "{name}"', ended is not None and ended.ok,
            "it did not" if ended is None else ended.why or ("ok" if ended.ok else "it failed there"))
