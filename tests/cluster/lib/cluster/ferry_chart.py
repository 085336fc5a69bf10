# SPDX-License-Identifier: Apache-2.0
"""Ferry as Helm installs it: the chart, and its pods with the image of images/build."""

import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any

from .box import NODE_ADDRESS
from .kubernetes import CONTAINERD, Kubernetes
from .programs import Failure

REPOSITORY = pathlib.Path(__file__).resolve().parents[4]
CHART = str(REPOSITORY / "charts/ferry")
SPACE = "ferry"
PRESENT = "feature.node.kubernetes.io/pci-10de.present"
# No proxy forwards the cluster's address of the API server here; a container gets the real address itself.
VALUES = {"image": {"repository": "ferry"}, "minReadySeconds": 1,
          "agent": {"extraEnv": [{"name": "KUBERNETES_SERVICE_HOST", "value": NODE_ADDRESS},
                                 {"name": "KUBERNETES_SERVICE_PORT", "value": "6443"}]}}


def helms() -> list[str]:
    """The programs that there are to be had."""
    done = subprocess.run([REPOSITORY / "scripts/lib/helm"], stdout=subprocess.PIPE, text=True, check=False)
    return [line.split(maxsplit=1)[1] + "/helm" for line in done.stdout.splitlines()]


def helm(kubernetes: Kubernetes, program: str, *words: str, values: Any = None) -> subprocess.CompletedProcess[str]:
    more = ["--values", "-"] if values else []
    done = subprocess.run([program, "--kubeconfig", str(kubernetes.kubeconfig("admin")), "--namespace", SPACE,
                           *words, *more], input=json.dumps(values), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"helm {' '.join(words)}: {done.stderr}")
    return done


class FerryChart:
    def __init__(self, kubernetes: Kubernetes) -> None:
        """Has the image loaded, and makes the namespace."""
        self.kubernetes = kubernetes
        self.logs_of_hooks = ""  # of the last command of Helm
        ctr = [pathlib.Path(os.environ["CLUSTER_PROGRAMS"]) / "ctr", "--address", CONTAINERD, "-n", "k8s.io"]
        with tempfile.TemporaryDirectory() as scratch:
            image = f"{scratch}/ferry.tar"
            subprocess.run([REPOSITORY / "images/build", "--bin", os.environ["CLUSTER_BIN"], image], check=True)
            subprocess.run([*ctr, "images", "import", image], check=True, capture_output=True)
        kubernetes.kubectl("create", "namespace", SPACE)

    def helm(self, program: str, *words: str, values: Any = None) -> str:
        done = helm(self.kubernetes, program, *words, values=values)
        self.logs_of_hooks = done.stderr
        return done.stdout

    def pods(self) -> list[Any]:
        found = self.kubernetes.read(f"namespaces/{SPACE}/pods")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pod(self, component: str) -> Any:
        """The agent's pod, or the node's, with hostd and the plugin; nothing while there is none or more than one."""
        found = [pod for pod in self.pods() if pod["metadata"]["labels"].get("app.kubernetes.io/component") == component]
        return found[0] if len(found) == 1 else None

    def uid(self, component: str) -> str:
        """The UID of that pod, once all its containers are ready; else an empty text."""
        pod = self.pod(component)
        states = pod["status"].get("containerStatuses", []) if pod else []
        ready = len(states) == {"agent": 1, "node": 2, "dra": 1}[component] and all(one["ready"] for one in states)
        return str(pod["metadata"]["uid"]) if ready else ""

    def runs(self, *more: str) -> str:
        """The UIDs of the pods of agent, node and `more` components, once all their containers are ready and there is no
        other pod; else nothing."""
        components = ("agent", "node", *more)
        uids = [self.uid(component) for component in components]
        return " ".join(uids) if all(uids) and len(self.pods()) == len(components) else ""

    def print_logs(self) -> None:
        """Prints the descriptions and logs of its pods."""
        print(self.kubernetes.try_kubectl("describe", "pods", "-n", SPACE))
        for pod in self.pods():
            print(self.kubernetes.try_kubectl("logs", "-n", SPACE, pod["metadata"]["name"], "--all-containers"))
