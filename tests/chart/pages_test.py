# SPDX-License-Identifier: Apache-2.0
"""The YAML of the pages: it parses, Kubernetes' own kinds have the fields of their types, and values render."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import yaml

import chart

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster/lib"))
from cluster.page_blocks import Block, blocks, is_of_kubevirt  # noqa: E402

# Parts of a file, by page and first key. Other suites read the whole files of these forms.
FRAGMENTS = {("docs/agent.md", "spec"), ("docs/dra.md", "version"), ("docs/kata.md", "runtimeRequestTimeout"),
             ("docs/kata.md", "version"), ("docs/kata-reference.md", "version"),
             ("docs/labels.md", "master"), ("docs/policy.md", "version"),
             ("docs/sanitize.md", "version")}
UPGRADE = re.compile(r"^\$ helm upgrade ferry charts/ferry --namespace ferry --reset-then-reuse-values((?:.*\\\n)*.*)$", re.MULTILINE)


class PagesTest(unittest.TestCase):
    def test_each_block_has_a_known_form(self) -> None:
        met = set()
        for block in blocks():
            with self.subTest(block.place):
                for document in block.documents():
                    self.assertIsInstance(document, dict)
                if not block.manifests() and not block.file.endswith("values.yaml"):
                    fragment = (block.page, next(iter(block.documents()[0])))
                    self.assertIn(fragment, FRAGMENTS)
                    met.add(fragment)
        self.assertEqual(FRAGMENTS, met)

    def test_manifests_have_the_fields_of_their_kinds(self) -> None:
        if not os.environ["FERRY_K8S_CHECKS"]:
            self.skipTest("k8s-strict cannot be had, and no page is held against the types of Kubernetes")
        held = 0
        for block in blocks():
            for text, one in zip(block.texts(), block.documents()):
                if "apiVersion" in one and "kind" in one and not is_of_kubevirt(one):  # kubevirt_test.py has the others
                    with self.subTest(block.place, kind=one["kind"]):
                        done = subprocess.run([os.environ["FERRY_K8S_CHECKS"] + "/k8s-strict", "-"], input=text, text=True,
                                              capture_output=True, check=False)
                        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                        held += 1
        self.assertGreaterEqual(held, 8)

    def test_values_render(self) -> None:
        values = [block for block in blocks() if block.file.endswith("values.yaml")]
        self.assertTrue(values)
        for block in values:
            with self.subTest(block.place):
                self.assertTrue(chart.render(block.documents()[0]))

    def test_the_upgrades_of_a_page_are_accepted_one_after_the_other(self) -> None:
        """Each has the values of those before, as Helm keeps them, and of the files with values."""
        played = 0
        for page in sorted((chart.REPOSITORY / "docs").glob("*.md")):
            text = page.read_text()
            files = [block for block in blocks() if block.page == f"docs/{page.name}" and block.file]
            steps = [(block.line, ["--values", block.file]) for block in files if block.file.endswith("values.yaml")]
            steps += [(text.count("\n", 0, found.start()) + 1, shlex.split(found[1].replace("\\\n", " ")))
                      for found in UPGRADE.finditer(text)]
            values = chart.with_image({})
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                for block in files:
                    pathlib.Path(block.file).write_text(block.text)
                for line, words in sorted(steps):
                    with self.subTest(f"{page.name}:{line}"):
                        pathlib.Path("before.yaml").write_text(yaml.safe_dump(values))
                        done = chart.run(chart.newest(), "install", "ferry", str(chart.CHART), "--dry-run=client", "--output=json",
                                         "--values", "before.yaml", *words)
                        self.assertEqual(done.returncode, 0, done.stderr)
                        values = json.loads(done.stdout)["config"]
                        played += 1
        self.assertGreaterEqual(played, 12)

    def test_policies_and_profiles_are_read(self) -> None:
        """The program reads them on a host without GPUs: a fault of the file ends with 2."""
        held = 0
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "sys/bus/pci/devices").mkdir(parents=True)
            file = root / "config.yaml"

            def status(text: str, name: str) -> tuple[int, str]:
                file.write_text(text)
                done = subprocess.run([os.environ["FERRY_BIN"] + "/ferry", "--host-root", str(root), "assert", "-f", str(file), "-c", name],
                                      capture_output=True, text=True, check=False)
                return done.returncode, done.stderr

            for block in blocks():
                for one in block.manifests():
                    text = one.get("data", {}).get("config.yaml") if one["kind"] == "ConfigMap" else None
                    content = yaml.safe_load(text) if text else {}
                    for name in {**content.get("policies", {}), **content.get("vgpu-configs", {})}:
                        with self.subTest(block.place, name=name):
                            found, why = status(text, name)
                            self.assertNotEqual(found, 2, why)
                            self.assertEqual(status(text.rstrip() + "\nno-such-key: 1\n", name)[0], 2)
                            held += 1
        self.assertGreaterEqual(held, 4)

    def test_a_vm_requests_a_device_that_its_page_permits(self) -> None:
        asked, permitted = set(), set()
        for block in blocks():
            for one in block.manifests():
                if one["kind"] == "KubeVirt":
                    lists = one["spec"]["configuration"].get("permittedHostDevices", {}).values()
                    permitted |= {(block.page, entry["resourceName"]) for entries in lists for entry in entries}
                elif is_of_kubevirt(one):
                    spec = one["spec"]["template"]["spec"] if one["kind"] == "VirtualMachine" else one["spec"]
                    disks = {disk["name"] for disk in spec["domain"]["devices"]["disks"]}
                    self.assertEqual(disks, {volume["name"] for volume in spec["volumes"]}, block.place)
                    asked |= {(block.page, gpu["deviceName"]) for gpu in spec["domain"]["devices"]["gpus"] if "deviceName" in gpu}
        self.assertGreaterEqual(len(asked), 3)
        self.assertLessEqual(asked, permitted)

    def test_a_vm_has_the_claim_of_its_gpu(self) -> None:
        """The template of the same block has one request of one device for each GPU, as KubeVirt requires."""
        held = 0
        for block in blocks():
            templates = {one["metadata"]["name"]: {request["name"]: request.get("exactly", {}) for request in
                                                   one["spec"]["spec"]["devices"]["requests"]}
                         for one in block.manifests() if one["kind"] == "ResourceClaimTemplate"}
            for one in block.manifests():
                if one["kind"] != "VirtualMachineInstance" or "resourceClaims" not in one["spec"]:
                    continue
                with self.subTest(block.place):
                    claims = {claim["name"]: templates[claim["resourceClaimTemplateName"]] for claim in one["spec"]["resourceClaims"]}
                    gpus = [(gpu["claimName"], gpu["requestName"]) for gpu in one["spec"]["domain"]["devices"]["gpus"]]
                    self.assertEqual(len(gpus), len(set(gpus)))
                    self.assertEqual(set(gpus), {(name, request) for name, requests in claims.items() for request in requests})
                    for name, request in gpus:
                        self.assertNotIn("count", claims[name][request])
                        self.assertIn(claims[name][request]["deviceClassName"], ("whole.gpu-ferry.io", "vgpu.gpu-ferry.io"))
                    held += 1
        self.assertGreaterEqual(held, 3)

    def test_blocks_are_found(self) -> None:
        block = Block("page", 3, "# a-values.yaml\nkey: value\n---\napiVersion: v1\nkind: Pod\n")
        self.assertEqual("a-values.yaml", block.file)
        self.assertEqual(["Pod"], [one["kind"] for one in block.manifests()])
