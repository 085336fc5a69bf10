# SPDX-License-Identifier: Apache-2.0
"""The chart under real Helm, and its pods on a real kubelet: installed, changed, taken back, removed."""

import json
import os
import pathlib
import subprocess
import time
import unittest
from typing import Any

from cluster.ferry_chart import CHART, PRESENT, SPACE, VALUES, FerryChart, helms
from cluster.kubernetes import NODE, Kubernetes
from cluster.programs import Failure, wait_until

STATE = "gpu-ferry.io/state"
POLICIES = "version: v2\npolicies:\n  given: [{devices: all, mode: passthrough}]\n"


def said_by(file: pathlib.Path) -> str:
    """Nothing, where its process has ended."""
    try:
        return file.read_text()
    except OSError:
        return ""


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

    def test_the_prometheus_operator_accepts_the_charts_objects(self) -> None:
        crds = pathlib.Path(os.environ["CLUSTER_PROGRAMS"]) / "crds"
        if not self.kubernetes.release.current:
            self.skipTest("only scripts/lib/kubernetes brings the operator's custom resources")
        names = [f"crd/{file.stem}.monitoring.coreos.com" for file in crds.iterdir()]
        self.kubernetes.kubectl("create", "-f", str(crds))
        self.addCleanup(self.kubernetes.kubectl, "delete", *names)
        self.kubernetes.kubectl("wait", "--for=condition=Established", *names, "--timeout=60s")
        rendered = self.ferry.helm(self.helms[-1], "template", "ferry", CHART, "--api-versions=monitoring.coreos.com/v1",
                                   values={**VALUES, "agent": {"metrics": {"enabled": True}},
                                           "podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}})
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
        advertised = pathlib.Path("/run/ferry/plugin/advertised.json")
        advertised.unlink(missing_ok=True)  # of the Helm before
        notes = ferry.helm(program, "install", "ferry", CHART, values=VALUES)
        self.assertIn("kubectl label --overwrite node NODE", notes)
        self.assertIn("No node of 1 has a label of gpuNodeLabels", notes)
        self.assertEqual(ferry.pods(), [], "the node has no GPU yet")
        self.kubernetes.kubectl("label", "node", NODE, f"{PRESENT}=true")
        try:
            first = wait_until("the pods run", ferry.runs, 120)
            wait_until("the agent tells of the node", lambda: self.label(STATE) == "idle", 60)
            state = json.loads(pathlib.Path("/run/ferry/status.json").read_text())
            self.assertEqual(state["phase"], "idle", "hostd says it on the host")
            wait_until("the plugin says it on the host", advertised.exists, 60)
            self.expect_the_charts_test_to_report(program)

            # A configuration is taken up, and restarts nothing.
            ferry.helm(program, "upgrade", "ferry", CHART, "--reuse-values", values={"config": {"policies": POLICIES}})
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/policy=givne")
            wait_until("the agent knows the policies", lambda: "did you mean 'given'" in self.annotation(), 60)
            self.assertEqual(self.label(STATE), "failed")
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/policy-")
            wait_until("all is well again", lambda: self.label(STATE) == "idle", 60)
            self.assertEqual(ferry.runs(), first)

            self.expect_the_agent_alone_with_its_token()

            self.expect_the_plugin_in_namespaces_of_its_own()

            # A change to one pod replaces that pod and no other one.
            ferry.helm(program, "upgrade", "ferry", CHART, "--reuse-values",
                       values={"agent": {"logLevel": "debug"}})
            second = wait_until("another pod runs", lambda: ferry.runs() not in ("", first) and ferry.runs(), 120)
            ferry.helm(program, "rollback", "ferry", "2")
            third = wait_until("a third pod runs", lambda: ferry.runs() not in ("", first, second) and ferry.runs(), 120)
            self.assertEqual([first.split()[1:]] * 2, [second.split()[1:], third.split()[1:]], "hostd and the plugin run on")
            self.assertIn("--log-level=info", ferry.pod("agent")["spec"]["containers"][0]["args"])

            # A node that is not to have it.
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/deploy=false")
            wait_until("it leaves", lambda: not ferry.pods(), 60)
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/deploy-")
            wait_until("it comes back", ferry.runs, 120)

            begin = time.monotonic()
            ferry.helm(program, "uninstall", "ferry")
            self.assertEqual([], self.kubernetes.get("pods", "-n", SPACE, "-l", "app.kubernetes.io/component=agent")["items"])
            print(f"helm uninstall: the agent's pod is gone after {time.monotonic() - begin:.0f} s")
            wait_until("the other pods are gone", lambda: not self.kubernetes.get("pods", "-n", SPACE)["items"], 60)
            for kind in ("daemonsets", "roles", "rolebindings"):
                self.assertEqual(self.kubernetes.get(kind, "-n", SPACE)["items"], [])
            for kind in ("clusterroles", "clusterrolebindings"):
                names = [one["metadata"]["name"] for one in self.kubernetes.get(kind)["items"]]
                self.assertNotIn("ferry-node", names)
            self.assertEqual(self.label(STATE), "idle", "what was said stays said")
            self.assertEqual([], [request for request in self.kubernetes.requests()
                                  if request.get("responseStatus", {}).get("code") in (401, 403)], "RBAC refused nothing")
        except Failure:
            ferry.print_logs()
            ferry.helm(program, "uninstall", "ferry")
            raise
        finally:
            self.kubernetes.try_kubectl("label", "node", NODE, f"{PRESENT}-", f"{STATE}-")

    def expect_the_charts_test_to_report(self, program: str) -> None:
        """`helm test` passes, shows the checks of a node and leaves nothing; its account may do no more than it asks for."""
        self.assertIn("Succeeded", self.ferry.helm(program, "test", "ferry"))
        for check in ("ferry-agent", "ferry-hostd"):
            if program == self.helms[-1]:  # Helm 3.17 shows no logs of hooks
                self.assertRegex(self.ferry.logs_of_hooks, rf"pass +{check}")
        for kind in ("jobs", "serviceaccounts", "clusterroles", "clusterrolebindings"):
            left = [one["metadata"]["name"] for one in self.kubernetes.get(kind, "-n", SPACE)["items"]]
            self.assertNotIn("ferry-test", left, kind)

    def expect_the_agent_alone_with_its_token(self) -> None:
        """Here another process of root, without a capability, looks for it in the node's PID namespace."""
        agent, node = self.ferry.pod("agent"), self.ferry.pod("node")
        self.assertNotEqual(agent["status"]["podIP"], node["status"]["podIP"])
        (process,) = [file.parent.name for file in pathlib.Path("/proc").glob("[0-9]*/comm")
                      if said_by(file) == "ferry-agent\n"]
        group = agent["spec"]["securityContext"]["runAsGroup"]
        status = pathlib.Path(f"/proc/{process}/status").read_text()
        self.assertRegex(status, rf"(?m)^Uid:\t{group}\t{group}\t{group}\t{group}$")
        self.assertRegex(status, r"(?m)^CapEff:\t0+$")
        folder = pathlib.Path("/var/lib/ferry").stat()
        self.assertEqual((0, group, 0o2775), (folder.st_uid, folder.st_gid, folder.st_mode & 0o7777), "hostd has given it")
        without_capabilities = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--clear-groups", "--no-new-privs"]
        for file in ("environ", "mem", "root/var/run/secrets/kubernetes.io/serviceaccount/token"):
            done = subprocess.run([*without_capabilities, "cat", f"/proc/{process}/{file}"], capture_output=True, text=True,
                                  check=False)
            self.assertIn("Permission denied", done.stderr, file)
        done = subprocess.run([*without_capabilities, "kill", "-KILL", process], capture_output=True, text=True, check=False)
        self.assertNotEqual(0, done.returncode, "it cannot end it either")

    def expect_the_plugin_in_namespaces_of_its_own(self) -> None:
        """By its mounts and its PID namespace it sees no other process; hostd sees those of the node."""
        processes = {words[-1]: file.parent for file in pathlib.Path("/proc").glob("[0-9]*/cmdline")
                     for words in [[word for word in said_by(file).split("\0") if word in ("hostd", "plugin")]] if words}
        self.assertEqual({"hostd", "plugin"}, set(processes))
        for kind in ("pid", "net", "ipc"):
            of_node = os.readlink(f"/proc/1/ns/{kind}")
            self.assertEqual(of_node == os.readlink(processes["hostd"] / "ns" / kind), kind != "ipc", kind)
            self.assertNotEqual(of_node, os.readlink(processes["plugin"] / "ns" / kind), kind)
        seen = [one for one in os.listdir(processes["plugin"] / "root/proc") if one.isdigit()]
        self.assertEqual(["1"], seen)
        self.assertFalse((processes["plugin"] / "root/host/proc").exists())

    def test_an_upgrade_from_a_release_with_the_agent_in_hostds_pod(self) -> None:
        """The DaemonSet with the three containers keeps its name and its selector; its files become the agent's."""
        ferry, desired = self.ferry, pathlib.Path("/var/lib/ferry/desired.json")
        program = self.helms[-1]
        ferry.install_former(program, {**VALUES, "config": {"policies": POLICIES}}, "plugin", "agent")
        self.kubernetes.kubectl("label", "node", NODE, f"{PRESENT}=true", "gpu-ferry.io/policy=given")
        try:
            wait_until("the former agent has written the file", desired.exists, 120)
            self.assertEqual(0, desired.stat().st_uid)
            ferry.helm(program, "upgrade", "ferry", CHART, values={**VALUES, "config": {"policies": POLICIES}})
            wait_until("the pods run", ferry.runs, 180)
            self.kubernetes.kubectl("label", "node", NODE, "gpu-ferry.io/policy-")
            wait_until("the agent removes the former one's file", lambda: not desired.exists(), 120)
            wait_until("hostd obeys", lambda: json.loads(pathlib.Path("/run/ferry/status.json").read_text())["phase"]
                       == "idle", 60)
            # It waits if the former one has not ended yet, and does not end itself.
            self.assertEqual(0, ferry.pod("agent")["status"]["containerStatuses"][0]["restartCount"])
        except Failure:
            ferry.print_logs()
            raise
        finally:
            ferry.helm(program, "uninstall", "ferry")
            wait_until("the pods are gone", lambda: not self.kubernetes.get("pods", "-n", SPACE)["items"], 120)
            self.kubernetes.try_kubectl("label", "node", NODE, f"{PRESENT}-", f"{STATE}-", "gpu-ferry.io/policy-")

    def annotation(self) -> str:
        return str(self.kubernetes.node()["metadata"].get("annotations", {}).get("gpu-ferry.io/last-error"))
