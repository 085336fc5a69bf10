# SPDX-License-Identifier: Apache-2.0
"""The programs of a Kubernetes of one node, inside a box (box.py): etcd, API server, scheduler; containerd, kubelet.

There is no controller manager, so nothing makes service accounts or judges nodes, and the API server asks for neither.
Nobody but the box's own processes can reach it, so it lets everybody do everything. Pods use the node's network.
"""

import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request
from typing import Any

from .box import NODE_ADDRESS
from .programs import Failure, Program, wait_until

API_SERVER = "https://127.0.0.1:6443"
CONTAINERD = "/run/containerd/containerd.sock"
IMAGE = "localhost/busybox:1"
NODE = "node"
CAP_SYS_RESOURCE = 24


def _may_lower_oom_scores() -> bool:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def _fetch(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return None


class Kubernetes:
    def __init__(self, programs: pathlib.Path, folder: pathlib.Path, control_group: str) -> None:
        """`programs`: as scripts/lib/kubernetes makes them. `folder`: for certificates, data and logs."""
        self._programs, self._folder = programs, folder
        # Where containerd looks for its shim, and that for runc.
        os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
        self.logs = folder / "logs"
        self.logs.mkdir()
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "box",
            "clusters": [{"name": "box", "cluster": {"server": API_SERVER, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "box", "user": {"token": "box"}}],
            "contexts": [{"name": "box", "context": {"cluster": "box", "user": "box"}}]}))
        kubelet = folder / "kubelet.yaml"
        kubelet.write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "readOnlyPort": 10255, "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{control_group}", "failSwapOn": False, "resolvConf": "", "nodeStatusUpdateFrequency": "1s",
            "nodeStatusReportFrequency": "1s", "syncFrequency": "1s",
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100}))
        self.kubelet = self._program(
            "kubelet", f"--config={kubelet}", f"--kubeconfig={self._kubeconfig}", "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{CONTAINERD}", f"--hostname-override={NODE}",
            f"--node-ip={NODE_ADDRESS}")

    def _program(self, name: str, *arguments: str) -> Program:
        return Program(self.logs, str(self._programs / name), *arguments)

    def start(self) -> None:
        self._start_control_plane()
        self._start_containerd()
        self.kubelet.start()
        self.kubelet.wait_until("the node is known", lambda: self.try_kubectl("get", "node", NODE), 120)

    def _start_control_plane(self) -> None:
        etcd = self._program("etcd", f"--data-dir={self._folder}/etcd", "--unsafe-no-fsync")
        etcd.start()
        etcd.wait_until("etcd is healthy", lambda: _fetch("http://127.0.0.1:2379/health"), 60)
        key = self._folder / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        tokens = self._folder / "tokens.csv"
        tokens.write_text("box,box,box,system:masters\n")
        server = self._program(
            "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=127.0.0.1", "--secure-port=6443",
            f"--advertise-address={NODE_ADDRESS}", f"--cert-dir={self._folder}/certificates",
            "--service-cluster-ip-range=10.96.0.0/24", "--kubelet-preferred-address-types=InternalIP",
            f"--token-auth-file={tokens}", "--authorization-mode=AlwaysAllow",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition", "--service-account-issuer=https://box",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}")
        server.start()
        server.wait_until("the API server is ready", lambda: self.try_kubectl("get", "--raw", "/readyz"), 180)
        self._program("kube-scheduler", f"--kubeconfig={self._kubeconfig}", "--leader-elect=false", "--port=0").start()

    def _start_containerd(self) -> None:
        configuration = self._folder / "containerd.toml"
        configuration.write_text(f"""version = 2
root = "/run/containerd-root"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = {str(not _may_lower_oom_scores()).lower()}
  sandbox_image = "{IMAGE}"
""")
        containerd = self._program("containerd", "--config", str(configuration))
        containerd.start()
        ctr = [str(self._programs / "ctr"), "--address", CONTAINERD]
        containerd.wait_until("containerd answers", lambda: subprocess.run(
            [*ctr, "version"], capture_output=True, check=False).returncode == 0, 60)
        subprocess.run([*ctr, "-n", "k8s.io", "images", "import", str(self._programs / "image.tar")], check=True,
                       capture_output=True)

    # --- asking and telling it ---------------------------------------------------------------------------------------

    def try_kubectl(self, *arguments: str, stdin: str = "") -> str | None:
        """Its output, or None where it fails."""
        done = subprocess.run([str(self._programs / "kubectl"), f"--kubeconfig={self._kubeconfig}", *arguments],
                              input=stdin, capture_output=True, text=True, check=False)
        self._last_error = done.stderr
        return done.stdout if done.returncode == 0 else None

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        output = self.try_kubectl(*arguments, stdin=stdin)
        if output is None:
            raise Failure(f"kubectl {' '.join(arguments)}: {self._last_error}")
        return output

    def get(self, *what: str) -> Any:
        return json.loads(self.kubectl("get", *what, "-o", "json"))

    def devices(self, of: str = "allocatable") -> dict[str, int]:
        """What the node says it has of device plugins' resources: resource -> count."""
        return {name: int(count) for name, count in self.get("node", NODE)["status"].get(of, {}).items() if "/" in name}

    def registrations(self) -> dict[str, int]:
        """How often each resource has been registered with the kubelet that runs now."""
        found = {}
        for line in (_fetch("http://127.0.0.1:10255/metrics") or "").splitlines():
            if line.startswith("kubelet_device_plugin_registration_total{"):
                labels, count = line.rsplit(" ", 1)
                found[labels.split('"')[1]] = int(count)
        return found

    def restart_kubelet(self, how: signal.Signals) -> None:
        """Returns when the new one has said what the node has."""
        self.kubelet.stop(how)
        begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.kubelet.start()
        self.kubelet.wait_until("the kubelet reports", lambda: any(
            condition["type"] == "Ready" and condition["lastHeartbeatTime"] > begin  # which has whole seconds
            for condition in self.get("node", NODE)["status"]["conditions"]), 120)

    def run_pod(self, name: str, devices: dict[str, int], command: str) -> None:
        """A pod whose one container runs the command and then stays."""
        manifest = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"hostNetwork": True, "restartPolicy": "Never", "containers": [{
                "name": "c", "image": IMAGE, "imagePullPolicy": "Never",
                "command": ["sh", "-c", f"trap exit TERM; {command}; sleep infinity & wait"],
                "resources": {"limits": {resource: str(count) for resource, count in devices.items()}}}]}}
        self.kubectl("create", "-f", "-", stdin=json.dumps(manifest))

    def pod(self, name: str) -> Any:
        return self.get("pod", name)["status"]

    def wait_for_pod(self, name: str) -> None:
        """Until it runs."""

        def runs() -> bool:
            status = self.pod(name)
            if status["phase"] in ("Failed", "Succeeded"):
                raise Failure(f"the pod {name} does not run: {status}")
            return bool(status["phase"] == "Running")
        wait_until(f"the pod {name} runs", runs, 90)

    def remove_pods(self) -> None:
        self.kubectl("delete", "pods", "--all", "--grace-period=5", "--wait", "--timeout=60s")
