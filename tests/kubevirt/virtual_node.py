# SPDX-License-Identifier: Apache-2.0
"""The virtual GPU node (tests/node) as a second Node of the cluster in a box: its network, its images, its kubelet."""

import json
import os
import pathlib
import shutil
import subprocess
from typing import Any

from cluster import pod_network
from cluster.kubernetes import CONTAINERD, OTHER_KUBELET, Kubernetes
from cluster.programs import Program, wait_until

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
NAME, ADDRESS, GATEWAY = "gpu-1", "10.202.0.2", "10.202.0.1"
PODS = "10.203"  # the first two numbers of its pods' addresses
TAP = "gpu-1"


def make_disk(programs: pathlib.Path, folder: pathlib.Path, images: list[pathlib.Path]) -> pathlib.Path:
    """An image of a disk that has, in its folder `containerd`, a containerd's data with these images: under emulation their import
    takes minutes."""
    root, socket = folder / "root", folder / "containerd.sock"
    (root / "containerd").mkdir(parents=True)
    configuration = folder / "containerd.toml"
    configuration.write_text(f'version = 3\nroot = "{root}/containerd"\nstate = "{folder}/state"\n'
                             f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{socket}"\n')
    containerd = Program(folder, str(programs / "containerd"), "--config", str(configuration), name="containerd-of-the-disk")
    containerd.start()
    ctr = [str(programs / "ctr"), "--address", str(socket), "-n", "k8s.io"]
    containerd.wait_until("containerd answers", lambda: subprocess.run([*ctr, "version"], capture_output=True, check=False)
                          .returncode == 0, 60)
    for image in images:
        subprocess.run([*ctr, "images", "import", str(image)], check=True, capture_output=True)
    containerd.stop()
    disk = folder / "disk.img"
    # Room for the containers' writes; the file has holes.
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(disk), "6G"], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(root)
    return disk


class VirtualNode:
    def __init__(self, kubernetes: Kubernetes, programs: pathlib.Path, folder: pathlib.Path, images: list[pathlib.Path]) -> None:
        """`images`: those that the node has from the start, besides Ferry's."""
        self.kubernetes, self.folder = kubernetes, folder
        self.share = folder / "share"
        self.share.mkdir(parents=True)
        self._programs = programs
        self._images = images
        self._run: Program | None = None

    def start(self) -> None:
        """Returns when the machine boots."""
        for words in (["tuntap", "add", TAP, "mode", "tap"], ["address", "add", f"{GATEWAY}/24", "dev", TAP],
                      ["link", "set", TAP, "up"], ["route", "add", f"{PODS}.0.0/16", "via", ADDRESS]):
            subprocess.run(["ip", *words], check=True)
        pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        self._hand_over()
        ferry = self.folder / "ferry.tar"
        subprocess.run([REPOSITORY / "images/build", "--bin", os.environ["CLUSTER_BIN"], ferry], check=True, stdout=subprocess.DEVNULL)
        disk = make_disk(self._programs, self.folder, [ferry, *self._images])
        os.environ["FERRY_KUBERNETES"] = str(self._programs)
        self._run = Program(self.kubernetes.logs, str(REPOSITORY / "tests/node/run"), str(REPOSITORY / "tests/kubevirt/node.toml"),
                            "--out", str(self.folder / "out"), "--bin", os.environ["CLUSTER_BIN"], "--share", str(self.share),
                            "--scratch-disk", str(disk), "--tap", TAP, "--verbose", name="virtual-node")
        self._run.start()

    def _hand_over(self) -> None:
        shutil.copy(self.kubernetes.authority, self.share / "authority")
        kubeconfig = json.loads(self.kubernetes.kubeconfig(OTHER_KUBELET).read_text())
        kubeconfig["clusters"][0]["cluster"]["certificate-authority"] = "/mnt/share/authority"
        (self.share / "kubelet.kubeconfig").write_text(json.dumps(kubeconfig))
        (self.share / "kubelet.yaml").write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs", "failSwapOn": False, "resolvConf": "",
            "containerRuntimeEndpoint": f"unix://{CONTAINERD}", "imageGCHighThresholdPercent": 100,
            # Under emulation each look at all containers takes a second of a processor.
            "featureGates": {"EventedPLEG": True}, "volumeStatsAggPeriod": "-1s",
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"}}))
        pod_network.install(self.share / "networks", self.share / "programs", PODS)

    def wait_until_ready(self) -> None:
        assert self._run
        self._run.wait_until("the virtual node is Ready", lambda: self.kubernetes.try_kubectl(
            "wait", "--for=condition=Ready", f"node/{NAME}", "--timeout=1s"), 300)

    def console(self) -> str:
        """All that its console has shown."""
        return (self.kubernetes.logs / "virtual-node.log").read_text(errors="replace")

    def stop(self) -> None:
        """Ends it in order, and fails where its kernel has complained."""
        run = self._run
        if not run:
            return
        (self.share / "end").touch()
        wait_until("the virtual node has ended", lambda: not run.runs, 120)
        run.stop()
        assert run.last_status == 0, self.console()[-3000:]

    # --- what people do on it --------------------------------------------------------------------------------------------

    def shell(self, script: str) -> str:
        """The output of bash on the node, as by a pod of an administrator."""
        return self.kubernetes.kubectl("exec", "node-shell", "--", "nsenter", "-t1", "-m", "-p", "-n", "-i", "bash", "-c", script)

    def open_shell(self) -> None:
        pod: dict[str, Any] = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "node-shell"},
            "spec": {"nodeName": NAME, "hostPID": True, "hostNetwork": True, "terminationGracePeriodSeconds": 0,
                     "containers": [{"name": "c", "image": "localhost/busybox:1", "imagePullPolicy": "Never",
                                     "command": ["sleep", "1000000"], "securityContext": {"privileged": True}}]}}
        self.kubernetes.apply(pod)
        self.kubernetes.kubectl("wait", "--for=condition=Ready", "pod/node-shell", "--timeout=120s")
