# SPDX-License-Identifier: Apache-2.0
"""The agents of a thousand nodes against one API server: how they begin, what they keep, what a change of all costs."""

import http.client
import json
import os
import pathlib
import ssl
import time
import unittest
from collections import Counter
from collections.abc import Callable

from cluster.box import NODE_ADDRESS
from cluster.ferry_node import ACCOUNT, CONFIGURATIONS, OPERATOR, POLICY, STATE
from cluster.kubernetes import API_PORT, AUDITED, Kubernetes, moment
from cluster.programs import Program, wait_until

NODES = int(os.environ.get("FERRY_SCALE_NODES", "1000"))


def seconds_of_processor(program: Program) -> float:
    fields = pathlib.Path(f"/proc/{program.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class ScaleTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = pathlib.Path(os.environ["CLUSTER_FOLDER"])
        self.kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]), folder, os.environ["CLUSTER_GROUP"])
        self.kubernetes.start()
        for space in (AUDITED, OPERATOR):
            self.kubernetes.kubectl("create", "namespace", space)
        self.kubernetes.kubectl("create", "-f", str(pathlib.Path(__file__).parent / "agent-rights.yaml"))
        self.kubernetes.apply(*[{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": AUDITED},
                                 "data": {"config.yaml": text}} for name, text in CONFIGURATIONS.items()])
        self.kubernetes.add_user("agents", self.kubernetes.token_of(AUDITED, ACCOUNT))
        self.make_nodes()
        self.agents = Program(self.kubernetes.logs, os.environ["CLUSTER_BIN"] + "/agents-at-scale",
                              str(self.kubernetes.kubeconfig("agents")), str(folder / "hosts"), str(NODES))

    def make_nodes(self) -> None:
        server = http.client.HTTPSConnection(
            NODE_ADDRESS, API_PORT, context=ssl.create_default_context(cafile=str(self.kubernetes.authority)))
        for number in range(NODES):
            server.request("POST", "/api/v1/nodes", json.dumps({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}", "labels": {"scale": "true"}}}),
                {"Authorization": "Bearer admin-token", "Content-Type": "application/json"})
            answer = server.getresponse()
            answer.read()
            self.assertEqual(201, answer.status)

    def in_state(self, state: str) -> int:
        return len(self.kubernetes.kubectl("get", "nodes", "-l", f"scale,{STATE}={state}", "-o", "name").split())

    def phase(self, name: str, wait: float, state: str,
              begin_it: Callable[[], object] = lambda: None) -> Counter[tuple[str, str]]:
        """From what begins it until all nodes are in that state; prints what it took, returns what was not put off."""
        begin, clock = moment(), time.monotonic()
        before = {program: seconds_of_processor(program) for program in (self.kubernetes.api_server, self.agents)}
        begin_it()
        self.agents.wait_until(f"all are {state}", lambda: self.in_state(state) == NODES, 300)
        took = time.monotonic() - clock
        time.sleep(wait)
        requests = self.kubernetes.requests(begin)
        done = [request for request in requests if request["responseStatus"]["code"] != 429]
        counts = Counter((request["verb"], request["objectRef"]["resource"]) for request in done)
        print(f"{name}: {took:.1f} s until all have it; requests {dict(counts)}, {len(requests) - len(done)} more put off "
              f"by the server (429); in {took + wait:.0f} s "
              + "; ".join(f"{program.name} {seconds_of_processor(program) - cpu:.1f} s of processor, "
                          f"{program.resident_mib():.0f} MiB" for program, cpu in before.items()))
        return counts

    def test_a_thousand_nodes(self) -> None:
        print(f"{NODES} nodes; before: API server {self.kubernetes.api_server.resident_mib():.0f} MiB")
        self.agents.start()
        started = self.phase("start", 10, "idle")
        # Each lists and watches five selections, writes its state and one event. Some lists are repeated, since the server is busy.
        self.assertLessEqual(started.total(), 13 * NODES)
        idle = self.phase("idle", 60, "idle")
        self.assertEqual(set(), {verb for verb, _ in idle} - {"watch"})
        changed = self.phase("a label on all", 5, "pending",
                             lambda: self.kubernetes.kubectl("label", "nodes", "-l", "scale", f"{POLICY}=mixed"))
        self.assertGreaterEqual(changed[("patch", "nodes")], NODES)
        self.assertLessEqual(changed[("patch", "nodes")], NODES * 2)
        self.assertLess(self.agents.resident_mib() / NODES, 1, "MiB for each client")
        self.agents.stop()
