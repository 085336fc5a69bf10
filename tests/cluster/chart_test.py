# SPDX-License-Identifier: Apache-2.0
"""The chart under real Helm, and its pod on a real kubelet: installed, changed, taken back, removed."""

import json
import os
import pathlib
import time
import unittest
from typing import Any

from cluster.ferry_chart import CHART, PRESENT, SPACE, VALUES, FerryChart, helms
from cluster.kubernetes import NODE, Kubernetes
from cluster.programs import Failure, wait_until

STATE = "gpu-ferry.io/state"
POLICIES = "version: v2\npolicies:\n  given: [{devices: all, mode: passthrough}]\n"


class ChartTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.helms = helms()
        if not cls.helms:
            raise unittest.SkipTest("there is no Helm to be had")
        folder = pathlib.Path(os.environ["CLUSTER_FOLDER"])
        programs = pathlib.Path(os.environ["CLUSTER_PROGRAMS"])
        cls.kubernetes = Kubernetes(programs, folder, os.environ["CLUSTER_GROUP"])
        cls.kubernetes.start()
        cls.ferry = FerryChart(cls.kubernetes)

    def label(self, key: str) -> Any:
        return self.kubernetes.node()["metadata"]["labels"].get(key)

    def test_install_upgrade_rollback_uninstall(self) -> None:
        for program in self.helms:
            with self.subTest(helm=pathlib.Path(program).parent.name):
                self.live(program)

    def test_the_prometheus_operators_resources_accept_the_charts_objects(self) -> None:
        crds = pathlib.Path(os.environ["CLUSTER_PROGRAMS"]) / "crds"
        if not self.kubernetes.release.current:
            self.skipTest("only scripts/lib/kubernetes brings the operator's custom resources")
        names = [f"crd/{file.stem}.monitoring.coreos.com" for file in crds.iterdir()]
        self.kubernetes.kubectl("create", "-f", str(crds))
        self.addCleanup(self.kubernetes.kubectl, "delete", *names)
        self.kubernetes.kubectl("wait", "--for=condition=Established", *names, "--timeout=60s")
        rendered = self.ferry.helm(self.helms[-1], "template", "ferry", CHART, "--api-versions=monitoring.coreos.com/v1",
                                   values={"agent": {"metrics": {"enabled": True, "podMonitor": {"enabled": True},
                                                                 "rules": {"enabled": True}}}})
        objects = [one for one in rendered.split("\n---\n") if "apiVersion: monitoring.coreos.com/v1" in one]
        self.assertEqual(2, len(objects))
        created = self.kubernetes.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-",
                                          stdin="\n---\n".join(objects))
        self.assertEqual({"podmonitor.monitoring.coreos.com/ferry", "prometheusrule.monitoring.coreos.com/ferry"},
                         {line.split()[0] for line in created.splitlines()})
        broken = self.kubernetes.try_kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-",
                                             stdin=objects[0].replace("spec:", "spec:\n  noSuchField: 1", 1))
        self.assertIsNone(broken, "a field that the kind lacks is refused")
        self.assertIn("noSuchField", self.kubernetes.last_error)

    def live(self, program: str) -> None:
        ferry = self.ferry
        offered = pathlib.Path("/run/ferry/plugin/offered.json")
        offered.unlink(missing_ok=True)  # of the Helm before
        told = ferry.helm(program, "install", "ferry", CHART, values=VALUES)
        self.assertIn("kubectl label node NODE", told)
        self.assertEqual(ferry.pods(), [], "the node has no GPU yet")
        self.kubernetes.kubectl("label", "node", NODE, f"{PRESENT}=true")
        try:
            first = wait_until("the pod runs", ferry.runs, 120)
            wait_until("the agent tells of the node", lambda: self.label(STATE) == "nothing_wanted", 60)
            state = json.loads(pathlib.Path("/run/ferry/state.json").read_text())
            self.assertEqual(state["phase"], "nothing_wanted", "hostd says it on the host")
            wait_until("the plugin says it on the host", offered.exists, 60)

            # A configuration is taken up, and restarts nothing.
            ferry.helm(program, "upgrade", "ferry", CHART, "--reuse-values", values={"config": {"policies": POLICIES}})
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/policy=givne")
            wait_until("the agent knows the policies", lambda: "did you mean 'given'" in self.annotation(), 60)
            self.assertEqual(self.label(STATE), "failed")
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/policy-")
            wait_until("all is well again", lambda: self.label(STATE) == "nothing_wanted", 60)
            self.assertEqual(ferry.runs(), first)

            # What changes the pod replaces it.
            ferry.helm(program, "upgrade", "ferry", CHART, "--reuse-values",
                       values={"agent": {"logLevel": "debug"}})
            second = wait_until("another pod runs", lambda: ferry.runs() not in ("", first) and ferry.runs(), 120)
            ferry.helm(program, "rollback", "ferry", "2")
            wait_until("a third pod runs", lambda: ferry.runs() not in ("", first, second) and ferry.runs(), 120)
            self.assertIn("--log-level=info", ferry.pods()[0]["spec"]["containers"][0]["args"])

            # A node that is not to have it.
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/deploy=false")
            wait_until("it leaves", lambda: not ferry.pods(), 60)
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/deploy-")
            wait_until("it comes back", ferry.runs, 120)

            begin = time.monotonic()
            ferry.helm(program, "uninstall", "ferry")
            self.assertEqual([], self.kubernetes.get("pods", "-n", SPACE, "-l", "app.kubernetes.io/name=ferry")["items"])
            print(f"helm uninstall: the pod is gone after {time.monotonic() - begin:.0f} s")
            for kind in ("daemonsets", "roles", "rolebindings"):
                self.assertEqual(self.kubernetes.get(kind, "-n", SPACE)["items"], [])
            for kind in ("clusterroles", "clusterrolebindings"):
                names = [one["metadata"]["name"] for one in self.kubernetes.get(kind)["items"]]
                self.assertNotIn("ferry-node", names)
            self.assertEqual(self.label(STATE), "nothing_wanted", "what was said stays said")
            self.assertEqual([], [request for request in self.kubernetes.requests()
                                  if request.get("responseStatus", {}).get("code") in (401, 403)], "RBAC refused nothing")
        except Failure:
            ferry.tell()
            ferry.helm(program, "uninstall", "ferry")
            raise
        finally:
            self.kubernetes.try_kubectl("label", "node", NODE, f"{PRESENT}-", f"{STATE}-")

    def annotation(self) -> str:
        return str(self.kubernetes.node()["metadata"].get("annotations", {}).get("gpu-ferry.io/last-error"))
