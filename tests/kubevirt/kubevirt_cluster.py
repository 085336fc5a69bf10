# SPDX-License-Identifier: Apache-2.0
"""KubeVirt in a cluster, as its operator installs it, and its VMs."""

import copy
import json
import pathlib
import re
import time
from collections.abc import Callable
from typing import Any

import yaml

from cluster.kubernetes import Kubernetes
from cluster.page_blocks import blocks
from cluster.programs import Failure
from virtual_node import NAME

SPACE = "kubevirt"
# Beside those of the box, for KubeVirt's Deployments, Services and roles.
CONTROLLERS = ("deployment-controller", "replicaset-controller", "endpoints-controller", "endpointslice-controller",
               "clusterrole-aggregation-controller")
CONFIGURATION = {
    # Template: KubeVirt's operator would wait for programs that are built from other sources.
    "developerConfiguration": {"useEmulation": True, "featureGates": ["HostDevices"], "disabledFeatureGates": ["Template"]},
    "mediatedDevicesConfiguration": {"enabled": False}}
# For a VM of a page: it starts from a kernel and an initramfs, which say on the console which PCI devices there are, and halt.
KERNEL_BOOT = {"kernelArgs": "console=ttyS0 quiet no_timer_check ferry.halt=1", "container": {
    "image": "localhost/guest:1", "imagePullPolicy": "Never", "kernelPath": "/boot/kernel", "initrdPath": "/boot/initrd"}}


def wait_while_it_moves(what: str, condition: Callable[[], Any], progress: Callable[[], str], still_s: float = 120) -> Any:
    """The condition's first value that is true. Failure when `progress` has had the same value for so long."""
    seen, since = "", time.monotonic()
    while not (value := condition()):
        now = progress()
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() > since + still_s:
            raise Failure(f"nothing has moved for {still_s:g} s: {what}; the last that was seen:\n{seen[-3000:]}")
        time.sleep(1)
    return value


def is_vm(manifest: dict[str, Any]) -> bool:
    return bool(manifest["kind"].startswith("VirtualMachine"))


def manifests_of(page: str, name: str) -> list[dict[str, Any]]:
    """The manifests that stand on the page in one block with the VM of this name, the VM last and made for the virtual node."""
    found = [block.manifests() for block in blocks() if block.page == page
             and any(is_vm(one) and one["metadata"]["name"] == name for one in block.manifests())]
    assert len(found) == 1, (page, name, found)
    return [one for one in found[0] if not is_vm(one)] + [lean(one) for one in found[0] if is_vm(one)]


def lean(manifest: dict[str, Any]) -> dict[str, Any]:
    """TCG has neither the CPU of the machine nor room for the memory that a page gives its VM, and the guest is a kernel and an
    initramfs, which no firmware, disk or network starts."""
    vm = copy.deepcopy(manifest)
    spec = vm["spec"]["template"]["spec"] if vm["kind"] == "VirtualMachine" else vm["spec"]
    domain = spec["domain"]
    for key in ("volumes", "networks"):
        spec.pop(key, None)
    spec["terminationGracePeriodSeconds"] = 0  # the guest does not listen
    for key in ("disks", "interfaces"):
        domain["devices"].pop(key, None)
    domain |= {"cpu": {"cores": 1}, "memory": {"guest": "128Mi"}, "firmware": {"kernelBoot": KERNEL_BOOT}}
    domain["devices"] |= {"autoattachPodInterface": False, "autoattachGraphicsDevice": False, "autoattachMemBalloon": False}
    for gpu in domain["devices"].get("gpus", []):
        gpu["virtualGPUOptions"] = {"display": {"enabled": False}}
    return vm


class KubeVirt:
    def __init__(self, kubernetes: Kubernetes, made: pathlib.Path, pods: pathlib.Path) -> None:
        """`made`: as scripts/lib/kubevirt makes it. `pods`: the logs of the node's pods."""
        self.kubernetes, self._made, self._pods = kubernetes, made, pods

    def install(self) -> None:
        """Asks for it; wait_until_deployed() waits."""
        self.kubernetes.import_image(self._made / "image.tar")
        operator = [one for one in yaml.safe_load_all((self._made / "operator.yaml").read_text()) if one]
        for one in operator:
            if one["kind"] == "Deployment":
                one["spec"]["replicas"] = 1  # there is one node for it
        self.kubernetes.kubectl("label", "node", "node", "node-role.kubernetes.io/control-plane=")
        self.kubernetes.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(operator))
        self.kubernetes.kubectl("wait", "--for=condition=Established", "crd/kubevirts.kubevirt.io", "--timeout=60s")
        self.kubernetes.apply({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt", "namespace": SPACE},
            "spec": {"imagePullPolicy": "Never", "infra": {"replicas": 1},
                     "workloads": {"nodePlacement": {"nodeSelector": {"kubernetes.io/hostname": NAME}}},
                     "configuration": CONFIGURATION}})

    def wait_until_deployed(self) -> None:
        wait_while_it_moves("KubeVirt is deployed", lambda: self.kubernetes.get("kubevirt", "-n", SPACE, "kubevirt")
                            .get("status", {}).get("phase") == "Deployed", self.progress)

    def progress(self) -> str:
        """All that the cluster says of pods and VMs."""
        pods = self.kubernetes.try_kubectl("get", "pods", "-A", "-o", "wide", "--no-headers") or ""
        events = self.kubernetes.try_kubectl("get", "events", "-A", "--no-headers") or ""
        return re.sub(r"\b(\d+[smhd])+\b", "", pods + "\n".join(events.splitlines()[-40:]))

    def apply(self, manifests: list[dict[str, Any]]) -> None:
        self.kubernetes.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    def vmi(self, name: str, space: str = "default") -> Any:
        return self.kubernetes.get("vmi", "-n", space, name)

    def phase(self, name: str, space: str = "default") -> str:
        """Empty while there is no such VM."""
        return self.kubernetes.try_kubectl("get", "vmi", "-n", space, name, "-o", "jsonpath={.status.phase}") or ""

    def launcher(self, name: str, space: str = "default") -> Any:
        """The pod of a VM; nothing while there is none."""
        found = self.kubernetes.get("pods", "-n", space, "-l", f"vm.kubevirt.io/name={name}")["items"]
        return found[0] if len(found) == 1 else None

    def console(self, name: str, space: str = "default") -> str:
        logs = self._pods.glob(f"{space}_virt-launcher-{name}-*/guest-console-log/*.log")
        return "".join(log.read_text(errors="replace") for log in sorted(logs))

    def devices_of_guest(self, name: str, space: str = "default") -> list[str]:
        """vendor:device of each PCI device with NVIDIA's vendor ID that the guest has printed, once it runs."""

        def ready() -> str:
            if self.phase(name, space) == "Failed":
                raise Failure(f"the VM {name} has failed")
            said = self.console(name, space)
            return said if "GUEST-READY" in said else ""
        said = wait_while_it_moves(f"the guest of {name} runs", ready, lambda: self.progress() + self.console(name, space))
        return sorted(re.findall(r"GUEST-PCI \S+ vendor=10de device=(\w{4})", said))
