# SPDX-License-Identifier: Apache-2.0
"""Ferry beside kata-deploy 4.1: kata-deploy's drop-in file of containerd, its RuntimeClass and its labels, written as its chart
and its program write them, and the pod of docs/kata.md, which gets a GPU. Ferry installs no runtime here."""

import copy
import os
import pathlib
import shutil
import subprocess
import unittest
from typing import Any

from cluster.ferry_chart import CHART, PRESENT, REPOSITORY, VALUES, FerryChart, helms
from cluster.kubernetes import CONTAINERD_CONFIGURATION, IMAGE, NODE, Kubernetes
from cluster.living_host import LivingHost
from cluster.page_blocks import blocks
from cluster.programs import wait_until

HANDLER = "kata-qemu-nvidia-gpu"
DROP_IN = pathlib.Path("/etc/containerd/conf.d/kata-deploy.toml")
CONFIGURATION = pathlib.Path(
    "/opt/kata/share/defaults/kata-containers/runtimes/qemu-nvidia-gpu/configuration-qemu-nvidia-gpu.toml")
SHIM = pathlib.Path("/opt/kata/bin/containerd-shim-kata-v2")
INSTALLED = ("katacontainers.io/kata-runtime=true", "kata-deploy.katacontainers.io/default=true")
CC_READY, RESOURCE = "nvidia.com/cc.ready.state", "nvidia.com/pgpu"
RUNTIME = f"""[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{HANDLER}]
runtime_type = "io.containerd.{HANDLER}.v2"
runtime_path = "{SHIM}"
privileged_without_host_devices = true
pod_annotations = ["io.katacontainers.*"]
container_annotations = ["io.kubernetes.container.terminationMessage*"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{HANDLER}.options]
ConfigPath = "{CONFIGURATION}"
"""
PLACE = pathlib.Path("/opt/kata/share/kata-containers")  # of the guest's kernel and image
GUEST = f"""[hypervisor.qemu]
path = "/opt/kata/bin/qemu-system-x86_64"
kernel = "{PLACE}/vmlinuz"
image = "{PLACE}/image"
machine_type = "q35"
"""
CLASS: dict[str, Any] = {
    "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": HANDLER,
    "metadata": {"name": HANDLER, "labels": {"app.kubernetes.io/managed-by": "kata-deploy"}},
    "overhead": {"podFixed": {"memory": "10240Mi", "cpu": "1.0"}},
    "scheduling": {"nodeSelector": {"katacontainers.io/kata-runtime": "true", "kata-deploy.katacontainers.io/default": "true",
                                    CC_READY: "false"}}}
OF_FERRY: dict[str, Any] = {**VALUES, "plugin": {"mode": "kata"}, "agent": {"featureLabels": "node", "notConfidential": True}}


def pod_of_the_page() -> dict[str, Any]:
    """The pod of docs/kata.md, with the test's image and command."""
    [block] = [one for one in blocks() if one.file == "kata-deploy-pod.yaml"]
    [pod] = block.manifests()
    pod = copy.deepcopy(pod)
    pod["spec"]["containers"][0] |= {"image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000000"]}
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    return pod


class KataDeployTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        programs = helms()
        folder, binaries = pathlib.Path(os.environ["CLUSTER_FOLDER"]), os.environ["CLUSTER_BIN"]
        cls.kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]), folder, os.environ["CLUSTER_GROUP"],
                                    f"{binaries}/systemd-standin")
        if not programs or not cls.kubernetes.release.current:
            raise unittest.SkipTest("this needs Helm and a containerd with /etc/containerd/conf.d")
        cls.program, cls.folder = programs[-1], folder
        cls.host = LivingHost(folder / "host", cls.kubernetes.logs, f"{binaries}/kernel-standin")
        cls.host.start()
        cls.host.become_the_boxes()
        for file, text in ((DROP_IN, RUNTIME), (CONFIGURATION, GUEST), (PLACE / "vmlinuz", "kernel"), (PLACE / "image", "image")):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        SHIM.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / "tests/cluster/kata_shim_standin.py", SHIM)
        cls.kubernetes.containerd_imports = [f"{DROP_IN.parent}/*.toml"]
        cls.kubernetes.start()
        cls.ferry = FerryChart(cls.kubernetes)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.host.kernel.stop()

    def labels(self) -> Any:
        return self.kubernetes.node()["metadata"]["labels"]

    def test_the_pod_of_the_page_gets_a_gpu(self) -> None:
        try:
            self.get_a_gpu()
        except Exception:
            self.ferry.print_logs()
            raise

    def get_a_gpu(self) -> None:
        kubernetes = self.kubernetes
        runtime_files = {file: file.read_bytes() for file in (CONTAINERD_CONFIGURATION, DROP_IN)}
        kubernetes.kubectl("create", "namespace", "gpu-demo")
        kubernetes.apply(CLASS, pod_of_the_page())
        self.ferry.helm(self.program, "install", "ferry", CHART, values=OF_FERRY)
        kubernetes.kubectl("label", "node", NODE, f"{PRESENT}=true", "nvidia.com/gpu.workload.config=vm-passthrough")
        wait_until("both GPUs are advertised", lambda: kubernetes.devices().get(RESOURCE) == 2, 180)
        wait_until("Ferry declares that no GPU is in confidential mode", lambda: self.labels().get(CC_READY) == "false", 60)
        self.assertEqual("Pending", self.status()["phase"], "kata-deploy has not finished on this node")
        kubernetes.kubectl("label", "node", NODE, *INSTALLED)
        wait_until("the pod runs", lambda: self.status()["phase"] == "Running", 90)
        self.assertEqual({"memory": "10Gi", "cpu": "1"}, kubernetes.get("pod", "-n", "gpu-demo", "gpu-pod")["spec"]["overhead"])
        nodes = kubernetes.kubectl("exec", "-n", "gpu-demo", "gpu-pod", "--", "ls", "/dev/vfio").split()
        self.assertIn(nodes, (["11", "vfio"], ["12", "vfio"]), "one group of the node")
        self.assertEqual(runtime_files, {file: file.read_bytes() for file in runtime_files}, "Ferry changes no runtime")
        kubernetes.kubectl("delete", "pod", "-n", "gpu-demo", "gpu-pod", "--timeout=60s")

    def status(self) -> Any:
        return self.kubernetes.read("namespaces/gpu-demo/pods/gpu-pod")["status"]

    def test_a_class_of_ferrys_own_leaves_the_handler_to_kata_deploy(self) -> None:
        """`ferry kata plan`: an alias with kata-deploy's name is refused, and without it Ferry's drop-in stands beside."""
        classes, artifact = self.folder / "classes.yaml", pathlib.Path("/opt/kata-own")
        artifact.mkdir()
        for name, text in (("configuration.toml", GUEST), ("vmlinuz", "kernel"), ("image", "image")):
            (artifact / name).write_text(text)
        for alias, expected in ((f", aliases: [{HANDLER}]", 4), ("", 0)):
            classes.write_text("version: v2\nloadModules: false\nruntimeClasses:\n"
                               f"- {{name: kata-gpu, artifacts: {{url: 'file://{artifact}'}}{alias}}}\n")
            done = subprocess.run([os.environ["CLUSTER_BIN"] + "/ferry", "kata", "plan", "-f", str(classes)],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(expected, done.returncode, done.stdout + done.stderr)
            if expected:
                self.assertIn(HANDLER, done.stdout + done.stderr)
