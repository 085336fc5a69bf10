# SPDX-License-Identifier: Apache-2.0
"""Nodes that take turns, by the Leases of a real API server: what stands for hostd changes nothing but its own mind."""

import os
import pathlib
import subprocess
import unittest

from cluster.ferry_node import ACCOUNT, OPERATOR, POLICY, STATE
from cluster.kubernetes import AUDITED, Kubernetes
from cluster.programs import Program, wait_until

NODES, MOST = 12, 2
POLICIES = """version: v2
policies:
  given: [{devices: all, mode: passthrough}]
  wrong: [{devices: all, mode: host}]
"""


class Turns:
    """Who had which slot, as a kubectl that looks on has seen it."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._lines = kubernetes.logs / "leases"
        with open(self._lines, "w", encoding="utf-8") as out:
            self.watch = subprocess.Popen([*kubernetes.kubectl_command(), "get", "leases", "-n", AUDITED, "-l",
                                           "gpu-ferry.io/rollout-lease", "--watch", "-o",
                                           r"jsonpath={.metadata.name}/{.spec.holderIdentity}{'\n'}"], stdout=out)

    def told(self) -> list[tuple[str, str]]:
        """(slot, holder), in order; an empty holder: given back."""
        lines = self._lines.read_text().splitlines()
        return [(slot, holder) for slot, _, holder in (line.partition("/") for line in lines)]

    @staticmethod
    def most_at_once(told: list[tuple[str, str]]) -> int:
        slots: dict[str, str] = {}
        most = 0
        for slot, holder in told:
            slots[slot] = holder
            most = max(most, sum(1 for one in slots.values() if one))
        return most


class TurnsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = pathlib.Path(os.environ["CLUSTER_FOLDER"])
        self.kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]), folder, os.environ["CLUSTER_GROUP"])
        self.kubernetes.start()
        for space in (AUDITED, OPERATOR):
            self.kubernetes.kubectl("create", "namespace", space)
        self.kubernetes.kubectl("create", "-f", str(pathlib.Path(__file__).parent / "agent-rights.yaml"))
        self.kubernetes.apply({"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.yaml": POLICIES},
                               "metadata": {"name": "ferry-policies", "namespace": AUDITED}},
                              *[{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}", "labels": {"turns": "yes"}}}
                                for number in range(NODES)])
        self.kubernetes.add_user("agents", self.kubernetes.token_of(AUDITED, ACCOUNT))
        self.agents = Program(self.kubernetes.logs, os.environ["CLUSTER_BIN"] + "/agents-at-scale",
                              str(self.kubernetes.kubeconfig("agents")), str(folder / "hosts"), str(NODES), str(MOST))
        self.agents.start()
        self.addCleanup(self.agents.stop)
        self.wait_until_are("idle", NODES)
        self.turns = Turns(self.kubernetes)
        self.addCleanup(self.turns.watch.wait)
        self.addCleanup(self.turns.watch.kill)

    def in_state(self, state: str) -> int:
        return len(self.kubernetes.kubectl("get", "nodes", "-l", f"turns,{STATE}={state}", "-o", "name").split())

    def wait_until_are(self, state: str, count: int) -> None:
        self.agents.wait_until(f"{count} are {state}", lambda: self.in_state(state) == count, 300)

    def label(self, policy: str) -> None:
        self.kubernetes.kubectl("label", "nodes", "-l", "turns", "--overwrite", f"{POLICY}={policy}")

    def test_no_more_than_so_many_and_one_where_it_fails(self) -> None:
        self.label("given")
        self.wait_until_are("ready", NODES)
        wait_until("the last one has given back", lambda: self.turns.told()[-1][1] == "", 30)
        told = self.turns.told()
        holders = [holder for _, holder in told if holder]
        self.assertEqual({f"n{number}" for number in range(NODES)}, set(holders))
        self.assertEqual(MOST, Turns.most_at_once(told))
        # Until the first one has proven it there is one slot.
        first = holders[0]
        alone = told[:1 + next(at for at, (_, holder) in enumerate(told) if holder not in ("", first))]
        self.assertIn(("ferry-rollout-0", ""), alone, "the others have waited for it")

        self.label("wrong")
        self.wait_until_are("failed", 1)
        self.wait_until_are("pending", NODES - 1)
        wait_until("all the others are told why", lambda: NODES - 1 == len([
            one for one in self.kubernetes.get("nodes", "-l", "turns")["items"]
            if "has failed on n" in one["metadata"].get("annotations", {}).get("gpu-ferry.io/last-error", "")]), 60)
        self.assertEqual(1, len({holder for _, holder in self.turns.told()[len(told):] if holder}), "nobody else has begun")
        self.assertEqual(1, self.in_state("failed"))
        # A person has the way out: another policy is not held.
        self.label("given")
        self.wait_until_are("ready", NODES)
