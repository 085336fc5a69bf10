# SPDX-License-Identifier: Apache-2.0
"""Who can look into an agent that has just been executed, before it hides itself: as the chart has it, a process of another
user; a process of the agent's own user can, which is why the agent has a user of its own."""

import collections
import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

STARTS = 30
MARK = "FERRY_TOKEN_OF_A_TEST=once-seen-never-forgotten"
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000
# Both the agent and the plugin run with only this in the chart: no capabilities.
BARE = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--clear-groups", "--no-new-privs"]


def trace(process: int) -> bool:
    """True if it could be traced; it goes on then."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_SEIZE, process, 0, 0) != 0:
        return False
    if libc.ptrace(PTRACE_INTERRUPT, process, 0, 0) == 0:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, WALL)
        libc.ptrace(PTRACE_DETACH, process, 0, 0)
    return True


def attack(process: int) -> set[str]:
    """The secrets of an agent that can be read, tried again and again until it has ended."""
    folder, got = pathlib.Path(f"/proc/{process}"), set()
    while True:
        try:
            if (folder / "comm").read_bytes() != b"ferry-agent\n":
                continue
        except OSError:
            return got
        with contextlib.suppress(OSError):
            if MARK.encode() in (folder / "environ").read_bytes():
                got.add("environ")
        with contextlib.suppress(OSError), open(folder / "mem", "rb"):
            got.add("mem")
        with contextlib.suppress(OSError):
            os.kill(process, 0)
            got.add("signal")
        with contextlib.suppress(OSError):
            os.listdir(folder / "root")
            got.add("root")
        if "trace" not in got and trace(process):
            got.add("trace")
        got.add("its name")  # everybody has that


def attacker() -> None:
    """Attacks each process that its standard input names."""
    for line in sys.stdin:
        print(json.dumps(sorted(attack(int(line)))), flush=True)


@unittest.skipUnless(os.geteuid() == 0, "only root can start processes of two users")
class TokenTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.folder.chmod(0o755)
        shutil.copy(os.environ["FERRY_BIN"] + "/ferry-agent", self.folder)

    def taken_from(self, user: int) -> collections.Counter[str]:
        """How many agents of that user revealed each secret to root without capabilities, attacked from exec to end."""
        taken: collections.Counter[str] = collections.Counter()
        name, value = MARK.split("=")
        environment = {"PATH": os.environ["PATH"], name: value}
        with subprocess.Popen([*BARE, sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as plugin:
            assert plugin.stdin and plugin.stdout
            for _ in range(STARTS):
                # It has no cluster, and ends by itself once it has hidden itself and found that.
                agent = subprocess.Popen(
                    [*BARE, f"--reuid={user}", f"--regid={user}", str(self.folder / "ferry-agent"), "--node-name=node",
                     "--namespace=ferry", f"--host-root={self.folder}"], env=environment, stderr=subprocess.PIPE, text=True)
                plugin.stdin.write(f"{agent.pid}\n")
                plugin.stdin.flush()
                said = agent.communicate(timeout=60)[1]
                self.assertIn("hint:", said, "it came as far as to look for its cluster")
                taken.update(json.loads(plugin.stdout.readline()))
            plugin.stdin.close()
        return taken

    def test_an_agent_of_another_user_reveals_nothing_while_it_starts(self) -> None:
        taken = self.taken_from(64711)
        self.assertEqual({"its name"}, set(taken))
        self.assertGreater(taken["its name"], STARTS // 2, "they were there to be attacked")

    def test_an_agent_of_the_same_user_reveals_its_environment_while_it_starts(self) -> None:
        """Hiding itself comes too late: this is what the other test would see if it looked badly."""
        taken = self.taken_from(0)
        self.assertGreater(taken["environ"], 0)
        self.assertGreater(taken["signal"], 0)


if __name__ == "__main__":
    attacker()
