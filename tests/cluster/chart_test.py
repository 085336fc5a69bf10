# SPDX-License-Identifier: Apache-2.0
"""The chart under real Helm, and its pod on a real kubelet: installed, changed, taken back, removed."""

import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest
from typing import Any

from cluster.kubernetes import CONTAINERD, NODE, Kubernetes
from cluster.programs import Failure, wait_until

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SPACE = "ferry"
STATE = "gpu-ferry.io/state"
PRESENT = "feature.node.kubernetes.io/pci-10de.present"
POLICIES = "version: v2\npolicies:\n  given: [{devices: all, mode: passthrough}]\n"
# Nobody forwards the address that the cluster gives its API server here; what a container is told itself counts.
VALUES = {"minReadySeconds": 1, "agent": {"env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
                                                  {"name": "KUBERNETES_SERVICE_PORT", "value": "6443"}]}}


def helms() -> list[str]:
    done = subprocess.run([REPOSITORY / "scripts/lib/helm"], stdout=subprocess.PIPE, text=True, check=False)
    return [line.split(maxsplit=1)[1] + "/helm" for line in done.stdout.splitlines()]


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
        with tempfile.TemporaryDirectory() as scratch:
            image = f"{scratch}/ferry.tar"
            subprocess.run([REPOSITORY / "images/build", "--bin", os.environ["CLUSTER_BIN"], image], check=True)
            subprocess.run([programs / "ctr", "--address", CONTAINERD, "-n", "k8s.io", "images", "import", image],
                           check=True, capture_output=True)
        cls.kubernetes.kubectl("create", "namespace", SPACE)

    def helm(self, program: str, *words: str, values: Any = None) -> str:
        more = ["--values", "-"] if values else []
        done = subprocess.run([program, "--kubeconfig", str(self.kubernetes.kubeconfig("admin")), "--namespace", SPACE,
                               *words, *more], input=json.dumps(values), capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failure(f"helm {' '.join(words)}: {done.stderr}")
        return done.stdout

    def pods(self) -> list[Any]:
        found = self.kubernetes.get("pods", "-n", SPACE)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def runs(self) -> str:
        """The UID of the pod, once all three of its containers run; else nothing."""
        pods = self.pods()
        if len(pods) != 1:
            return ""
        states = pods[0]["status"].get("containerStatuses", [])
        ready = len(states) == 3 and all("running" in one["state"] for one in states)
        return str(pods[0]["metadata"]["uid"]) if ready else ""

    def label(self, key: str) -> Any:
        return self.kubernetes.get("node", NODE)["metadata"]["labels"].get(key)

    def test_install_upgrade_rollback_uninstall(self) -> None:
        for program in self.helms:
            with self.subTest(helm=pathlib.Path(program).parent.name):
                self.live(program)

    def live(self, program: str) -> None:
        chart = str(REPOSITORY / "charts/ferry")
        offered = pathlib.Path("/run/ferry/offered.json")
        offered.unlink(missing_ok=True)  # of the Helm before
        told = self.helm(program, "install", "ferry", chart, values=VALUES)
        self.assertIn("kubectl label node NODE", told)
        self.assertEqual(self.pods(), [], "the node has no GPU yet")
        self.kubernetes.kubectl("label", "node", NODE, f"{PRESENT}=true")
        try:
            first = wait_until("the pod runs", self.runs, 120)
            wait_until("the agent tells of the node", lambda: self.label(STATE) == "nothing_wanted", 60)
            state = json.loads(pathlib.Path("/run/ferry/state.json").read_text())
            self.assertEqual(state["phase"], "nothing_wanted", "hostd says it on the host")
            wait_until("the plugin says it on the host", offered.exists, 60)

            # A configuration is taken up, and restarts nothing.
            self.helm(program, "upgrade", "ferry", chart, "--reuse-values", values={"config": {"policies": POLICIES}})
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/policy=givne")
            wait_until("the agent knows the policies", lambda: "did you mean 'given'" in self.annotation(), 60)
            self.assertEqual(self.label(STATE), "failed")
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/policy-")
            wait_until("all is well again", lambda: self.label(STATE) == "nothing_wanted", 60)
            self.assertEqual(self.runs(), first)

            # What changes the pod replaces it.
            self.helm(program, "upgrade", "ferry", chart, "--reuse-values",
                      values={"agent": {"logLevel": "debug"}})
            second = wait_until("another pod runs", lambda: self.runs() not in ("", first) and self.runs(), 120)
            self.helm(program, "rollback", "ferry", "2")
            wait_until("a third pod runs", lambda: self.runs() not in ("", first, second) and self.runs(), 120)
            self.assertIn("--log-level=info", self.pods()[0]["spec"]["containers"][0]["args"])

            # A node that is not to have it.
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/deploy=false")
            wait_until("it leaves", lambda: not self.pods(), 60)
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/deploy-")
            wait_until("it comes back", self.runs, 120)

            begin = time.monotonic()
            self.helm(program, "uninstall", "ferry")
            wait_until("the pod has ended", lambda: not self.kubernetes.get("pods", "-n", SPACE)["items"], 60)
            print(f"helm uninstall: the pod is gone after {time.monotonic() - begin:.0f} s")
            for kind in ("daemonsets", "roles", "rolebindings"):
                self.assertEqual(self.kubernetes.get(kind, "-n", SPACE)["items"], [])
            for kind in ("clusterroles", "clusterrolebindings"):
                names = [one["metadata"]["name"] for one in self.kubernetes.get(kind)["items"]]
                self.assertNotIn("ferry-node", names)
            self.assertEqual(self.label(STATE), "nothing_wanted", "what was said stays said")
        except Failure:
            print(self.kubernetes.try_kubectl("describe", "pods", "-n", SPACE))
            for pod in self.pods():
                print(self.kubernetes.try_kubectl("logs", "-n", SPACE, pod["metadata"]["name"], "--all-containers"))
            self.helm(program, "uninstall", "ferry")
            raise
        finally:
            self.kubernetes.try_kubectl("label", "node", NODE, f"{PRESENT}-", f"{STATE}-")

    def annotation(self) -> str:
        return str(self.kubernetes.get("node", NODE)["metadata"].get("annotations", {}).get("gpu-ferry.io/last-error"))
