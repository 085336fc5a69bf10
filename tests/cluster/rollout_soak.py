# SPDX-License-Identifier: Apache-2.0
"""Nodes that roll a change out by the Leases of a real API server. The stand-in for hostd changes no GPU."""

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


class LeaseWatch:
    """The holders of each rollout lease, as a watching kubectl has printed them."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._lines = kubernetes.logs / "leases"
        with open(self._lines, "w", encoding="utf-8") as out:
            self.watch = subprocess.Popen([*kubernetes.kubectl_command(), "get", "leases", "-n", AUDITED, "-l",
                                           "gpu-ferry.io/rollout-lease", "--watch", "-o",
                                           r"jsonpath={.metadata.name}/{.spec.holderIdentity}{'\n'}"], stdout=out)

    def seen(self) -> list[tuple[str, str]]:
        """(lease, holder), in order; an empty holder: the lease is free."""
        lines = self._lines.read_text().splitlines()
        return [(lease, holder) for lease, _, holder in (line.partition("/") for line in lines)]

    @staticmethod
    def most_at_once(seen: list[tuple[str, str]]) -> int:
        holders: dict[str, str] = {}
        most = 0
        for lease, holder in seen:
            holders[lease] = holder
            most = max(most, sum(1 for one in holders.values() if one))
        return most


class RolloutTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = pathlib.Path(os.environ["CLUSTER_FOLDER"])
        self.kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]), folder, os.environ["CLUSTER_GROUP"])
        self.kubernetes.start()
        for space in (AUDITED, OPERATOR):
            self.kubernetes.kubectl("create", "namespace", space)
        self.kubernetes.kubectl("create", "-f", str(pathlib.Path(__file__).parent / "agent-rights.yaml"))
        self.kubernetes.apply({"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.yaml": POLICIES},
                               "metadata": {"name": "ferry-policies", "namespace": AUDITED}},
                              *[{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}", "labels": {"rollout": "yes"}}}
                                for number in range(NODES)])
        self.kubernetes.add_user("agents", self.kubernetes.token_of(AUDITED, ACCOUNT))
        self.agents = Program(self.kubernetes.logs, os.environ["CLUSTER_BIN"] + "/agents-at-scale",
                              str(self.kubernetes.kubeconfig("agents")), str(folder / "hosts"), str(NODES), str(MOST))
        self.agents.start()
        self.addCleanup(self.agents.stop)
        self.wait_until_are("idle", NODES)
        self.leases = LeaseWatch(self.kubernetes)
        self.addCleanup(self.leases.watch.wait)
        self.addCleanup(self.leases.watch.kill)

    def in_state(self, state: str) -> int:
        return len(self.kubernetes.kubectl("get", "nodes", "-l", f"rollout,{STATE}={state}", "-o", "name").split())

    def wait_until_are(self, state: str, count: int) -> None:
        self.agents.wait_until(f"{count} are {state}", lambda: self.in_state(state) == count, 300)

    def label(self, policy: str) -> None:
        self.kubernetes.kubectl("label", "nodes", "-l", "rollout", "--overwrite", f"{POLICY}={policy}")

    def test_at_most_the_limit_changes_at_once_and_one_node_fails(self) -> None:
        self.label("given")
        self.wait_until_are("ready", NODES)
        wait_until("the last lease is free", lambda: self.leases.seen()[-1][1] == "", 30)
        seen = self.leases.seen()
        holders = [holder for _, holder in seen if holder]
        self.assertEqual({f"n{number}" for number in range(NODES)}, set(holders))
        self.assertEqual(MOST, LeaseWatch.most_at_once(seen))
        # A single lease is used until the first node has passed the policy.
        first = holders[0]
        alone = seen[:1 + next(at for at, (_, holder) in enumerate(seen) if holder not in ("", first))]
        self.assertIn(("ferry-rollout-0", ""), alone, "the others have waited for it")

        self.label("wrong")
        self.wait_until_are("failed", 1)
        self.wait_until_are("pending", NODES - 1)
        wait_until("all the others say why", lambda: NODES - 1 == len([
            one for one in self.kubernetes.get("nodes", "-l", "rollout")["items"]
            if "has failed on n" in one["metadata"].get("annotations", {}).get("gpu-ferry.io/last-error", "")]), 60)
        self.assertEqual(1, len({holder for _, holder in self.leases.seen()[len(seen):] if holder}), "no other node has begun")
        self.assertEqual(1, self.in_state("failed"))
        # A person has the way out: another policy is not held.
        self.label("given")
        self.wait_until_are("ready", NODES)
