# SPDX-License-Identifier: Apache-2.0
"""Ferry as Helm installs it: the chart, and its pods with the image of images/build."""

import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any

import yaml

from .kubernetes import Kubernetes
from .programs import Failure

REPOSITORY = pathlib.Path(__file__).resolve().parents[4]
CHART = str(REPOSITORY / "charts/ferry")
SPACE = "ferry"
PRESENT = "feature.node.kubernetes.io/pci-10de.present"
COMPONENT = "app.kubernetes.io/component"
VALUES = {"image": {"repository": "ferry"}, "minReadySeconds": 1}


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


def write_former_chart(folder: pathlib.Path, rendered: str, *joined: str) -> str:
    """A chart whose objects are these, but for the containers of `joined`: they run as root in the pod of hostd."""
    objects = [one for one in yaml.safe_load_all(rendered) if one]
    sets = {one["spec"]["template"]["metadata"]["labels"][COMPONENT]: one for one in objects if one["kind"] == "DaemonSet"}
    former = sets["node"]["spec"]["template"]["spec"]
    for part in joined:
        objects.remove(sets[part])
        pod = sets[part]["spec"]["template"]["spec"]
        there = {one["name"] for one in former["volumes"]}
        former["volumes"] += [one for one in pod["volumes"] if one["name"] not in there]
        for container in pod["containers"]:
            container["securityContext"]["runAsUser"] = 0
        former["containers"] += pod["containers"]
        if part == "agent":
            former["serviceAccountName"] = pod["serviceAccountName"]
            del former["securityContext"]["supplementalGroups"]
    if "agent" in joined:
        for container in former["containers"]:
            container["args"] = [word for word in container["args"] if not word.startswith("--agent-")]
    (folder / "templates").mkdir()
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: ferry\nversion: 0.0.1\n")
    (folder / "templates/all.yaml").write_text(yaml.safe_dump_all(objects))
    return str(folder)


class FerryChart:
    def __init__(self, kubernetes: Kubernetes, pulled: bool = False) -> None:
        """Has the image loaded, unless the node pulls it from a registry, and makes the namespace."""
        self.kubernetes = kubernetes
        self.logs_of_hooks = ""  # of the last command of Helm
        if not pulled:
            with tempfile.TemporaryDirectory() as scratch:
                image = pathlib.Path(scratch, "ferry.tar")
                subprocess.run([REPOSITORY / "images/build", "--bin", os.environ["CLUSTER_BIN"], image], check=True)
                kubernetes.import_image(image)
        kubernetes.kubectl("create", "namespace", SPACE)

    def helm(self, program: str, *words: str, values: Any = None) -> str:
        done = helm(self.kubernetes, program, *words, values=values)
        self.logs_of_hooks = done.stderr
        return done.stdout

    def install_former(self, program: str, values: Any, *joined: str) -> None:
        """Installs what write_former_chart() writes."""
        rendered = self.helm(program, "template", "ferry", CHART, "--no-hooks", f"--kube-version=1.{self.kubernetes.release.minor}.0",
                             values=values)
        with tempfile.TemporaryDirectory() as folder:
            self.helm(program, "install", "ferry", write_former_chart(pathlib.Path(folder), rendered, *joined))

    def pods(self) -> list[Any]:
        found = self.kubernetes.read(f"namespaces/{SPACE}/pods")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pod(self, component: str) -> Any:
        """The pod of the agent, of hostd ("node") or of another component; nothing while there is none or more than one."""
        found = [pod for pod in self.pods() if pod["metadata"]["labels"].get(COMPONENT) == component]
        return found[0] if len(found) == 1 else None

    def uid(self, component: str) -> str:
        """The UID of that pod, once its container is ready; else an empty text."""
        pod = self.pod(component)
        states = pod["status"].get("containerStatuses", []) if pod else []
        ready = len(states) == 1 and states[0]["ready"]
        return str(pod["metadata"]["uid"]) if ready else ""

    def runs(self, *more: str) -> str:
        """The UIDs of the pods of agent, node, plugin and `more` components, once their containers are ready and there is no
        other pod; else nothing."""
        components = ("agent", "node", "plugin", *more)
        uids = [self.uid(component) for component in components]
        return " ".join(uids) if all(uids) and len(self.pods()) == len(components) else ""

    def print_logs(self) -> None:
        """Prints the descriptions and logs of its pods."""
        print(self.kubernetes.try_kubectl("describe", "pods", "-n", SPACE))
        for pod in self.pods():
            print(self.kubernetes.try_kubectl("logs", "-n", SPACE, pod["metadata"]["name"], "--all-containers"))
