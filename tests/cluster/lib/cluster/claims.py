# SPDX-License-Identifier: Apache-2.0
"""ResourceClaims and ResourceSlices of Ferry's driver: manifests, the published devices, and whether the allocations fit on the
GPUs; and nodes whose GPUs are a list alone."""

import collections
import http.client
import json
import os
import pathlib
import re
import ssl
import unittest
from collections.abc import Sequence
from typing import Any

from .box import NODE_ADDRESS
from .ferry_chart import CHART, SPACE, VALUES, helm, helms
from .kubernetes import API_PORT, Kubernetes
from .programs import Failure, Program

DRIVER = "gpu-ferry.io"
ACCOUNT = "ferry-dra"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"


# --- manifests --------------------------------------------------------------------------------------------------------

def chosen_by(kind: str, expression: str, **more: Any) -> dict[str, Any]:
    """A request of the class `whole` or `vgpu`, in the form of `exactly`."""
    return {"deviceClassName": f"{kind}.{DRIVER}", "selectors": [{"cel": {"expression": expression}}], **more}


def whole(device: str) -> dict[str, Any]:
    """A request for a GPU with this device ID."""
    return chosen_by("whole", f"device.attributes['{DRIVER}'].deviceID == '{device}'")


def vgpu(kind: str, **more: Any) -> dict[str, Any]:
    return chosen_by("vgpu", f"device.attributes['{DRIVER}'].vgpuType == '{kind}'", **more)


def spec_of(requests: dict[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A request with `firstAvailable` has that key alone; each other one is exact."""
    return {"devices": {"requests": [{"name": name, **(what if "firstAvailable" in what else {"exactly": what})}
                                     for name, what in requests.items()], **more}}


def claim_of(name: str, requests: dict[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "default"},
            "spec": spec_of(requests, **more)}


def pod_on(node: str, name: str, claim: str) -> dict[str, Any]:
    """A pod that the scheduler can only bind to this Node, with one claim. Its image is nowhere."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeSelector": {"kubernetes.io/hostname": node}, "tolerations": [{"operator": "Exists"}],
                     "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0,
                     "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
                     "containers": [{"name": "c", "image": "example.com/none:1", "resources": {"claims": [{"name": "gpu"}]}}]}}


# --- GPUs as hostd lists them (api/claimable_gpus.h) -----------------------------------------------------------------------

def vgpu_type(number: int, name: str, memory: int, **more: Any) -> dict[str, Any]:
    """`memory`: MiB. `more`: most_per_gpu; size and placements of a GPU with mixed sizes."""
    return {"id": str(number), "name": f"NVIDIA {name}", "short_name": name, "framebuffer_mib": memory, "most_per_gpu": None,
            "allowed": True, "size": 0, "placements": [], **more}


def listed_gpu(address: str, group: int, memory: int, types: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"address": address, "iommu_group": group, "vendor": 0x10de, "device": 0x26b9, "product": "AD102GL [L40S]",
            "memory_mib": memory, "numa_node": 0, "pcie_root": None, "for_dra": True, "whole": True,
            "framework": "vendor_vfio" if types else "none", "mixed_sizes": False, "types": types, "health": "ready",
            "reason": None, **more}


# --- allocations --------------------------------------------------------------------------------------------------------

def devices_in(slices: list[Any]) -> dict[str, Any]:
    """The devices of a pool by name, of its newest generation; nothing while a slice of that is missing."""
    pools = [one["spec"] for one in slices]
    newest = max((spec["pool"]["generation"] for spec in pools), default=0)
    now = [spec for spec in pools if spec["pool"]["generation"] == newest]
    if not now or len(now) != now[0]["pool"]["resourceSliceCount"]:
        return {}
    return {device["name"]: device for spec in now for device in spec.get("devices") or []}


def allocations(claims: list[Any], pool: str) -> list[tuple[str, str]]:
    """(device of the pool, claim), one for each result of an allocation."""
    return [(result["device"], claim["metadata"]["name"]) for claim in claims
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
            if result["driver"] == DRIVER and result["pool"] == pool]


_NAME = re.compile(r"(?:whole|vgpu)-([0-9a-f]{4,}-[0-9a-f]{2}-[0-9a-f]{2}-[0-9a-f])(?:-([0-9]+)-([0-9]+))?")


def faults(gpus: list[dict[str, Any]], taken: list[tuple[str, str]]) -> list[str]:
    """Sentences about allocations that these GPUs cannot all have. It knows nothing of counters: it adds up by the names of
    devices and hostd's list."""
    out = []
    by_label = {gpu["address"].replace(":", "-").replace(".", "-"): gpu for gpu in gpus}
    users = collections.defaultdict(list)
    for device, claim in taken:
        users[device].append(claim)
    out += [f"{device} is allocated to {names}" for device, names in users.items() if len(names) > 1]
    whole_groups, vgpus = collections.Counter[int](), collections.defaultdict[str, list[tuple[dict[str, Any], int]]](list)
    for device, _ in taken:
        found = _NAME.fullmatch(device)
        gpu = by_label.get(found[1]) if found else None
        if not found or not gpu:
            out.append(f"{device} is of no GPU")
        elif not found[2]:
            whole_groups[gpu["iommu_group"]] += 1
        else:
            vgpus[gpu["address"]].append((next(one for one in gpu["types"] if one["id"].endswith(found[2])), int(found[3])))
    for gpu in gpus:
        made, address = vgpus[gpu["address"]], gpu["address"]
        if whole_groups[gpu["iommu_group"]] + bool(made) > 1:
            out.append(f"the group of {address} is allocated whole, and so are vGPUs of {address}, or the group once more")
        memory = sum(kind["framebuffer_mib"] for kind, _ in made)
        if memory > gpu["memory_mib"]:
            out.append(f"vGPUs of {address} have {memory} of {gpu['memory_mib']} MiB")
        for kind in gpu["types"]:
            count = sum(one is kind for one, _ in made)
            if kind["most_per_gpu"] is not None and count > kind["most_per_gpu"]:
                out.append(f"{address} has {count} vGPUs of {kind['short_name']}")
        units = collections.Counter(unit for kind, first in made for unit in range(first, first + kind["size"]))
        out += [f"unit {unit} of {address} is allocated {count} times" for unit, count in units.items() if count > 1]
    return out


class Api:
    """Requests of an administrator on one connection: each takes milliseconds, and kubectl takes a tenth of a second to start.
    For one thread."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        trusted = ssl.create_default_context(cafile=str(kubernetes.authority))
        self._connection = http.client.HTTPSConnection(NODE_ADDRESS, API_PORT, timeout=60, context=trusted)

    def _ask(self, method: str, path: str, body: Any = None, may_lack: bool = False) -> Any:
        self._connection.request(method, path, None if body is None else json.dumps(body),
                                 {"Authorization": "Bearer admin-token", "Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 400 and not (may_lack and answer.status == 404):
            raise Failure(f"{method} {path}: {answer.status} {text.decode()}")
        return json.loads(text)

    def get(self, path: str) -> Any:
        return self._ask("GET", path)

    def create(self, path: str, thing: Any) -> None:
        self._ask("POST", path, thing)

    def remove(self, path: str) -> None:
        """At once, also a pod of a Node without a kubelet. Succeeds if there is no such object."""
        self._ask("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}, may_lack=True)

    def slices(self, node: str) -> list[Any]:
        found = self.get(f"{SLICES}?fieldSelector=spec.nodeName%3D{node}")["items"]
        return [one for one in found if one["spec"]["driver"] == DRIVER]

    def devices(self, node: str) -> dict[str, Any]:
        return devices_in(self.slices(node))

    def claims(self) -> list[Any]:
        return list(self.get(CLAIMS)["items"])

    def allocations(self, node: str) -> list[tuple[str, str]]:
        return allocations(self.claims(), f"{node}/gpu-ferry")


def cluster_of_listed_nodes(classes: Sequence[dict[str, str]] = ()) -> Kubernetes:
    """It has the chart's classes with these in addition, rights and admission policies for claims, and no Node with the label for the chart's pods."""
    programs = helms()
    kubernetes = Kubernetes(pathlib.Path(os.environ["CLUSTER_PROGRAMS"]), pathlib.Path(os.environ["CLUSTER_FOLDER"]),
                            os.environ["CLUSTER_GROUP"])
    if not programs or not kubernetes.release.current:
        raise unittest.SkipTest("this needs Helm and a Kubernetes that has ResourceClaims")
    kubernetes.start()
    values = {**VALUES, "dra": {"enabled": True, "deviceClasses": {"more": list(classes)}}}
    helm(kubernetes, programs[-1], "install", "ferry", CHART, "--create-namespace", values=values)
    return kubernetes


class ListedNode:
    """A Node without a kubelet, and its `ferry dra` under the service account of the chart, on a host that is a folder. Its GPUs
    are a list as hostd writes it. The scheduler allocates their devices; none is prepared, and no pod starts there."""

    def __init__(self, kubernetes: Kubernetes, name: str) -> None:
        self.name, self.pool = name, f"{name}/gpu-ferry"
        self.gpus: list[dict[str, Any]] = []
        root = pathlib.Path("/run") / name
        for folder in ("run/ferry/claims", "run/ferry/dra", f"var/lib/kubelet/plugins/{DRIVER}",
                       "var/lib/kubelet/plugins_registry", "proc/sys/kernel/random"):
            (root / folder).mkdir(parents=True)
        (root / "proc/sys/kernel/random/boot_id").write_text("0e7c1a52-6b7e-4d0c-9c55-3f1f8e0a9b11\n")
        self._list = root / "run/ferry/claims/gpus.json"
        room = {"cpu": "1000", "memory": "1000Gi", "pods": "1000"}
        kubernetes.apply({"apiVersion": "v1", "kind": "Node", "status": {"capacity": room, "allocatable": room},
                          "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        # The admission policies read the Node's name from the token, which has it by its pod.
        pod = f"dra-{name}"
        kubernetes.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": SPACE}, "spec": {
            "nodeName": name, "serviceAccountName": ACCOUNT, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "example.com/none:1"}]}})
        kubernetes.add_user(name, kubernetes.kubectl("create", "token", ACCOUNT, "-n", SPACE, "--bound-object-kind=Pod",
                                                     f"--bound-object-name={pod}").strip())
        self.dra = Program(kubernetes.logs, f"{os.environ['CLUSTER_BIN']}/ferry-dra", f"--host-root={root}",
                           f"--node-name={name}", f"--kubeconfig={kubernetes.kubeconfig(name)}", name=pod)

    def list_gpus(self, *gpus: dict[str, Any]) -> None:
        """In place of the former list."""
        self.gpus = list(gpus)
        new = self._list.with_suffix(".new")
        new.write_text(json.dumps({"version": 1, "gpus": self.gpus}))
        new.rename(self._list)

    def wait_until_published(self) -> None:
        """Waits for the first publication."""
        self.dra.wait_until(f"the GPUs of {self.name} are published",
                            lambda: "are published, generation" in self.dra.log.read_text(), 60)
