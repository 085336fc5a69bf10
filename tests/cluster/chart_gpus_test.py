# SPDX-License-Identifier: Apache-2.0
"""The chart's pods on a node whose GPUs can be bound: labels and configurations asked, in containers with the rights and the
parts of the host that the chart gives them, and no more."""

import json
import os
import pathlib
import re
import time
import unittest
from typing import Any

from cluster.ferry_chart import CHART, PRESENT, SPACE, VALUES, FerryChart, helms
from cluster.kubernetes import NODE, Kubernetes
from cluster.living_host import LivingHost
from cluster.programs import Failure, wait_until

AUDIO = "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER"
CARD, TESLA, VGPU = "nvidia.com/AD102_GEFORCE_RTX_4090", "nvidia.com/TU104GL_TESLA_T4", "nvidia.com/GRID_T4-4Q"
OWN, ON_VFIO = ("nvidia", "snd_hda_intel", "nvidia"), ("vfio-pci", "vfio-pci", "vfio-pci")
WORKLOAD, POLICY = "nvidia.com/gpu.workload.config", "gpu-ferry.io/policy"
VGPU_CONFIG = "nvidia.com/vgpu.config"
VGPU_STATE, STATE, ERROR = "nvidia.com/vgpu.config.state", "gpu-ferry.io/state", "gpu-ferry.io/last-error"
MIXED = """version: v2
policies:
  mixed:
  - {devices: all, mode: host}
  - {model: "*T4*", mode: passthrough}
"""
PROFILES = """version: v1
vgpu-configs:
  four:
  - {devices: all, device-filter: "0x1EB810DE", vgpu-devices: {"T4-4Q": 4}}
"""
CHOSEN: dict[str, Any] = {**VALUES, "defaults": {"workload": "container"}, "config": {"policies": MIXED, "configMaps": ["ours"]},
                          "gpuOperator": {"enabled": True}}


class ChartGpusTest(unittest.TestCase):
    """The default policy leaves every GPU to the host."""

    @classmethod
    def setUpClass(cls) -> None:
        programs = helms()
        if not programs:
            raise unittest.SkipTest("there is no Helm to be had")
        cls.program = programs[-1]
        folder, binaries = pathlib.Path(os.environ["CLUSTER_FOLDER"]), os.environ["CLUSTER_BIN"]
        cls.kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]), folder, os.environ["CLUSTER_GROUP"],
                                    f"{binaries}/systemd-standin")
        cls.host = LivingHost(folder / "host", cls.kubernetes.logs, f"{binaries}/kernel-standin")
        cls.host.start()
        cls.host.become_the_boxes()
        cls.kubernetes.start()
        cls.ferry = FerryChart(cls.kubernetes)
        cls.kubernetes.kubectl("create", "namespace", "gpu-operator")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.host.kernel.stop()

    # --- what is to be seen ------------------------------------------------------------------------------------------

    def metadata(self) -> Any:
        return self.kubernetes.node()["metadata"]

    def error(self) -> str:
        return str(self.metadata().get("annotations", {}).get(ERROR, ""))

    def wait_until_is(self, *drivers: str) -> None:
        wait_until(f"the drivers are {drivers}, and the Node reports it", lambda: self.host.drivers() == drivers
                   and self.metadata()["labels"].get(STATE) == "ready" and not self.error(), 90)

    def wait_until_allocatable(self, expected: dict[str, int]) -> None:
        wait_until(f"the kubelet has {expected}", lambda: expected == self.devices_of_kubelet(), 60)

    def label(self, key: str, value: str = "") -> None:
        self.kubernetes.kubectl("label", "node", NODE, "--overwrite", f"{key}={value}" if value else f"{key}-")

    @staticmethod
    def status_files() -> set[str]:
        return {file.name for file in pathlib.Path("/run/nvidia/validations").iterdir()}

    def shown_by_guest_with(self, resource: str) -> str:
        """A pod with one device: the variable that names the device, and its device nodes."""
        # `env` is no use: a shell passes no variables on that have "-" in their names.
        self.kubernetes.run_pod("guest", {resource: 1}, "tr '\\0' '\\n' < /proc/1/environ | grep PCI_RESOURCE_; "
                                "ls /dev/vfio; echo END")
        self.kubernetes.wait_for_pod("guest")
        return str(wait_until("it says what it has", lambda: [
            text for text in [self.kubernetes.kubectl("logs", "guest")] if "END" in text], 30)[0])

    # --- and what happens --------------------------------------------------------------------------------------------

    def test_labels_bind_the_gpus_and_create_vgpus(self) -> None:
        try:
            self.obey()
        except Exception:
            print(self.host.drivers(), self.host.vgpus(), self.metadata())
            self.ferry.print_logs()
            raise

    def obey(self) -> None:
        kubernetes = self.kubernetes
        kubernetes.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours", "namespace": SPACE},
                          "data": {"config.yaml": PROFILES}})
        self.ferry.helm(self.program, "install", "ferry", CHART, values=CHOSEN)
        self.label(PRESENT, "true")
        first = wait_until("the pods run", self.ferry.runs, 120)
        self.wait_until_is(*OWN)

        self.label(WORKLOAD, "vm-passthrough")
        self.wait_until_is(*ON_VFIO)
        self.assertEqual({"workload-type", "vfio-pci-ready"}, self.status_files())
        self.wait_until_allocatable({CARD: 1, AUDIO: 1, TESLA: 1})
        self.assertRegex(self.shown_by_guest_with(CARD), "(?s)=0000:01:00.0\n.*11\nvfio\n")

        # Another version of all pods, below a pod that has a GPU.
        self.ferry.helm(self.program, "upgrade", "ferry", CHART, "--reuse-values",
                        values={part: {"logLevel": "debug"} for part in ("agent", "hostd", "plugin")})
        wait_until("other pods run", lambda: self.ferry.runs() and not set(first.split()) & set(self.ferry.runs().split()),
                   120)
        self.wait_until_allocatable({CARD: 1, AUDIO: 1, TESLA: 1})
        self.assertEqual(ON_VFIO, self.host.drivers())
        self.assertIn("running", kubernetes.pod("guest")["containerStatuses"][0]["state"])

        # It keeps its GPU; the other one goes back.
        self.label(WORKLOAD, "container")
        wait_until("it is refused", lambda: self.metadata()["labels"][STATE] == "blocked", 60)
        wait_until("it says who has it", lambda: re.search("0000:01:00.0 .*pod default/guest", self.error()), 60)
        self.assertEqual(("vfio-pci", "vfio-pci", "nvidia"), self.host.drivers())
        kubernetes.remove_pods()
        self.wait_until_is(*OWN)
        self.wait_until_allocatable({})

        self.label(VGPU_CONFIG, "four")
        self.label(WORKLOAD, "vm-vgpu")
        wait_until("it is divided", lambda: self.metadata()["labels"].get(VGPU_STATE) == "success", 60)
        self.assertEqual(4, len(self.host.vgpus()))
        self.wait_until_allocatable({VGPU: 4})
        self.assertIn(self.shown_by_guest_with(VGPU).split("=")[1].split()[0], self.host.vgpus())
        kubernetes.remove_pods()

        self.label(WORKLOAD)
        self.label(VGPU_CONFIG)
        self.label(POLICY, "mixed")
        self.wait_until_is("nvidia", "snd_hda_intel", "vfio-pci")
        self.ferry.helm(self.program, "upgrade", "ferry", CHART, "--reuse-values", values={
            "config": {"policies": MIXED.replace("*T4*", "*4090*")}, "agent": {"drain": {"enabled": True}},
            "uninstall": {"seconds": 5}})
        self.wait_until_is("vfio-pci", "vfio-pci", "nvidia")
        self.wait_until_allocatable({CARD: 1, AUDIO: 1})
        self.leave_in_the_middle_of_a_drain()

    def test_an_upgrade_from_a_release_with_the_plugin_in_hostds_pod(self) -> None:
        """The new plugin waits beside the former pod and then serves; a pod keeps its GPU, and so it is on the way back."""
        try:
            self.upgrade_from_one_pod()
        except Exception:
            print(self.host.drivers(), self.metadata())
            self.ferry.print_logs()
            raise
        finally:
            self.kubernetes.remove_pods()
            self.ferry.helm(self.program, "uninstall", "ferry")
            wait_until("the pods are gone", lambda: not self.kubernetes.get("pods", "-n", SPACE)["items"], 120)
            for key in (PRESENT, WORKLOAD, STATE):
                self.label(key)

    def upgrade_from_one_pod(self) -> None:
        ferry, all_of_them = self.ferry, {CARD: 1, AUDIO: 1, TESLA: 1}
        self.kubernetes.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours", "namespace": SPACE},
                               "data": {"config.yaml": PROFILES}})
        ferry.install_former(self.program, CHOSEN, "plugin")
        self.label(PRESENT, "true")
        self.label(WORKLOAD, "vm-passthrough")
        self.wait_until_is(*ON_VFIO)
        self.wait_until_allocatable(all_of_them)
        self.kubernetes.run_pod("guest", {CARD: 1})
        self.kubernetes.wait_for_pod("guest")
        wait_until("the plugin knows who has it", lambda: self.held() == {"0000:01:00.0"}, 30)
        (former,) = [pod for pod in ferry.pods() if len(pod["spec"]["containers"]) == 2]

        # The former pod stays until it is deleted, as on a node whose turn has not come.
        ferry.helm(self.program, "upgrade", "ferry", CHART, values={**CHOSEN, "updateStrategy": {"type": "OnDelete"}})
        wait_until("the new plugin runs", lambda: ferry.uid("plugin"), 120)
        new = ferry.pod("plugin")["metadata"]["name"]
        wait_until("it waits", lambda: "waiting for its end" in self.kubernetes.kubectl("logs", "-n", SPACE, new), 60)
        self.assertEqual(all_of_them, self.devices_of_kubelet(), "the former one serves")
        self.assertEqual({"0000:01:00.0"}, self.held())

        handed_over = self.seconds_without(all_of_them, former["metadata"]["name"])
        wait_until("each has a pod of its own", ferry.runs, 120)
        self.expect_the_guest_to_keep_its_gpu()
        restarted = self.seconds_without(all_of_them, new)
        self.expect_the_guest_to_keep_its_gpu()
        print(f"the kubelet lacked devices for {handed_over:.1f} s in the upgrade, and {restarted:.1f} s in a restart of the plugin")
        # The kubelet reports a change in its next status.
        self.assertLess(handed_over, restarted + 5)

        ferry.helm(self.program, "rollback", "ferry", "1")
        wait_until("hostd and plugin share a pod again", lambda: [
            pod for pod in ferry.pods() if len(pod["spec"]["containers"]) == 2 and pod["status"]["phase"] == "Running"], 120)
        self.wait_until_allocatable(all_of_them)
        self.expect_the_guest_to_keep_its_gpu()

    def seconds_without(self, devices: dict[str, int], pod: str) -> float:
        """For how long the Node lacks one of them while that pod goes and the plugin of another one serves."""
        self.kubernetes.kubectl("delete", "pod", "-n", SPACE, pod, "--wait=false")
        lacking = []

        def is_over() -> bool:
            if self.devices_of_kubelet() != devices:
                lacking.append(time.monotonic())
                return False
            # The kubelet may not have reported the gap at all.
            serving = self.ferry.pod("plugin")
            name = serving["metadata"]["name"] if serving else pod
            said = self.kubernetes.try_kubectl("logs", "-n", SPACE, name) if name != pod else None
            return all(f"registered {resource} " in (said or "") for resource in devices)
        wait_until(f"all are allocatable after the end of {pod}", is_over, 180)
        return lacking[-1] - lacking[0] if lacking else 0.0

    def devices_of_kubelet(self) -> dict[str, int]:
        return {name: count for name, count in self.kubernetes.devices().items() if count}

    @staticmethod
    def held() -> set[str]:
        """The cards that pods have, as the plugin knows it."""
        advertised = json.loads(pathlib.Path("/run/ferry/plugin/advertised.json").read_text())
        return {device["id"] for resource in advertised["resources"] if resource["name"] == CARD
                for device in resource["devices"] if device["allocated"]}

    def expect_the_guest_to_keep_its_gpu(self) -> None:
        self.assertEqual(ON_VFIO, self.host.drivers())
        self.assertIn("running", self.kubernetes.pod("guest")["containerStatuses"][0]["state"])
        wait_until("the plugin knows who has it", lambda: self.held() == {"0000:01:00.0"}, 30)

    def leave_in_the_middle_of_a_drain(self) -> None:
        """Without Ferry a node stays as it is, and is nobody's to wait for."""
        kubernetes = self.kubernetes
        kubernetes.run_pod("guest", {CARD: 1})
        kubernetes.wait_for_pod("guest")
        kubernetes.keep_pod("guest")
        self.label(POLICY)
        wait_until("it drains", lambda: self.metadata()["labels"][STATE] == "draining", 60)
        self.assertTrue(kubernetes.node()["spec"].get("unschedulable"), "it is cordoned")
        self.fail_to_leave()
        begin = time.monotonic()
        self.ferry.helm(self.program, "uninstall", "ferry")
        print(f"helm uninstall took {time.monotonic() - begin:.1f} s")
        self.assertEqual([], self.agents_pods(), "it has waited for them")
        self.assertNotIn("unschedulable", kubernetes.node()["spec"])
        self.assertNotIn("gpu-ferry.io/cordoned", self.metadata()["annotations"])
        self.assertEqual(("vfio-pci", "vfio-pci", "nvidia"), self.host.drivers())
        self.assertIn("running", kubernetes.pod("guest")["containerStatuses"][0]["state"])
        for kind in ("jobs", "roles", "rolebindings"):
            wait_until(f"{kind} are gone", lambda kind=kind: not kubernetes.get(kind, "-n", SPACE)["items"], 30)
        self.assertNotIn("ferry-uninstall", [one["metadata"]["name"] for one in kubernetes.get(
            "serviceaccounts", "-n", SPACE)["items"]])

    def fail_to_leave(self) -> None:
        """A pod does not go away: nobody loses a right."""
        kubernetes = self.kubernetes
        (pod,) = self.agents_pods()
        kept = ("patch", "pod", "-n", SPACE, pod["metadata"]["name"], "--type=merge", "-p")
        kubernetes.kubectl(*kept, '{"metadata": {"finalizers": ["example.com/kept"]}}')
        with self.assertRaises(Failure) as failure:
            self.ferry.helm(self.program, "uninstall", "ferry")
        self.assertIn("ferry-uninstall", str(failure.exception))
        self.assertIn("DaemonSet ferry/ferry-agent is still there after 5 s: a pod of it has not ended",
                      kubernetes.kubectl("logs", "-n", SPACE, "job/ferry-uninstall"))
        self.assertIn("ferry-node", [one["metadata"]["name"] for one in kubernetes.get("clusterroles")["items"]])
        wait_until("its agent has uncordoned", lambda: "unschedulable" not in kubernetes.node()["spec"], 30)
        # A kubelet looks at times, every 10 s, for what of a pod that has ended can go: what waits meanwhile is not ours.
        wait_until("its kubelet has done with it", lambda: [
            one["metadata"].get("deletionGracePeriodSeconds") for one in self.agents_pods()] == [0], 60)
        kubernetes.kubectl(*kept, '{"metadata": {"finalizers": null}}')

    def agents_pods(self) -> list[Any]:
        return list(self.kubernetes.get("pods", "-n", SPACE, "-l", "app.kubernetes.io/component=agent")["items"])
