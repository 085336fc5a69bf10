# SPDX-License-Identifier: Apache-2.0
"""The node's own time: how long a program could run, whatever else this machine does."""

import pathlib
import time
from collections.abc import Callable

# Even where the program waits for a processor nearly all the time, its clock goes on: it stops for no error of the measure.
SLOWEST = 0.1


def waited(pid: int) -> dict[str, float]:
    """The seconds that each thread of the process was ready to run and had no processor."""
    found = {}
    for file in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            found[file.parent.name] = int(file.read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            continue  # the thread has ended
    return found


class NodeClock:
    """Counts seconds of a program; those in which a thread of it waits for a processor do not count.

    So a limit in these seconds means the same on a quiet machine and on one that does ten other things. A program that sleeps
    or hangs waits for no processor, and its clock goes as fast as any.
    """

    def __init__(self, pid: int, wall: Callable[[], float] = time.monotonic,
                 waits: Callable[[int], dict[str, float]] = waited) -> None:
        self._pid, self._wall, self._waits = pid, wall, waits
        self._start = wall()
        self._before: dict[str, float] = {}
        self._lost = 0.0
        self._seconds = 0.0

    def read(self) -> float:
        now = self._waits(self._pid)
        # Threads that wait at the same time lose the same time.
        self._lost += max((seconds - self._before.get(thread, 0.0) for thread, seconds in now.items()), default=0.0)
        self._before |= now
        wall = self._wall() - self._start
        self._seconds = max(self._seconds, wall - self._lost, wall * SLOWEST)
        return self._seconds
