# SPDX-License-Identifier: Apache-2.0
"""Programs that a test starts, ends and starts again, each with a log."""

import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any


class Failure(Exception):
    """An awaited event did not come; the message names it and the log."""


def wait_until(what: str, condition: Callable[[], Any], seconds: float) -> Any:
    """The condition's first value that is true; Failure when none comes in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Failure(f"not within {seconds:g} s: {what}")
        time.sleep(0.1)
    return value


class Program:
    """A program, with at most one process at a time. Its log grows over its starts."""

    def __init__(self, logs: pathlib.Path, *command: str, name: str = "",
                 environment: dict[str, str] | None = None) -> None:
        """`name`: where it is not that of its file. `environment`: beside our own."""
        self.name = name or pathlib.Path(command[0]).name
        self.log = logs / f"{self.name}.log"
        self._command = command
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self.last_status: int | None = None  # with which it ended, when it was last stopped

    def start(self) -> None:
        assert self._process is None
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             env=os.environ | self._environment)

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def resident_mib(self) -> float:
        """Its memory now, its libraries too."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024

    def send(self, what: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(what)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self._process
        self._process.send_signal(how)
        self.last_status = self._process.wait(60)
        self._process = None

    def wait_until(self, what: str, condition: Callable[[], Any], seconds: float) -> Any:
        """Does the same, and raises a Failure at once when the program ends."""

        def or_ended() -> Any:
            assert self._process
            if self._process.poll() is not None:
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])
                raise Failure(f"{self.name} ended with {self._process.returncode}; its last words:\n{tail}")
            return condition()
        return wait_until(f"{what}; see {self.log}", or_ended, seconds)
