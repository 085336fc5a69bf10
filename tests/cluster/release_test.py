# SPDX-License-Identifier: Apache-2.0
"""A release as its users get it: scripts/release puts it into a registry on the loopback, Helm installs the chart from there, and
containerd pulls the image. The release before is in the registry too (tests/release/lib/checkout.py)."""

import contextlib
import os
import pathlib
import subprocess
import unittest
from collections.abc import Iterator
from typing import Any

from checkout import VERSION, clone, release_before, said
from cluster.ferry_chart import PRESENT, REPOSITORY, SPACE, FerryChart, helms
from cluster.kubernetes import NODE, Kubernetes
from cluster.living_host import LivingHost
from cluster.programs import wait_until
from cluster.registry import Registry

# Helm, containerd and scripts/release ask a registry of this name without TLS.
ADDRESS = "localhost:5000"
BEFORE = f"{ADDRESS}/before"
WORKLOAD, STATE = "nvidia.com/gpu.workload.config", "gpu-ferry.io/state"
CARD = "nvidia.com/AD102_GEFORCE_RTX_4090"
ALL = {CARD: 1, "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER": 1, "nvidia.com/TU104GL_TESLA_T4": 1}
ON_VFIO = ("vfio-pci", "vfio-pci", "vfio-pci")
CHOSEN: dict[str, Any] = {"minReadySeconds": 1, "defaults": {"workload": "container"}}


class ReleaseTest(unittest.TestCase):
    """The host is that of chart_gpus_test.py."""

    @classmethod
    def setUpClass(cls) -> None:
        programs = helms()
        registry = subprocess.run([REPOSITORY / "scripts/lib/docker-registry"], stdout=subprocess.PIPE, text=True, check=False)
        if not programs or registry.returncode:
            raise unittest.SkipTest("this needs Helm and docker-registry")
        cls.program = programs[-1]
        folder, binaries = pathlib.Path(os.environ["CLUSTER_FOLDER"]), pathlib.Path(os.environ["CLUSTER_BIN"])
        cls.kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]), folder, os.environ["CLUSTER_GROUP"],
                                    f"{binaries}/systemd-standin")
        Registry(registry.stdout.strip(), folder / "registry", cls.kubernetes.logs, ADDRESS)
        print(said(clone(folder / "tree") / "scripts/release", "--build", binaries.parent, ADDRESS))
        cls.before = release_before(folder, binaries, BEFORE)
        cls.host = LivingHost(folder / "host", cls.kubernetes.logs, f"{binaries}/kernel-standin")
        cls.host.start()
        cls.host.become_the_boxes()
        cls.kubernetes.start()
        cls.ferry = FerryChart(cls.kubernetes, pulled=True)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.host.kernel.stop()

    def setUp(self) -> None:
        self.addCleanup(self.remove)

    @contextlib.contextmanager
    def logs_of_a_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            print(self.host.drivers(), self.kubernetes.node()["metadata"])
            self.ferry.print_logs()
            raise

    def remove(self) -> None:
        self.kubernetes.remove_pods()
        self.ferry.helm(self.program, "uninstall", "ferry", "--ignore-not-found")
        wait_until("the pods are gone", lambda: not self.kubernetes.get("pods", "-n", SPACE)["items"], 120)
        for key in (PRESENT, WORKLOAD, STATE):
            self.label(key)

    def label(self, key: str, value: str = "") -> None:
        self.kubernetes.kubectl("label", "node", NODE, "--overwrite", f"{key}={value}" if value else f"{key}-")

    def helm_from(self, verb: str, registry: str, version: str, *words: str, values: Any) -> None:
        self.ferry.helm(self.program, verb, "ferry", f"oci://{registry}/charts/ferry", "--version", version, "--plain-http", *words, values=values)

    def expect_pods_of(self, registry: str, version: str) -> None:
        """Their containers have the image of that version, with the digest that the registry has for it."""
        digest = said("skopeo", "inspect", "--tls-verify=false", "--no-tags", "--format={{.Digest}}", f"docker://{registry}/ferry:{version}").strip()
        for pod in self.ferry.pods():
            for container in pod["status"]["containerStatuses"]:
                self.assertEqual(f"{registry}/ferry:{version}", container["image"])
                self.assertTrue(container["imageID"].endswith(digest), container["imageID"])

    def wait_until_allocatable(self) -> None:
        wait_until("the GPUs are bound, and the Node reports it", lambda: self.host.drivers() == ON_VFIO
                   and self.kubernetes.node()["metadata"]["labels"].get(STATE) == "ready", 90)
        wait_until("the kubelet has them", lambda: {name: count for name, count in self.kubernetes.devices().items() if count} == ALL, 60)

    def test_the_chart_in_a_registry_is_installed_with_its_image(self) -> None:
        with self.logs_of_a_failure():
            self.install()

    def install(self) -> None:
        self.helm_from("install", ADDRESS, VERSION, values=CHOSEN)
        self.label(PRESENT, "true")
        wait_until("the pods run", self.ferry.runs, 180)
        self.expect_pods_of(ADDRESS, VERSION)
        self.label(WORKLOAD, "vm-passthrough")
        self.wait_until_allocatable()
        self.assertIn("Succeeded", self.ferry.helm(self.program, "test", "ferry"))

    def test_an_upgrade_from_the_release_before_keeps_the_gpus(self) -> None:
        """And the way back."""
        with self.logs_of_a_failure():
            self.upgrade_and_roll_back()

    def upgrade_and_roll_back(self) -> None:
        self.helm_from("install", BEFORE, self.before, values={**CHOSEN, "image": {"repository": f"{BEFORE}/ferry"}})
        self.label(PRESENT, "true")
        self.label(WORKLOAD, "vm-passthrough")
        first = wait_until("the pods of the release before run", self.ferry.runs, 180)
        self.expect_pods_of(BEFORE, self.before)
        self.wait_until_allocatable()
        self.kubernetes.run_pod("guest", {CARD: 1})
        self.kubernetes.wait_for_pod("guest")

        self.helm_from("upgrade", ADDRESS, VERSION, "--reset-then-reuse-values", values={"image": {"repository": f"{ADDRESS}/ferry"}})
        second = self.wait_for_other_pods(first)
        self.expect_pods_of(ADDRESS, VERSION)
        self.expect_the_guest_to_keep_its_gpu()

        self.ferry.helm(self.program, "rollback", "ferry", "1")
        self.wait_for_other_pods(second)
        self.expect_pods_of(BEFORE, self.before)
        self.expect_the_guest_to_keep_its_gpu()

    def wait_for_other_pods(self, former: str) -> str:
        def others() -> str:
            now = self.ferry.runs()
            return now if now and not set(now.split()) & set(former.split()) else ""
        return str(wait_until("other pods run", others, 180))

    def expect_the_guest_to_keep_its_gpu(self) -> None:
        self.assertEqual(ON_VFIO, self.host.drivers())
        self.assertIn("running", self.kubernetes.pod("guest")["containerStatuses"][0]["state"])
        self.wait_until_allocatable()
