# SPDX-License-Identifier: Apache-2.0
"""The KubeVirt objects of the pages, the manual and the reported cases, by kubevirt-strict (scripts/lib/kubevirt-strict)."""

import csv
import functools
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster/lib"))
from cluster.page_blocks import REPOSITORY, Block, blocks, is_of_kubevirt  # noqa: E402

TOOL = os.environ.get("FERRY_KUBEVIRT_STRICT", "")
# Feature gates that pages name (scripts/lib/check-neighbours), and one that a message names.
GATES = ["PCINUMAAwareTopology"]
with (REPOSITORY / "tests/docs/neighbours.tsv").open(encoding="utf-8") as table:
    GATES += [row["word"] for row in csv.DictReader(table, delimiter="\t")
              if row["program"] == "KubeVirt" and "/featuregate/" in row["source"]]
# Files with a key that the oldest release does not have.
NEWER = {"keep-mediated-devices.yaml": 'mediatedDevicesConfiguration.enabled"', "no-image-volumes.yaml": 'disabledFeatureGates"'}
# By file of the quick start: a text, a fault in its place, and a part of the complaint.
FAULTS = (
    ("gpu-vm.yaml", "deviceName:", "devicename:", 'unknown field "spec.template.spec.domain.devices.gpus[0].devicename"'),
    ("gpu-vm.yaml", "deviceName:", "claimname:", 'gpus[0].claimname"'),
    ("gpu-vm.yaml", "- name: gpu0", "- tag: gpu0", "gpus[0].name: Required value"),
    ("gpu-vm.yaml", "gpus:", "hostDevice:", 'devices.hostDevice"'),
    ("gpu-vm.yaml", "secureBoot: false", "secureboot: false", 'bootloader.efi.secureboot"'),
    ("gpu-vm.yaml", "secureBoot: false", 'secureBoot: "no"', "secureBoot of type bool"),
    ("gpu-vm.yaml", "guest: 8Gi", "guest: 8GB", "quantities must match"),
    ("gpu-vm.yaml", "cores: 4", "cores: 4\n          cores: 8", '"cores" already set'),
    ("gpu-vm.yaml", "runStrategy:", "runStrategie:", 'unknown field "spec.runStrategie"'),
    ("gpu-vm.yaml", "  name: gpu-vm", "  nmae: gpu-vm", 'unknown field "metadata.nmae"'),
    ("gpu-vm.yaml", "kubevirt.io/v1", "kubevirt.io/v2", "no kind"),
    ("gpu-vm.yaml", "kind: VirtualMachine", "kind: VirtualMachines", "no kind"),
    ("permit.yaml", "pciVendorSelector:", "pciDeviceSelector:", 'pciHostDevices[0].pciDeviceSelector"'),
    ("permit.yaml", "externalResourceProvider: true", 'externalResourceProvider: "true"', "of type bool"),
    ("permit.yaml", "configuration:", "configuration:\n    mediatedDevicesConfiguration: {enable: false}", 'Configuration.enable"'),
    ("permit.yaml", "configuration:", "configuration:\n    developerConfiguration: {featureGates: [GpusWithDRA]}",
     'unknown feature gate "GpusWithDRA"'))


@functools.cache
def objects() -> list[tuple[Block, str]]:
    """Each with the place that it comes from."""
    manual = REPOSITORY / "docs/man/ferry-plugin.8"  # of which tests/package/manual holds that the program prints it
    printed = re.findall(r"^apiVersion: kubevirt\.io/.*?(?=^\.Ed$)", manual.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    cases = [file.read_text(encoding="utf-8") for file in (REPOSITORY / "tests/fixtures/cases/kubevirt").glob("*.yaml")]
    others = [Block(page, 1, text) for page, texts in ((manual.name, printed), ("cases/kubevirt", cases)) for text in texts]
    return [(block, text) for block in [*blocks(), *others]
            for text, one in zip(block.texts(), block.documents()) if is_of_kubevirt(one)]


def shown(file: str) -> str:
    return next(text for block, text in objects() if block.page == "docs/quickstart.md" and block.file == file)


@unittest.skipUnless(TOOL, "FERRY_KUBEVIRT_STRICT names no folder of kubevirt-strict")
class KubeVirtTest(unittest.TestCase):
    def complaint(self, text: str, release: str = "newest") -> str:
        """Empty: it is right."""
        done = subprocess.run([TOOL + "/kubevirt-strict", f"{TOOL}/{release}"], input=text, capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.stdout if done.returncode else ""

    def test_objects_are_as_the_newest_release_has_them(self) -> None:
        for block, text in objects():
            with self.subTest(block.place):
                self.assertEqual(self.complaint(text), "")
        self.assertLessEqual({"README.md", "docs/dra.md", "docs/quickstart.md", "ferry-plugin.8", "cases/kubevirt"},
                             {block.page for block, _ in objects()})

    def test_objects_are_as_the_oldest_release_has_them(self) -> None:
        """Save those for claims and those of NEWER, which need a later one."""
        for block, text in objects():
            with self.subTest(block.place):
                if block.file in NEWER:
                    self.assertIn(NEWER[block.file], self.complaint(text, "oldest"))
                elif block.page != "docs/dra.md":
                    self.assertEqual(self.complaint(text, "oldest"), "")

    def test_feature_gates_are_known(self) -> None:
        for gate in GATES:
            with self.subTest(gate):
                text = f"configuration:\n    developerConfiguration: {{featureGates: [{gate}]}}"
                self.assertEqual(self.complaint(shown("permit.yaml").replace("configuration:", text)), "")

    def test_a_fault_is_found(self) -> None:
        for file, right, wrong, complaint in FAULTS:
            with self.subTest(wrong):
                self.assertIn(right, shown(file))
                self.assertIn(complaint, self.complaint(shown(file).replace(right, wrong, 1)))

    def test_each_document_counts(self) -> None:
        self.assertIn("document 2: ", self.complaint(shown("permit.yaml") + "---\n" + shown("gpu-vm.yaml").replace("cores", "kores")))
        self.assertIn("0 documents are right", self.complaint(""))
