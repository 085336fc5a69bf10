# SPDX-License-Identifier: Apache-2.0
"""How a long step is shown: one line that is rewritten on a terminal, elsewhere a line after a silence."""

import sys
import time

INTERVAL_S = 30  # of silence before a line where the output is no terminal


class Progress:
    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._terminal = sys.stdout.isatty()
        self._interval_s = 0.5 if self._terminal else interval_s
        self._last = time.monotonic()
        self._shown = False

    def show(self, text: str) -> None:
        """Says what is under way. May be called as often as one likes."""
        now = time.monotonic()
        if now < self._last + self._interval_s:
            return
        self._last = now
        if self._terminal:
            print(f"\r\x1b[K{text[:79]}", end="", flush=True)
            self._shown = True
        else:
            print(text, flush=True)

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        self.clear()
        print(text, flush=True)

    def clear(self) -> None:
        """Makes room for a line that the caller prints."""
        if self._shown:
            print("\r\x1b[K", end="", flush=True)
            self._shown = False
        self._last = time.monotonic()
