# SPDX-License-Identifier: Apache-2.0
"""The image holds what the programs in it need, and says what it holds by the right digests."""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile
import unittest

import chart

BUILD = chart.REPOSITORY / "images/build"


class ImageTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def build(self, *words: str) -> str:
        return subprocess.run([BUILD, "--bin", os.environ["FERRY_BIN"], *words], capture_output=True, text=True,
                              check=True).stdout

    def test_the_programs_start_in_the_image(self) -> None:
        root = self.folder / "root"
        self.build("--folder", str(root))
        self.assertEqual(sorted(file.name for file in (root / "usr/bin").iterdir()), ["ferry", "ferry-agent", "ferry-dra", "ferry-fetch",
                                                                                   "kubectl-ferry", "prlimit", "setpriv", "skopeo"])
        # Not those that this machine trusts besides.
        packaged = [file.read_text().strip() for file in pathlib.Path("/usr/share/ca-certificates/mozilla").glob("*.crt")]
        trusted = (root / "etc/ssl/certs/ca-certificates.crt").read_text()
        self.assertEqual(len(packaged), trusted.count("BEGIN CERTIFICATE"))
        self.assertTrue(all(one in trusted for one in packaged))
        if os.geteuid() != 0:
            self.skipTest("only root can go into it")
        used = {container["command"][0] for container in chart.containers_of(chart.render({"dra": {"enabled": True}})).values()}
        used |= {"/usr/bin/ferry-fetch", "/usr/bin/prlimit", "/usr/bin/setpriv", "/usr/bin/skopeo", chart.hooks(event="test")["Job"]["spec"]["template"]["spec"]["containers"][0]["command"][0]}
        for program in sorted(used):
            said = subprocess.run(["chroot", root, program, "--version"], capture_output=True, text=True, check=False)
            self.assertEqual(said.returncode, 0, said.stderr)

    def test_other_vendors_devices_have_names_from_pci_ids(self) -> None:
        """The plugin's container has folders of the host below /host, and no pci.ids of the host's."""
        for mode in ("kubevirt", "kata", "both"):
            plugin = chart.containers_of(chart.render({"plugin": {"mode": mode}}))["plugin"]
            hidden = [one["mountPath"] for one in plugin["volumeMounts"]
                      if pathlib.PurePath("/host/usr/share/misc/pci.ids").is_relative_to(one["mountPath"])]
            self.assertEqual(hidden, [])
            self.assertIn("--host-root=/host", plugin["args"])
        if os.geteuid() != 0:
            self.skipTest("only root can go into it")
        root = self.folder / "root"
        self.build("--folder", str(root))
        device = root / "host/sys/bus/pci/devices/0000:03:00.0"
        for folder in ("", "../../drivers/vfio-pci", "../../../../kernel/iommu_groups/7/devices/0000:03:00.0"):
            (device / folder).mkdir(parents=True)
        for name, text in (("vendor", "0x1002"), ("device", "0x744c"), ("class", "0x030000"), ("numa_node", "-1")):
            (device / name).write_text(text + "\n")
        (device / "config").write_bytes(bytes(64))
        (device / "driver").symlink_to("../../drivers/vfio-pci")
        (device / "iommu_group").symlink_to("../../../../kernel/iommu_groups/7")
        said = subprocess.run(["chroot", root, "/usr/bin/ferry", "--host-root=/host", "kubevirt-cr"], capture_output=True,
                              text=True, check=True).stdout
        self.assertRegex(said, r"resourceName: amd\.com/NAVI_31\w*\n")

    def test_the_image_has_libraries_that_are_loaded_later(self) -> None:
        root = self.folder / "root"
        self.build("--folder", str(root))
        files = {file.name for file in root.rglob("*.so*")}
        source = (chart.REPOSITORY / "host/system/systemd_services.cpp").read_text()
        for name in re.findall(r'"(lib[\w.-]+\.so\.\d+)"', source):
            (library,) = root.rglob(name)
            printed = subprocess.run(["objdump", "-p", library], capture_output=True, text=True, check=True).stdout
            needed = set(re.findall(r"NEEDED\s+(\S+)", printed))
            self.assertTrue(needed)
            self.assertLessEqual(needed, files)

    def test_the_archive(self) -> None:
        said = self.build(str(self.folder / "a.tar"))
        print(said.strip())
        self.build(str(self.folder / "b.tar"))
        self.assertEqual((self.folder / "a.tar").read_bytes(), (self.folder / "b.tar").read_bytes())
        with tarfile.open(self.folder / "a.tar") as archive:
            contents = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
        for name, content in contents.items():
            if name.startswith("blobs/sha256/"):
                self.assertEqual(name.removeprefix("blobs/sha256/"), hashlib.sha256(content).hexdigest())
        (found,) = json.loads(contents["index.json"])["manifests"]
        self.assertEqual(found["annotations"]["io.containerd.image.name"],
                         "docker.io/library/" + chart.containers_of(chart.render())["agent"]["image"])
        manifest = json.loads(contents["blobs/sha256/" + found["digest"].removeprefix("sha256:")])
        (docker,) = json.loads(contents["manifest.json"])
        for place, blob in ((docker["Config"], manifest["config"]), (docker["Layers"][0], manifest["layers"][0])):
            self.assertEqual(place, "blobs/sha256/" + blob["digest"].removeprefix("sha256:"))
            self.assertEqual(len(contents[place]), blob["size"])
        config = json.loads(contents[docker["Config"]])
        self.assertEqual(config["rootfs"]["diff_ids"], [manifest["layers"][0]["digest"]])
