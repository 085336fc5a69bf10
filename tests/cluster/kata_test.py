# SPDX-License-Identifier: Apache-2.0
"""Kata's runtimes as agent and hostd bring them to a node together: in the chart's pods, from a registry, into the
containerd that these pods run in. With all that the agent can do at work, and what that takes."""

import os
import pathlib
import re
import shutil
import ssl
import subprocess
import time
import unittest
import urllib.request
from typing import Any

from cluster.ferry_chart import CHART, PRESENT, REPOSITORY, SPACE, VALUES, FerryChart, helms
from cluster.kubernetes import CONTAINERD_CONFIGURATION, NODE, Kubernetes
from cluster.programs import Program, wait_until
from cluster.registry import ADDRESS, Registry

HANDLER, READY, ERROR = "kata-gpu", "gpu-ferry.io/kata.kata-gpu", "gpu-ferry.io/kata-error"
CHOSEN = "example.com/kata"
METRICS, TOKEN = 9417, "whoever-asks-must-know-it"
MOST_MIB = 25  # of the agent's memory
TOLD = pathlib.Path("/run/kata-shim-told")
# The paths are those of whoever made the artifact: Ferry's configuration names what was pulled.
CONFIGURATION = b"""[hypervisor.qemu]
path = "/opt/kata/bin/qemu-system-x86_64"
kernel = "/where/it/was/made/vmlinuz"
image = "/where/it/was/made/image"
machine_type = "q35"
"""
ARTIFACT = {"configuration.toml": CONFIGURATION, "vmlinuz": b"kernel", "image": b"image" * 100_000}
CLASSES = f"""version: v2
artifactsDir: /opt/ferry/kata
loadModules: false
pull: {{mirrors: {{"{ADDRESS}": ["http://{ADDRESS}"]}}}}
runtimeClasses:
- name: {HANDLER}
  nodeSelector: {{{CHOSEN}: "true"}}
  artifacts: {{url: "{ADDRESS}/kata/gpu:1"}}
"""
# All that the agent can do, on.
VALUES_OF_ALL: dict[str, Any] = {
    **VALUES,
    "gpuOperator": {"enabled": True, "namespace": "default"},
    "agent": {"drain": {"enabled": True}, "featureLabels": "node",
              "metrics": {"enabled": True, "port": METRICS, "tlsSecret": "metrics-tls",
                          "tokenSecret": "metrics-token"}},
    "kata": {"enabled": True, "classes": CLASSES, "install": {"enabled": True},
             "runtimeClasses": [{"name": HANDLER, "nodeSelector": {CHOSEN: "true"}}]}}


def said_by(file: pathlib.Path) -> str:
    """Nothing, where its process has ended."""
    try:
        return file.read_text()
    except OSError:
        return ""


class KataTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.helms = helms()
        found = subprocess.run([REPOSITORY / "scripts/lib/docker-registry"], stdout=subprocess.PIPE, text=True, check=False)
        if not cls.helms or found.returncode:
            raise unittest.SkipTest("there is no Helm or no registry to be had")
        folder = pathlib.Path(os.environ["CLUSTER_FOLDER"])
        cls.kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]), folder, os.environ["CLUSTER_GROUP"],
                                    os.environ["CLUSTER_BIN"] + "/systemd-standin")
        cls.kubernetes.start()
        cls.ferry = FerryChart(cls.kubernetes)
        cls.folder = folder
        Registry(found.stdout.strip(), folder / "registry", cls.kubernetes.logs).push("kata/gpu", "1", ARTIFACT)
        shim = pathlib.Path("/opt/kata/bin/containerd-shim-kata-v2")
        shim.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / "tests/cluster/kata_shim_standin.py", shim)

    def make_secrets(self) -> None:
        key, certificate = self.folder / "metrics.key", self.folder / "metrics.crt"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=node",
                        "-keyout", str(key), "-out", str(certificate)],
                       check=True, capture_output=True)
        self.kubernetes.kubectl("create", "secret", "tls", "metrics-tls", "-n", SPACE, f"--key={key}",
                                f"--cert={certificate}")
        self.kubernetes.kubectl("create", "secret", "generic", "metrics-token", "-n", SPACE, f"--from-literal=token={TOKEN}")

    # --- what is to be seen ------------------------------------------------------------------------------------------

    def node(self) -> Any:
        return self.kubernetes.node()["metadata"]

    def handlers_of_the_status(self) -> set[str]:
        """The runtime handlers that the container runtime has reported to the kubelet."""
        return {one["name"] for one in self.kubernetes.node()["status"]["runtimeHandlers"]}

    def error(self) -> str:
        return str(self.node().get("annotations", {}).get(ERROR, ""))

    def is_ready(self) -> bool:
        return bool(self.node()["labels"].get(READY) == "ready")

    def restarts_of_containerd(self) -> int:
        said = (self.kubernetes.logs / "systemd-standin.log").read_text()
        return len(re.findall(r"^RestartUnit containerd\.service$", said, re.MULTILINE))

    def metrics(self) -> str:
        address = self.ferry.pod("agent")["status"]["podIP"]
        request = urllib.request.Request(f"https://{address}:{METRICS}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        trusted = ssl.create_default_context(cafile=str(self.folder / "metrics.crt"))
        trusted.check_hostname = False  # nobody knows a pod's address when its certificate is made
        with urllib.request.urlopen(request, timeout=10, context=trusted) as answer:
            return str(answer.read().decode())

    def events(self, reason: str) -> list[str]:
        return [one["message"] for one in self.kubernetes.get("events", "-n", "default")["items"] if one["reason"] == reason]

    @staticmethod
    def lives_of(pod: Any) -> dict[str, tuple[str, int]]:
        """The IDs of its running containers, and how often each was restarted."""
        return {one["name"]: (one["containerID"], one["restartCount"])
                for one in pod["status"]["containerStatuses"] if "running" in one["state"]}

    def lives(self) -> dict[str, tuple[str, int]]:
        """The containers of the chart and of the pod that stays."""
        pods = [self.kubernetes.get("pod", "stays"), *map(self.ferry.pod, ("agent", "node", "plugin"))]
        return {name: life for pod in pods for name, life in self.lives_of(pod).items()}

    def resident_mib(self) -> float:
        """The memory of the agent, its libraries too."""
        status = [text.splitlines() for file in pathlib.Path("/proc").glob("[0-9]*/status") for text in [said_by(file)]
                  if text.startswith("Name:\tferry-agent\n")]
        self.assertEqual(1, len(status), status)
        return sum(int(line.split()[1]) for line in status[0] if line.startswith("VmRSS:")) / 1024

    # --- and what happens --------------------------------------------------------------------------------------------

    def test_a_runtime_comes_and_goes_with_its_label(self) -> None:
        try:
            self.comes_and_goes()
        except Exception:
            self.ferry.print_logs()
            print(CONTAINERD_CONFIGURATION.read_text())
            raise

    def comes_and_goes(self) -> None:
        kubernetes = self.kubernetes
        original = CONTAINERD_CONFIGURATION.read_bytes()
        self.install()
        kubernetes.run_pod("stays")
        kubernetes.wait_for_pod("stays")
        kubernetes.run_pod("guest", runtimeClassName=HANDLER)
        wait_until("the scheduler finds no node for it", lambda: any(
            one.get("reason") == "Unschedulable" for one in kubernetes.pod("guest").get("conditions", [])), 60)
        before = self.lives()

        kubernetes.kubectl("label", "node", NODE, f"{CHOSEN}=true")
        begin = time.monotonic()
        wait_until("the node has the runtime", self.is_ready, 180)
        kubernetes.wait_for_pod("guest")
        print(f"a pod of {HANDLER} runs {time.monotonic() - begin:.0f} s after the label")
        self.assertEqual(1, self.restarts_of_containerd())
        self.assertEqual({f"/etc/ferry/kata/{HANDLER}/configuration.toml"}, set(TOLD.read_text().splitlines()))
        self.assertEqual("", self.error())
        if kubernetes.release.current:
            wait_until("the node's status lists the handler", lambda: HANDLER in self.handlers_of_the_status(), 60)
        wait_until("an event tells of it", lambda: self.events("RuntimeReady"), 30)
        self.assertEqual(before, self.lives(), "containerd was restarted below them")

        # It does not go below a pod.
        kubernetes.kubectl("label", "node", NODE, f"{CHOSEN}-")
        wait_until("it says who has it", lambda: "default/guest" in self.error(), 60)
        self.assertIn(HANDLER, CONTAINERD_CONFIGURATION.read_text())
        self.assertEqual("Running", kubernetes.pod("guest")["phase"])
        kubernetes.kubectl("delete", "pod", "guest", "--grace-period=5", "--wait", "--timeout=60s")
        wait_until("the runtime is gone", lambda: CONTAINERD_CONFIGURATION.read_bytes() == original, 400)
        if kubernetes.release.current:
            wait_until("the node's status lists it no more", lambda: HANDLER not in self.handlers_of_the_status(), 60)
        wait_until("the Node reports it", lambda: READY not in self.node()["labels"] and not self.error(), 60)
        self.assertEqual(2, self.restarts_of_containerd())
        self.assertEqual(before, self.lives())

        self.assertIn("ferry_artifact_pulls_total{result=\"done\"} 1\n", self.metrics())
        resident = self.resident_mib()
        print(f"the agent has {resident:.1f} MiB in memory")
        self.assertTrue(0 < resident < MOST_MIB, resident)
        self.outlives_the_chart(original)
        self.assertEqual(before["c"], self.lives_of(kubernetes.get("pod", "stays"))["c"])

    def outlives_the_chart(self, original: bytes) -> None:
        """Where a pod has it, until somebody takes it away by hand, and that not below the pod."""
        kubernetes = self.kubernetes
        kubernetes.kubectl("label", "node", NODE, f"{CHOSEN}=true")
        wait_until("the node has the runtime again", self.is_ready, 180)
        kubernetes.run_pod("guest", runtimeClassName=HANDLER)
        kubernetes.wait_for_pod("guest")
        guest = self.lives_of(kubernetes.get("pod", "guest"))
        self.ferry.helm(self.helms[-1], "uninstall", "ferry")
        wait_until("the chart's containers have ended", lambda: not any(
            map(self.lives_of, kubernetes.read(f"namespaces/{SPACE}/pods")["items"])), 120)

        installed = CONTAINERD_CONFIGURATION.read_bytes()
        uninstall = (os.environ["CLUSTER_BIN"] + "/ferry", "kata", "uninstall")
        refused = subprocess.run(uninstall, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(4, refused.returncode, refused.stderr)
        self.assertIn("default/guest", refused.stderr)

        waiting = Program(kubernetes.logs, *uninstall, "--wait", "120", name="ferry-kata-uninstall")
        waiting.start()
        waiting.wait_until("it waits", lambda: "waiting for" in waiting.log.read_text(), 60)
        self.assertIn("default/guest", waiting.log.read_text())
        self.assertEqual(installed, CONTAINERD_CONFIGURATION.read_bytes())
        self.assertEqual(3, self.restarts_of_containerd())
        self.assertEqual(guest, self.lives_of(kubernetes.get("pod", "guest")))
        kubernetes.kubectl("delete", "pod", "guest", "--grace-period=5", "--wait", "--timeout=60s")
        wait_until("it has ended", lambda: not waiting.runs, 90)
        waiting.stop()
        self.assertEqual(0, waiting.last_status, waiting.log.read_text())
        self.assertEqual(original, CONTAINERD_CONFIGURATION.read_bytes())
        self.assertEqual(4, self.restarts_of_containerd())
        self.assertFalse(pathlib.Path("/etc/ferry/kata", HANDLER).exists())
        kubernetes.run_pod("later")
        kubernetes.wait_for_pod("later")

    def install(self) -> None:
        self.make_secrets()
        self.ferry.helm(self.helms[-1], "install", "ferry", CHART, values=VALUES_OF_ALL)
        self.kubernetes.kubectl("label", "node", NODE, f"{PRESENT}=true")
        wait_until("the pods run", self.ferry.runs, 120)
        wait_until("the metrics are shown", self.shows_metrics, 60)

    def shows_metrics(self) -> str:
        try:
            return self.metrics()
        except OSError:
            return ""
