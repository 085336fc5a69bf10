# SPDX-License-Identifier: Apache-2.0
"""A real API server admits each manifest that the pages show, without keeping it (a server-side dry run)."""

import os
import pathlib
import subprocess
import unittest
from typing import Any

import yaml

import kubevirt_cr
from cluster.ferry_chart import CHART, SPACE, helms
from cluster.kubernetes import Kubernetes
from cluster.page_blocks import Block, blocks
from cluster.programs import Failure, wait_until

MACHINES = {"VirtualMachine", "VirtualMachineInstance"}  # tests/chart/kubevirt_test.py has them


class PagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.helms = helms()
        cls.kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]),
                                    pathlib.Path(os.environ["CLUSTER_FOLDER"]), os.environ["CLUSTER_GROUP"])
        if not cls.helms or not cls.kubernetes.release.current:
            raise unittest.SkipTest("this needs Helm and a kubectl that validates strictly")
        cls.kubernetes.start()
        cls.shown = blocks()
        spaces = {one["metadata"]["name"]: one for block in cls.shown for one in block.manifests() if one["kind"] == "Namespace"}
        cls.kubernetes.apply(*spaces.values(), *cls.runtime_classes(), kubevirt_cr.DEFINITION)
        cls.kubernetes.kubectl("create", "namespace", kubevirt_cr.SPACE)
        for space in spaces:
            wait_until(f"{space} has its account", lambda space=space: cls.kubernetes.try_kubectl(
                "get", "serviceaccount", "default", "-n", space), 60)
        wait_until("the API server knows KubeVirt objects", lambda: cls.kubernetes.try_kubectl(
            "get", "--raw", "/apis/kubevirt.io/v1/kubevirts"), 60)

    @classmethod
    def runtime_classes(cls) -> list[Any]:
        """kata-deploy's, and those that the chart renders from a page's values: a pod of a missing class is refused."""
        name = "kata-qemu-nvidia-gpu"
        out: list[Any] = [{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}]
        for block in cls.shown:
            if block.file.endswith("values.yaml"):
                done = subprocess.run([cls.helms[-1], "template", "ferry", CHART, "--namespace", SPACE,
                                       "--set", "image.repository=ferry", "--values", "-"],
                                      input=block.text, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise Failure(f"{block.place}: {done.stderr}")
                out += [one for one in yaml.safe_load_all(done.stdout) if one and one["kind"] == "RuntimeClass"]
        return out

    def admitted(self, text: str) -> bool:
        return self.kubernetes.try_kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text) is not None

    def manifests(self) -> list[tuple[Block, Any]]:
        return [(block, one) for block in self.shown for one in block.manifests() if one["kind"] not in MACHINES]

    def test_each_manifest_is_admitted(self) -> None:
        for block, one in self.manifests():
            with self.subTest(block.place, kind=one["kind"]):
                self.assertTrue(self.admitted(yaml.safe_dump(one)), self.kubernetes.last_error)
        kinds = {one["kind"] for _, one in self.manifests()}
        self.assertLessEqual({"ClusterRole", "KubeVirt", "Namespace", "Pod"}, kinds)

    def test_a_field_that_a_kind_lacks_is_refused(self) -> None:
        pod = next(one for _, one in self.manifests() if one["kind"] == "Pod")
        self.assertFalse(self.admitted(yaml.safe_dump({**pod, "spec": {**pod["spec"], "runtimeClas": "kata"}})))
        self.assertIn("runtimeClas", self.kubernetes.last_error)
        self.assertFalse(self.admitted(yaml.safe_dump({**pod, "spec": {**pod["spec"], "runtimeClassName": "no-such-class"}})))
